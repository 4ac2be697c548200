"""A file as right as it was, that ONNX Runtime computes to other last bits: how far those move its
outputs is how far they are determined at all."""

from __future__ import annotations

import math

import onnx
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

from tunefleet.compiler.frontends.onnx_file import all_nodes

_QUANTISED = ("DequantizeLinear", "QGemm", "QuantizeLinear")
#: Steps of the last bit that sums of hundreds of floats move by in another order.
_STEPS = 16


def without_rounding(model: onnx.ModelProto) -> None:
    """Products by weights of few bits, in place: their `accuracy_level` lets ONNX Runtime round
    what they read to 8 bits, and without it they read floats."""
    for node in all_nodes(model.graph):
        if node.op_type in ("MatMulNBits", "QMoE"):
            kept = [each for each in node.attribute if each.name != "accuracy_level"]
            del node.attribute[:]
            node.attribute.extend(kept)


def nudge(model: onnx.ModelProto) -> None:
    """Moves the weights in float32 that the file itself holds by their last bits, in place. A
    single number stays unless it is a scale: it may be an exponent, or what others are compared
    with."""
    from tunefleet.compiler.graph.sensitivity import nudged

    scales = _scales(model.graph)
    for tensor in model.graph.initializer:
        moves = math.prod(tensor.dims) > 1 or tensor.name in scales
        floats = tensor.data_type == onnx.TensorProto.FLOAT
        if moves and floats and not uses_external_data(tensor):
            (moved,) = nudged([numpy_helper.to_array(tensor)], "float32", _STEPS)
            tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))


def _scales(graph: onnx.GraphProto) -> set[str]:
    """What operators of quantised tensors alone read: all floats that are constants of theirs."""
    of_quantised, of_others = set[str](), set[str]()
    for node in all_nodes(graph):
        quantised = node.op_type in _QUANTISED or node.op_type.startswith("QLinear")
        (of_quantised if quantised else of_others).update(node.input)
    return of_quantised - of_others
