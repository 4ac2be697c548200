"""Tries conversions of operators that few networks use: each form once, on small numbers, beside
ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx

from tunefleet.artifacts.onnx_session import open_session, session_options
from tunefleet.compiler.frontends.blame import gist
from tunefleet.compiler.frontends.examples import seeded_inputs
from tunefleet.compiler.frontends.onnx_file import (
    Array,
    OnnxWeights,
    array_of,
    domain_of,
    graphs_of,
)
from tunefleet.compiler.frontends.onnx_graph import Importer
from tunefleet.compiler.frontends.onnx_infer import attempt
from tunefleet.compiler.frontends.onnx_refusal import Refusal
from tunefleet.compiler.frontends.onnx_segments import flops
from tunefleet.compiler.frontends.onnx_types import NOTHING_KNOWN, ValueType
from tunefleet.compiler.frontends.relax_ import tidy
from tunefleet.compiler.toolchain.quiet import forget_frames
from tunefleet.core.network import TensorSpec
from tunefleet.errors import raise_mistake

#: Operators whose conversions every network tests.
_TRUSTED = frozenset(
    [
        "Abs",
        "Add",
        "And",
        "AveragePool",
        "BatchNormalization",
        "Cast",
        "Ceil",
        "Clip",
        "Concat",
        "Constant",
        "Conv",
        "Cos",
        "Div",
        "Equal",
        "Erf",
        "Exp",
        "Expand",
        "Flatten",
        "Floor",
        "Gather",
        "Gemm",
        "GlobalAveragePool",
        "Greater",
        "GreaterOrEqual",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "LayerNormalization",
        "LeakyRelu",
        "Less",
        "LessOrEqual",
        "Log",
        "LogSoftmax",
        "MatMul",
        "MaxPool",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "Reciprocal",
        "ReduceMean",
        "Relu",
        "Reshape",
        "Shape",
        "Sigmoid",
        "Sin",
        "Slice",
        "Softmax",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Tanh",
        "Transpose",
        "Unsqueeze",
        "Where",
    ]
)
#: What is larger would take longer than it is worth.
_MOST_ELEMENTS = 1 << 18
_MOST_FLOPS = 1e7
_MOST_FORMS = 64
_TOLERANCES = {"float16": 2e-2}
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class _Trial:
    """One node as a network of its own, with what it is fed and what comes out."""

    indices: tuple[int, ...]
    model: onnx.ModelProto
    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]


def failures(
    model: onnx.ModelProto,
    weights: OnnxWeights,
    types: Mapping[str, ValueType],
    converted: Iterable[int],
) -> dict[int, Refusal]:
    """The nodes, of those that TVM converted, whose forms compute something else or cannot be
    compiled."""
    trials = _trials(model, weights, types, converted)
    if not trials:
        return {}
    refusals: dict[int, Refusal] = {}
    together = _results(trials, weights, types)
    for position, trial in enumerate(trials):
        reason = together[position] if together is not None else _alone(trial, weights, types)
        if reason:
            refusals |= {index: Refusal(reason) for index in trial.indices}
    return refusals


def _trials(
    model: onnx.ModelProto,
    weights: OnnxWeights,
    types: Mapping[str, ValueType],
    converted: Iterable[int],
) -> list[_Trial]:
    forms: dict[tuple[Any, ...], list[int]] = {}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for index in sorted(converted):
        node = model.graph.node[index]
        key = (domain_of(node), node.op_type)
        if (not key[0] and node.op_type in _TRUSTED) or any(graphs_of(node)):
            continue
        forms.setdefault(_form(node, types, constants), []).append(index)
    trials = []
    for indices in list(forms.values())[:_MOST_FORMS]:
        sizes = {index: _size(model.graph.node[index], types) for index in indices}
        smallest = min(indices, key=lambda index: sizes[index])
        node = model.graph.node[smallest]
        if sizes[smallest] <= _MOST_ELEMENTS and flops(node, types) <= _MOST_FLOPS:
            trial = attempt(partial(_trial, model, node, tuple(indices), weights, types))
            if trial is not None:
                trials.append(trial)
    return trials


def _form(
    node: onnx.NodeProto,
    types: Mapping[str, ValueType],
    constants: Mapping[str, onnx.TensorProto],
) -> tuple[Any, ...]:
    """What a conversion may depend on, sizes aside."""
    inputs = []
    for name in node.input:
        known = types.get(name, NOTHING_KNOWN)
        value = b""
        if name in constants and not (known.dtype or "").startswith("float"):
            value = constants[name].SerializeToString(deterministic=True)
        inputs.append((known.dtype, len(known.shape or ()), bool(name), value))
    attributes = sorted(a.SerializeToString(deterministic=True) for a in node.attribute)
    return (domain_of(node), node.op_type, *attributes, *inputs, len(node.output))


def _size(node: onnx.NodeProto, types: Mapping[str, ValueType]) -> int:
    return sum(types.get(n, NOTHING_KNOWN).size for n in (*node.input, *node.output) if n)


def _trial(
    model: onnx.ModelProto,
    node: onnx.NodeProto,
    indices: tuple[int, ...],
    weights: OnnxWeights,
    types: Mapping[str, ValueType],
) -> _Trial:
    """Runs one node in ONNX Runtime, on its own constants and on numbers that are made up."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    alone = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    alone.graph.name = "trial"
    alone.graph.node.append(node)
    specs = []
    for name in dict.fromkeys(name for name in node.input if name):
        if name in constants or name in weights:
            source = constants.get(name) or weights.tensors[name]
            array = np.array(array_of(source, weights.folder))
            alone.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
            continue
        known = types[name]
        specs.append(TensorSpec(name, known.shape or (), str(known.dtype)))
    for values, names in (
        (alone.graph.input, [spec.name for spec in specs]),
        (alone.graph.output, [name for name in node.output if name]),
    ):
        for name in names:
            known = types[name]
            kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(str(known.dtype)))
            values.append(onnx.helper.make_tensor_value_info(name, kind, known.shape))
    inputs = seeded_inputs(specs)
    session = open_session(alone.SerializeToString(), session_options(1))
    feed = {spec.name: array for spec, array in zip(specs, inputs, strict=True)}
    return _Trial(indices, alone, inputs, tuple(session.run(None, feed)))


