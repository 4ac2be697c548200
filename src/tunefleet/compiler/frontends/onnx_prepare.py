"""Makes a graph with fixed shapes plain: constants folded, branches chosen, loops unrolled, lists
of tensors taken apart, every shape inferred.

ONNX Runtime does the folding, with its own kernels: what it folds is what it would compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import version_converter

from tunefleet.artifacts.onnx_session import WRONG_FUSIONS, open_session, session_options
from tunefleet.compiler.frontends.onnx_branches import choose_branches
from tunefleet.compiler.frontends.onnx_file import domain_of, graphs_of, opsets_of, used
from tunefleet.compiler.frontends.onnx_infer import attempt, with_types
from tunefleet.compiler.frontends.onnx_loops import unroll
from tunefleet.compiler.frontends.onnx_sequences import without_sequences
from tunefleet.errors import InputError
from tunefleet.system.scratch import scratch_folder

#: Older files are brought to this version, from which on shapes and axes are inputs everywhere.
_OPSET = 17
_OLDEST = 13
_MOST_ROUNDS = 6
#: Fusions would write operators that hide what can be tuned.
_DISABLED = (
    "ConvAddFusion",
    "ConvMulFusion",
    "ConvBNFusion",
    "MatMulAddFusion",
    "MatmulBNFusion",
    "MatMulBNFusion",
    "GemmActivationFusion",
    "TransposeOptimizer",
    "QDQPropagationTransformer",
    *WRONG_FUSIONS,
)


@dataclass(frozen=True)
class PreparedGraph:
    """A graph with the types of its tensors in `value_info`, and whether ONNX Runtime runs it."""

    model: onnx.ModelProto
    runs: bool


def prepare(model: onnx.ModelProto, what: str) -> PreparedGraph:
    """The same graph, as simple as it gets. Raises InputError, beginning with `what`, where nodes
    wait for each other in a circle."""
    model = choose_branches(_converted(model))
    runs = _written(model) is not None
    for _ in range(_MOST_ROUNDS):
        before = _form(model)
        model = unroll(choose_branches(with_types(_optimised(model))))
        model = without_sequences(model)
        if _form(model) == before:
            break
    return PreparedGraph(_sorted(with_types(model), what), runs)


def _form(model: onnx.ModelProto) -> tuple[Any, ...]:
    """What changes while a graph can still be made simpler."""
    shaped = sum(len(value.type.tensor_type.shape.dim) for value in model.graph.value_info)
    return (
        [(node.op_type, tuple(node.output)) for node in model.graph.node],
        len(model.graph.value_info),
        shaped,
    )


def _converted(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in a newer opset, where its own is old and the conversion is known to load."""
    own = opsets_of(model).get("", _OPSET)
    foreign = any(domain_of(node) for node in model.graph.node)
    if own >= _OLDEST or foreign:
        return model
    newer = attempt(lambda: version_converter.convert_version(model, _OPSET))
    if newer is None or _written(newer) is None:
        return model
    # The conversion of `Scan` removes a dimension of inputs.
    same = _signature(newer) == _signature(model)
    return newer if same else model


def _signature(model: onnx.ModelProto) -> list[tuple[str, bytes]]:
    return [(value.name, value.type.SerializeToString()) for value in model.graph.input]


def _optimised(model: onnx.ModelProto) -> onnx.ModelProto:
    written = _written(model)
    return model if written is None else written


def _written(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """What ONNX Runtime makes of a model, None where it does not take it."""
    import onnxruntime

    with scratch_folder("onnx") as folder:
        path = Path(folder) / "optimised.onnx"
        options = session_options(1)
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(path)
        options.add_session_config_entry("session.disable_prepacking", "1")

        def optimise() -> onnx.ModelProto:
            source = model.SerializeToString()
            open_session(source, options, exact=False, disabled_optimizers=_DISABLED)
            return onnx.load(path)

        return attempt(optimise)


def _sorted(model: onnx.ModelProto, what: str) -> onnx.ModelProto:
    """The nodes that an output needs, each with a name of its own, in an order in which they can
    run, without the outputs that nobody reads."""
    producer = {name: node for node in model.graph.node for name in node.output if name}
    order: list[onnx.NodeProto] = []
    open_: set[int] = set()
    done: set[int] = set()
    stack = [(value.name, False) for value in reversed(model.graph.output)]
    while stack:
        name, ready = stack.pop()
        node = producer.get(name)
        if node is None or id(node) in done:
            continue
        if ready:
            done.add(id(node))
            order.append(node)
            continue
        if id(node) in open_:
            raise InputError(
                f"{what}: {node.op_type} {name[:40]} needs its own output", cure="export it again"
            )
        open_.add(id(node))
        stack.append((name, True))
        stack += [(source, False) for source in reversed(used(node))]
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    result.graph.node.extend(order)
    _name(result.graph)
    _trim(result.graph)
    return result


def _name(graph: onnx.GraphProto) -> None:
    taken: set[str] = set()
    for node in graph.node:
        if not node.name or node.name in taken:
            node.name = next(name for name in node.output if name)
        taken.add(node.name)


def _trim(graph: onnx.GraphProto) -> None:
    """Removes outputs that nobody reads from the ends of nodes. Those with bodies give as many as
    their bodies do, and into how many parts a Split divides is how many outputs it has."""
    read = {name for node in graph.node for name in used(node)}
    read |= {value.name for value in graph.output}
    for node in graph.node:
        if node.op_type == "Split" or next(iter(graphs_of(node)), None) is not None:
            continue
        while len(node.output) > 1 and node.output[-1] not in read:
            del node.output[-1]
