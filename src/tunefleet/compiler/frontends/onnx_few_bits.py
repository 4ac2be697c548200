"""Weights of four bits or fewer, of which NumPy and TVM have no numbers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

_KINDS = onnx.TensorProto.DataType
#: The types by name: which there are depends on the version of onnx.
_WIDER = {
    kind: "int8" if name.startswith("INT") else "uint8"
    for name, kind in _KINDS.items()
    if name in ("INT2", "UINT2", "INT4", "UINT4")
}


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
