"""Inputs of an ONNX file that the user gives a value once and for all.

A sample rate that chooses a branch, a flag that switches a cache on: with its value known, what
hangs on it is folded away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import onnx

from tunefleet.compiler.frontends.onnx_file import Array, OnnxFile
from tunefleet.compiler.frontends.spec import listed, shown
from tunefleet.core.shapes import Constants
from tunefleet.errors import InputError


def with_constants(file: OnnxFile, constants: Constants) -> tuple[OnnxFile, dict[str, Array]]:
    """The file without these inputs, and their arrays by name. Raises InputError for names that it
    does not have and for values that do not fit."""
    if not constants:
        return file, {}
    what = shown(file.path)
    inputs = {value.name: value for value in file.inputs}
    for name, _ in constants:
        if name not in inputs:
            raise InputError(
                f"{what} has no input {name}", cure=f"its inputs: {listed(list(inputs))}"
            )
    arrays = {name: _array(inputs[name], values, what) for name, values in constants}
    model = onnx.ModelProto()
    model.CopyFrom(file.model)
    kept = [value for value in model.graph.input if value.name not in arrays]
    model.graph.ClearField("input")
    model.graph.input.extend(kept)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()
    )
    return replace(file, model=model), arrays


def _array(value: onnx.ValueInfoProto, values: Sequence[float], what: str) -> Array:
    tensor = value.type.tensor_type
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type or 1))
    if dtype.kind not in "biuf":
        raise InputError(
            f"{what}: input {value.name} holds {dtype}, which numbers cannot be",
            cure="leave out its --constant",
        )
    if not all(_is_held(number, dtype) for number in values):
        kind = "whole numbers" if dtype.kind in "iu" else "numbers"
        raise InputError(
            f"{what}: input {value.name} holds {dtype}, not {listed([str(v) for v in values])}",
            cure=f"give {kind} that it can hold",
        )
    shape = _shape(value, len(values))
    if shape is None:
        raise InputError(
            f"{what}: input {value.name} has {_told(value)}, {len(values)} values do not fit",
            cure="give one value for all of it, or a value for each element",
        )
    given = np.array(values).astype(dtype)
    return np.broadcast_to(given.reshape(shape if len(values) > 1 else ()), shape)


def _is_held(number: float, dtype: np.dtype[Any]) -> bool:
    """Whether a finite number is one of an integer type, or finite in a type of floats."""
    if dtype.kind == "b":
        return True
    if dtype.kind == "f":
        return abs(number) <= float(np.finfo(dtype).max)
    limits = np.iinfo(dtype)
    return number == int(number) and limits.min <= number <= limits.max


def _shape(value: onnx.ValueInfoProto, count: int) -> tuple[int, ...] | None:
    """The shape that so many values fill; a free extent of it is what they leave."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return (count,) if count > 1 else ()
    extents = [dim.dim_value or None for dim in tensor.shape.dim]
    known = prod(extent for extent in extents if extent is not None)
    free = [axis for axis, extent in enumerate(extents) if extent is None]
    for axis in free[:-1]:
        extents[axis] = 1
    if free:
        extents[free[-1]] = max(1, count // known)
    shape = tuple(extent or 1 for extent in extents)
    return shape if count in (1, prod(shape)) else None


def _told(value: onnx.ValueInfoProto) -> str:
    dims = value.type.tensor_type.shape.dim
    return f"the shape {','.join(d.dim_param or str(d.dim_value) for d in dims) or '()'}"
