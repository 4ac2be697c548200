"""How often a `Loop` goes round, where constants alone decide it.

Exporters of loops that count, such as TensorFlow's, leave out the number of rounds and compare a
counter with a constant. What decides is run in ONNX Runtime, without the rest of the body.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tunefleet.artifacts.onnx_session import open_session, session_options
from tunefleet.compiler.frontends.onnx_file import graphs_of, used
from tunefleet.compiler.frontends.onnx_infer import attempt

#: Carried values are what a body takes and gives after the number of the round and the condition.
_COUNTER, _CONDITION, _CARRIED = 0, 1, 2
#: Names of the tensors that are added.
_LIMIT, _ROUNDS, _NUMBER, _LAST = "limit/", "rounds/", "number/", "last/"


def rounds_of(
    node: onnx.NodeProto,
    constants: Mapping[str, onnx.TensorProto],
    model: onnx.ModelProto,
    most: int,
) -> int | None:
    """The number of rounds of a loop, None where values decide it or it is none or above `most`."""
    count, goes_on = (name_of(node, index) for index in (_COUNTER, _CONDITION))
    if any(name and name not in constants for name in (count, goes_on)):
        return None
    limit = scalar(constants[count]) if count else most + 1
    if limit < 1 or (count and limit > most and not _can_end(node)):
        return None
    deciding = _deciding(node, constants)
    if deciding is None:
        return None
    counted = _counting(node, constants, model, min(limit, most + 1), *deciding)
    rounds = attempt(lambda: _run(counted))
    return rounds if rounds and rounds <= most else None


def name_of(node: onnx.NodeProto, index: int) -> str:
    """An input by its place, "" where it is left out."""
    return node.input[index] if index < len(node.input) else ""


def scalar(tensor: onnx.TensorProto) -> int:
    """The only number of a tensor."""
    return int(numpy_helper.to_array(tensor).reshape(-1)[0])


def _can_end(node: onnx.NodeProto) -> bool:
    """Whether a body gives another condition than it takes."""
    body = next(iter(graphs_of(node)))
    return bool(body.output[0].name != body.input[_CONDITION].name)


def _deciding(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]
) -> tuple[set[str], list[int]] | None:
    """The values of a body that its condition comes from, and which carried ones these are among;
    None where one comes from elsewhere than constants."""
    body = next(iter(graphs_of(node)))
    producers = {name: n for n in body.node for name in n.output if name}
    carried = {value.name: index for index, value in enumerate(body.input[_CARRIED:])}
    own = {tensor.name for tensor in body.initializer}
    own |= {value.name for value in body.input[:_CARRIED]}
    needed, kept = set[str](), set[int]()
    stack = [body.output[0].name]
    while stack:
        name = stack.pop()
        if name in needed:
            continue
        needed.add(name)
        if name in producers:
            stack += used(producers[name])
        elif name in carried:
            if name_of(node, _CARRIED + carried[name]) not in constants:
                return None
            kept.add(carried[name])
            stack.append(body.output[1 + carried[name]].name)
        elif name not in own and name not in constants:
            return None
    return needed, sorted(kept)


def _counting(
    node: onnx.NodeProto,
    constants: Mapping[str, onnx.TensorProto],
    model: onnx.ModelProto,
    limit: int,
    needed: set[str],
    kept: list[int],
) -> onnx.ModelProto:
    """A network of the loop with what decides alone, which gives the number of every round."""
    body = next(iter(graphs_of(node)))
    pruned = onnx.GraphProto(name=body.name)
    pruned.node.extend(n for n in body.node if needed & set(n.output))
    pruned.initializer.extend(t for t in body.initializer if t.name in needed)
    pruned.input.extend(body.input[:_CARRIED])
    pruned.input.extend(body.input[_CARRIED + index] for index in kept)
    pruned.output.append(body.output[0])
    pruned.output.extend(body.output[1 + index] for index in kept)
    pruned.node.append(helper.make_node("Identity", [body.input[_COUNTER].name], [_NUMBER]))
    pruned.output.append(onnx.ValueInfoProto(name=_NUMBER))
    goes_on = name_of(node, _CONDITION)
    starts = [name_of(node, _CARRIED + index) for index in kept]
    loop = helper.make_node(
        "Loop", [_LIMIT, goes_on, *starts], [*(f"{_LAST}{i}" for i in kept), _ROUNDS], body=pruned
    )
    graph = helper.make_graph(
        [loop], "rounds", [], [onnx.ValueInfoProto(name=_ROUNDS)],
        [helper.make_tensor(_LIMIT, TensorProto.INT64, [], [limit])],
    )  # fmt: skip
    outer = {goes_on, *starts} | (needed - {t.name for t in body.initializer})
    for name in sorted(outer & set(constants)):
        tensor = onnx.TensorProto()
        tensor.CopyFrom(constants[name])
        tensor.name = name
        graph.initializer.append(tensor)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def _run(model: onnx.ModelProto) -> int:
    session = open_session(model.SerializeToString(), session_options(1))
    (numbers,) = session.run(None, {})
    return len(np.atleast_1d(numbers))
