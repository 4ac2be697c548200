"""Weights of four bits or fewer, of which NumPy and TVM have no numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

_KINDS = onnx.TensorProto.DataType
#: The types by name: which there are depends on the version of onnx.
_WIDER = {
    kind: "int8" if name.startswith("INT") else "uint8"
    for name, kind in _KINDS.items()
    if name in ("INT2", "UINT2", "INT4", "UINT4")
}


#: What is added to a number of four bits so that it is none below zero, by type.
_LIFTED = {_KINDS.INT4: 8, _KINDS.UINT4: 0}


def pack(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], folder: Path) -> None:
    """Makes tables of bytes, of two numbers each, in place of those of four bits whose rows
    GatherBlockQuantized takes. It reads both, and they are the same numbers."""
    tensors = {each.name: each for each in graph.initializer}
    # By the names of a table and of its zero points.
    packed: dict[tuple[str, str], list[onnx.TensorProto]] = {}
    for node in nodes:
        table = tensors.get(node.input[0]) if node.op_type == "GatherBlockQuantized" else None
        points = node.input[3] if len(node.input) > 3 else ""
        if table is None or table.data_type not in _LIFTED or (points and points not in tensors):
            continue
        form = {each.name: each.i for each in node.attribute}
        last = len(table.dims) - 1
        axes = form.get("gather_axis", 0), form.get("quantize_axis", 1) % (last + 1)
        if axes != (0, last) or table.dims[last] % 2:
            continue
        lift = _LIFTED[table.data_type]
        key = table.name, points
        if key not in packed:
            scales = [*table.dims[:last], -(-table.dims[last] // form.get("block_size", 128))]
            zero = _numbers(tensors[points], folder) if points else np.zeros(scales, "uint8")
            packed[key] = [
                numpy_helper.from_array(_bytes(numbers + lift), f"{table.name} {points} {kind}")
                for kind, numbers in (("bytes", _numbers(table, folder)), ("zeros", zero))
            ]
            graph.initializer.extend(packed[key])
        del node.input[3:]
        node.input[0] = packed[key][0].name
        node.input.append(packed[key][1].name)
    used = {name for node in nodes for name in node.input} | {each.name for each in graph.output}
    for tensor in [tensors[name] for name in {name for name, _ in packed} - used]:
        graph.initializer.remove(tensor)


def _numbers(tensor: onnx.TensorProto, folder: Path) -> NDArray[np.int8]:
    return np.asarray(numpy_helper.to_array(tensor, str(folder))).astype("int8")


def _bytes(numbers: NDArray[Any]) -> NDArray[np.uint8]:
    """Two numbers of the last axis in a byte, the first in the lower bits."""
    padding = [(0, 0)] * (numbers.ndim - 1) + [(0, numbers.shape[-1] % 2)]
    even: NDArray[np.uint8] = np.pad(numbers, padding).astype("uint8")
    return even[..., ::2] | even[..., 1::2] << np.uint8(4)


def widen(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto], folder: Path) -> None:
    """Makes them integers of 8 bits in place, where all that `nodes`, those of branches included,
    do with them is to make real numbers of them, which are the same then."""
    narrow = [tensor for tensor in graph.initializer if tensor.data_type in _WIDER]
    if not narrow:
        return
    elsewhere = {value.name for value in graph.output}
    for node in nodes:
        scale = slice(1, 2) if node.op_type == "DequantizeLinear" else slice(None)
        elsewhere.update(node.input[scale])
    for tensor in narrow:
        if tensor.name not in elsewhere:
            array = numpy_helper.to_array(tensor, str(folder))
            wide = np.asarray(array).astype(_WIDER[tensor.data_type])
            tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
