"""Infers the types of the values of a graph: by ONNX, and by ONNX Runtime for operators that only
it knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import onnx

from tunefleet.artifacts.onnx_session import open_session, session_options
from tunefleet.errors import raise_mistake

T = TypeVar("T")

#: What ONNX Runtime calls the types of tensors.
_KINDS = {
    f"tensor({name})": kind
    for name, kind in (
        ("bool", onnx.TensorProto.BOOL),
        ("double", onnx.TensorProto.DOUBLE),
        ("float", onnx.TensorProto.FLOAT),
        ("float16", onnx.TensorProto.FLOAT16),
        ("int16", onnx.TensorProto.INT16),
        ("int32", onnx.TensorProto.INT32),
        ("int64", onnx.TensorProto.INT64),
        ("int8", onnx.TensorProto.INT8),
        ("uint16", onnx.TensorProto.UINT16),
        ("uint32", onnx.TensorProto.UINT32),
        ("uint64", onnx.TensorProto.UINT64),
        ("uint8", onnx.TensorProto.UINT8),
    )
}


def attempt(step: Callable[[], T]) -> T | None:
    """The result of a step that may be left out, None where it fails.

    The libraries raise plain exceptions of many kinds, for operators that are not in their tables
    among others; without the step the graph is as correct as before.
    """
    try:
        return step()
    except Exception as exc:
        raise_mistake(exc)
        return None


def with_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types of its values in `value_info`, as far as they can be known."""
    model = _by_onnx(model)
    missing = _missing(model)
    if not missing:
        return model
    asked = attempt(lambda: _ask_runtime(model, missing))
    if not asked:
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    known = [value for value in result.graph.value_info if value.name not in asked]
    outputs = {value.name: value for value in result.graph.output}
    for name, value in asked.items():
        if name in outputs:
            outputs[name].CopyFrom(value)
        else:
            known.append(value)
    result.graph.ClearField("value_info")
    result.graph.value_info.extend(known)
    return _by_onnx(result)


def _by_onnx(model: onnx.ModelProto) -> onnx.ModelProto:
    for node in model.graph.node:
        # The default is 1, but ONNX infers as if it were 0.
        if node.op_type == "STFT" and all(a.name != "onesided" for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("onesided", 1))
    inferred = attempt(lambda: onnx.shape_inference.infer_shapes(model, data_prop=True))
    return model if inferred is None else inferred


def _missing(model: onnx.ModelProto) -> list[str]:
    """The values whose shapes are not known."""
    graph = model.graph
    known = {
        value.name
        for values in (graph.value_info, graph.output)
        for value in values
        if (not value.type.HasField("tensor_type") and value.type.WhichOneof("value"))
        or (
            value.type.tensor_type.HasField("shape")
            and all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)
        )
    }
    return [name for node in graph.node for name in node.output if name and name not in known]


def _ask_runtime(model: onnx.ModelProto, names: list[str]) -> dict[str, onnx.ValueInfoProto]:
    """What ONNX Runtime infers of some values."""
    import onnxruntime

    asking = onnx.ModelProto()
    asking.CopyFrom(model)
    asking.graph.ClearField("output")
    asking.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = session_options(1)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")
    session = open_session(asking.SerializeToString(), options, exact=False)
    # An empty shape may be that of a scalar, or one that is not known at all.
    return {
        value.name: onnx.helper.make_tensor_value_info(
            value.name,
            _KINDS[value.type],
            [extent if isinstance(extent, int) and extent >= 0 else None for extent in value.shape],
        )
        for value in session.get_outputs()
        if value.type in _KINDS and value.shape
    }
