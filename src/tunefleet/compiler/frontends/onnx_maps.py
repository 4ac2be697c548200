"""Outputs that are maps, which converters of scikit-learn make of an array of probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from tunefleet.compiler.frontends.onnx_file import Array, OnnxFile, domain_of

_DOMAIN = "ai.onnx.ml"


def without_maps(file: OnnxFile) -> tuple[OnnxFile, tuple[str, ...]]:
    """The file with arrays in place of maps from classes to values, and what the user should know
    of it. Columns are in the order of the classes."""
    zips = {
        node.output[0]: node
        for node in file.model.graph.node
        if node.op_type == "ZipMap" and domain_of(node) == _DOMAIN
    }
    names = [value.name for value in file.model.graph.output if value.name in zips]
    if not names:
        return file, ()
    model = onnx.ModelProto()
    model.CopyFrom(file.model)
    kept = [node for node in model.graph.node if not (node.output and node.output[0] in zips)]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    for name in names:
        model.graph.node.append(
            onnx.helper.make_node("Identity", [zips[name].input[0]], [name], name=f"{name}/array")
        )
    for value in model.graph.output:
        if value.name in names:
            value.type.CopyFrom(
                onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [None, None])
            )
    notes = tuple(f"output {name} is an array with a column for each class" for name in names)
    return replace(file, model=model), notes


def as_array(output: Any) -> Array:
    """An output of ONNX Runtime, where it is a list of maps as an array of their values."""
    if isinstance(output, list) and output and isinstance(output[0], dict):
        rows: Sequence[list[float]] = [list(row.values()) for row in output]
        return np.array(rows, np.float32)
    return np.asarray(output)
