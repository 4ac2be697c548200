"""Writes parts of a graph as ONNX files of their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx.external_data_helper import uses_external_data

from tunefleet.artifacts.segments import segment_file, segment_name
from tunefleet.compiler.frontends.imported import Segment
from tunefleet.compiler.frontends.onnx_file import Array, OnnxWeights, domain_of, used
from tunefleet.compiler.frontends.onnx_refusal import Refusal
from tunefleet.compiler.frontends.onnx_types import NOTHING_KNOWN, ValueType

FRAMEWORK = "ONNX Runtime"
#: Weights of more than this go to a file beside that of the segment: protobuf ends at 2 GB.
_MOST_INLINE = 1 << 30


@dataclass(frozen=True)
class CutOut:
    """A segment with the names of the tensors that it takes and returns."""

    segment: Segment
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def write_segment(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    wanted: Collection[str],
    weights: OnnxWeights,
    types: Mapping[str, ValueType],
    reasons: Mapping[str, Refusal],
    folder: Path,
) -> CutOut:
    """Writes `nodes` of a model as the file of a segment, which returns those of its values that
    are `wanted`. `reasons` are by the name of a node."""
    made = {name for node in nodes for name in node.output if name}
    needed = [n for n in dict.fromkeys(n for node in nodes for n in used(node)) if n not in made]
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    sparse = {tensor.values.name: tensor for tensor in model.graph.sparse_initializer}
    large = [name for name in needed if name in weights]
    inputs = [n for n in needed if n not in weights and n not in constants and n not in sparse]
    outputs = [name for node in nodes for name in node.output if name and name in wanted]
    declared = {
        value.name: value
        for values in (model.graph.value_info, model.graph.input, model.graph.output)
        for value in values
    }
    part = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    part.graph.name = "segment"
    part.graph.node.extend(nodes)
    part.graph.initializer.extend(constants[name] for name in needed if name in constants)
    part.graph.sparse_initializer.extend(sparse[name] for name in needed if name in sparse)
    part.graph.input.extend(declared[name] for name in inputs)
    part.graph.output.extend(
        declared.get(name) or onnx.ValueInfoProto(name=name) for name in outputs
    )
    name = _save(part, large, weights, folder)
    return CutOut(
        Segment(
            name,
            FRAMEWORK,
            tuple(title(node) for node in nodes),
            _reason(nodes, reasons),
            sum(flops(node, types) for node in nodes),
        ),
        tuple(inputs),
        tuple(outputs),
    )


def title(node: onnx.NodeProto) -> str:
    """A node as people look for it: operator and name."""
    domain = domain_of(node)
    return f"{domain + '.' if domain else ''}{node.op_type} {node.name}"


def _reason(nodes: Sequence[onnx.NodeProto], reasons: Mapping[str, Refusal]) -> str:
    """Why these nodes stay, told of those that do not stay because of others."""
    refused = [(node, reasons[node.name]) for node in nodes if node.name in reasons]
    first = [(n, r) for n, r in refused if not r.follows] or refused
    return "; ".join(dict.fromkeys(f"{node.op_type}: {refusal}" for node, refusal in first))


def _save(part: onnx.ModelProto, large: Sequence[str], weights: OnnxWeights, folder: Path) -> str:
    """Writes the file with its weights; the name of the segment."""
    size = sum(weights.array(name).nbytes for name in large)
    if size > _MOST_INLINE:
        return _save_beside(part, large, weights, folder)
    for name in large:
        part.graph.initializer.append(_inline(name, weights))
    content = part.SerializeToString(deterministic=True)
    name = segment_name(content)
    segment_file(folder, name, ".onnx").write_bytes(content)
    return name


def _inline(name: str, weights: OnnxWeights) -> onnx.TensorProto:
    tensor = weights.tensors[name]
    copy = onnx.TensorProto(name=name, data_type=tensor.data_type, dims=tensor.dims)
    if uses_external_data(tensor):
        packed = onnx.numpy_helper.from_array(np.ascontiguousarray(weights.array(name)), name)
        copy.raw_data = packed.raw_data
    else:
        copy.CopyFrom(tensor)
        copy.name = name
    return copy


def _save_beside(
    part: onnx.ModelProto, large: Sequence[str], weights: OnnxWeights, folder: Path
) -> str:
    """As `_save`, the weights in a file of their own, written one at a time."""
    import hashlib

    content = hashlib.sha256(part.SerializeToString(deterministic=True))
    for name in large:
        content.update(name.encode())
        content.update(_bytes(weights.array(name)))
    name = segment_name(content.hexdigest())
    path = segment_file(folder, name, ".onnx")
    beside = path.with_suffix(".weights")
    with beside.open("wb") as file:
        for weight in large:
            array = weights.array(weight)
            file.write(b"\0" * (-file.tell() % 4096))
            tensor = part.graph.initializer.add(
                name=weight,
                data_type=weights.tensors[weight].data_type,
                dims=weights.tensors[weight].dims,
                data_location=onnx.TensorProto.EXTERNAL,
            )
            for key, value in (
                ("location", beside.name),
                ("offset", file.tell()),
                ("length", array.nbytes),
            ):
                tensor.external_data.add(key=key, value=str(value))
            file.write(_bytes(array))
    path.write_bytes(part.SerializeToString(deterministic=True))
    return name


def _bytes(array: Array) -> memoryview:
    """The memory of an array, not copied unless its elements are apart."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def flops(node: onnx.NodeProto, types: Mapping[str, ValueType]) -> float:
    """What a node computes, by its shapes: additions and multiplications of products of tensors, 0
    for everything else."""
    all_types = [types.get(name, NOTHING_KNOWN) for name in (*node.input, *node.output)]
    inputs, outputs = all_types[: len(node.input)], all_types[len(node.input) :]
    if not outputs or len(inputs) < 2 or inputs[0].shape is None or inputs[1].shape is None:
        return 0.0
    first, second = inputs[0], inputs[1]
    assert first.shape is not None
    assert second.shape is not None
    match node.op_type:
        case "Conv" | "ConvInteger" | "FusedConv":
            return 2.0 * outputs[0].size * prod(second.shape[1:])
        case "QLinearConv" if len(inputs) > 3 and inputs[3].shape is not None:
            return 2.0 * outputs[0].size * prod(inputs[3].shape[1:])
        case "ConvTranspose":
            return 2.0 * first.size * prod(second.shape[1:])
        case "MatMul" | "MatMulInteger" | "FusedMatMul" | "QLinearMatMul" if first.shape:
            return 2.0 * outputs[0].size * first.shape[-1]
        case "Gemm" if len(first.shape) == 2:
            transposed = any(a.name == "transA" and a.i for a in node.attribute)
            return 2.0 * outputs[0].size * first.shape[0 if transposed else 1]
        case "LSTM" | "GRU" | "RNN" | "DynamicQuantizeLSTM" if len(inputs) > 2 and inputs[2].size:
            return 2.0 * prod(first.shape[:2]) * (second.size + inputs[2].size)
        case _:
            return 0.0