def _results(
    trials: Sequence[_Trial], weights: OnnxWeights, types: Mapping[str, ValueType]
) -> list[str] | None:
    """What is wrong with each trial, "" for nothing; None where several do not compile together."""
    from tunefleet.compiler.code.executable import compile_network, run_compiled
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import native_target, to_tvm

    target = native_target(1)
    try:
        mod = _joined(trials, weights, types)
        network = compile_network(prepare(mod, to_tvm(target)), target, {})
        arrays = run_compiled(network, [array for trial in trials for array in trial.inputs])
    except Exception as exc:
        raise_mistake(exc)
        forget_frames(exc)
        return None if len(trials) > 1 else [f"TVM cannot compile it: {gist(exc)}"]
    outputs = iter(arrays)
    return [_difference(trial, [next(outputs) for _ in trial.expected]) for trial in trials]


def _alone(trial: _Trial, weights: OnnxWeights, types: Mapping[str, ValueType]) -> str:
    results = _results([trial], weights, types)
    return results[0] if results else ""


def _joined(trials: Sequence[_Trial], weights: OnnxWeights, types: Mapping[str, ValueType]) -> Any:
    """All trials side by side in one module, as a network that is compiled like any other."""
    together = onnx.ModelProto(
        ir_version=trials[0].model.ir_version, opset_import=trials[0].model.opset_import
    )
    renamed: dict[str, ValueType] = {}
    for position, trial in enumerate(trials):
        prefix = f"trial{position}/"
        graph = onnx.GraphProto()
        graph.CopyFrom(trial.model.graph)
        for values in (graph.input, graph.output, graph.initializer):
            for value in values:
                renamed[prefix + value.name] = types[value.name]
                value.name = prefix + value.name
        for names in (graph.node[0].input, graph.node[0].output):
            names[:] = [prefix + name if name else "" for name in names]
        graph.node[0].name = prefix + graph.node[0].name
        together.graph.MergeFrom(graph)
    importer = Importer(together, OnnxWeights(weights.folder, {}), renamed, {})

    def write() -> None:
        for node in together.graph.node:
            importer.convert(node)

    return tidy(importer.build(write))


def _difference(trial: _Trial, actual: Sequence[Array]) -> str:
    for a, e in zip(actual, trial.expected, strict=True):
        tolerance = _TOLERANCES.get(e.dtype.name, _TOLERANCE) if e.dtype.kind == "f" else 0.0
        finite = np.abs(e[np.isfinite(e)]) if e.dtype.kind == "f" else np.zeros(1)
        scale = float(finite.max()) if finite.size else 0.0
        same = a.shape == e.shape and np.allclose(
            a.astype("float64"), e.astype("float64"), tolerance, tolerance * scale, equal_nan=True
        )
        if not same:
            return "TVM computes something else than ONNX Runtime"
    return ""
