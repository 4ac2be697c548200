"""A file as right as it was, that ONNX Runtime computes to other last bits: how far those move its
outputs is how far they are determined at all."""

from __future__ import annotations

import math

import onnx
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

from tunefleet.compiler.frontends.onnx_file import all_nodes

#: Steps of the last bit that sums of hundreds of floats move by in another order.
_STEPS = 16


def without_rounding(model: onnx.ModelProto) -> None:
    """Products by weights of few bits, in place: their `accuracy_level` lets ONNX Runtime round
    what they read to 8 bits, and without it they read floats."""
    for node in all_nodes(model.graph):
        if node.op_type == "MatMulNBits":
            kept = [each for each in node.attribute if each.name != "accuracy_level"]
            del node.attribute[:]
            node.attribute.extend(kept)


def nudge(model: onnx.ModelProto) -> None:
    """Moves the weights in float32 that the file itself holds by their last bits, in place. A
    single number stays: it may be an exponent, or what others are compared with."""
    from tunefleet.compiler.graph.sensitivity import nudged

    for tensor in model.graph.initializer:
        floats = tensor.data_type == onnx.TensorProto.FLOAT and math.prod(tensor.dims) > 1
        if floats and not uses_external_data(tensor):
            (moved,) = nudged([numpy_helper.to_array(tensor)], "float32", _STEPS)
            tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
