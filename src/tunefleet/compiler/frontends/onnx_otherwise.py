"""A file as right as it was, that ONNX Runtime computes to other last bits: how far those move its
outputs is how far they are determined at all."""

from __future__ import annotations

import onnx
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

from tunefleet.compiler.frontends.onnx_file import all_nodes


def without_rounding(model: onnx.ModelProto) -> None:
    """Products by weights of few bits, in place: their `accuracy_level` lets ONNX Runtime round
    what they read to 8 bits, and without it they read floats."""
    for node in all_nodes(model.graph):
        if node.op_type == "MatMulNBits":
            kept = [each for each in node.attribute if each.name != "accuracy_level"]
            del node.attribute[:]
            node.attribute.extend(kept)


def nudge(model: onnx.ModelProto) -> None:
    """Moves the float32 numbers that the file itself holds by their last bit, in place."""
    from tunefleet.compiler.graph.sensitivity import nudged

    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and not uses_external_data(tensor):
            (moved,) = nudged([numpy_helper.to_array(tensor)], "float32")
            tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
