"""Resize and Upsample in the forms that TVM makes wrong or refuses.

TVM takes the ratio of the extents for the scale, which is another number where the scaled extent
is rounded, and has no antialiasing. Here every axis is resized by itself, with the positions and
weights of its taps computed at import.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.frontends.onnx_operators.delegate import by_tvm
from tunefleet.compiler.frontends.onnx_operators.node import (
    Node,
    Rule,
    constant,
    dtype_of,
    relax,
    shape_of,
)
from tunefleet.compiler.frontends.resampling import interpolation, resampled

op = relax.op

#: What TVM converts rightly where the scale is the ratio of the extents.
_SOUND = frozenset({"half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"})


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis from `before` to `after` elements; `start` and `end` are its region."""

    index: int
    before: int
    after: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    @property
    def exact(self) -> bool:
        return math.isclose(self.before * self.scale, self.after, rel_tol=1e-6)


def _resize(node: Node) -> Any:
    attrs = node.attrs
    mode = attrs.get("mode", "nearest")
    # Before opset 11, positions were the output's divided by the scale.
    old = node.opset < 11
    place = attrs.get("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    nearest = attrs.get("nearest_mode", "floor" if old else "round_prefer_floor")
    axes = [axis for axis in _axes(node, old) if axis.before != axis.after or not axis.exact]
    antialias = bool(attrs.get("antialias", 0))
    if not old and _is_sound(node, axes, place, mode, antialias):
        return _without_empty_scales(node)
    if place == "align_corners" and not all(axis.exact for axis in axes):
        raise NotImplementedError("Resize that aligns corners, with a rounded extent")
    if mode != "nearest" and not node.dtype(0).startswith("float"):
        raise NotImplementedError(f"Resize of {node.dtype(0)} with interpolation")
    x = node.inputs[0]
    outside = []
    for axis in axes:
        positions = _positions(axis, place)
        if mode == "nearest":
            indices = _rounded(positions, nearest).clip(0, axis.before - 1)
            x = node.emit(op.take(x, constant(indices, "int64"), axis.index, mode="clip"))
        else:
            matrix = _weights(node, axis, positions, mode, antialias)
            x = resampled(node.emit, x, axis.index, matrix)
        if place == "tf_crop_and_resize":
            outside.append((axis, (positions < 0) | (positions > axis.before - 1)))
    return _extrapolated(node, x, outside)


def _is_sound(node: Node, axes: list[_Axis], place: str, mode: str, antialias: bool) -> bool:
    """Whether TVM's own conversion gives the right numbers."""
    rank = len(node.shape(0))
    return (
        place in _SOUND
        and not antialias
        and rank in ((4,) if mode == "cubic" else (3, 4, 5))
        and all(axis.index >= 2 and axis.exact and axis.after > 1 for axis in axes)
        and not node.attrs.get("axes")
        and node.attrs.get("keep_aspect_ratio_policy", "stretch") == "stretch"
    )


def _without_empty_scales(node: Node) -> Any:
    """TVM's own. It takes scales without elements, which stand before sizes in files of older
    opsets, for scales."""
    scales = node.constant(2)
    if scales is None or scales.size or not node.has(3):
        return NotImplemented
    return by_tvm(node, "Resize", [node.inputs[0], None, None, node.inputs[3]], node.attrs)


def _axes(node: Node, old: bool) -> list[_Axis]:
    shape = node.shape(0)
    indices = [int(i) % len(shape) for i in node.attrs.get("axes") or range(len(shape))]
    before = [shape[i] for i in indices]
    regions = None if old else node.constant(1)
    scales = node.constant(1 if old else 2)
    if old and scales is None:
        scales = np.array(node.attrs["scales"], "float32")
    sizes = None if old else node.constant(3)
    if scales is not None and scales.size:
        after = [math.floor(n * s) for n, s in zip(before, scales.astype("float32"), strict=True)]
        ratios = [float(s) for s in scales]
    elif sizes is not None:
        after, ratios = _by_sizes(before, [int(s) for s in sizes], node)
    else:
        raise NotImplementedError("Resize without sizes")
    if regions is None or regions.size != 2 * len(indices):
        regions = np.repeat([0.0, 1.0], len(indices))
    starts, ends = np.split(regions, 2)
    return [
        _Axis(*values)
        for values in zip(
            indices, before, after, ratios, map(float, starts), map(float, ends), strict=True
        )
    ]


def _by_sizes(before: list[int], sizes: list[int], node: Node) -> tuple[list[int], list[float]]:
    """Extents and scales, of one ratio where the node keeps it."""
    ratios = [size / n for size, n in zip(sizes, before, strict=True)]
    policy = node.attrs.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return sizes, ratios
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [math.floor(n * ratio + 0.5) for n in before], [ratio] * len(before)


def _positions(axis: _Axis, place: str) -> NDArray[Any]:
    """Where each output lies among the inputs, in the arithmetic of ONNX Runtime."""
    x, scale = np.arange(axis.after, dtype="float32"), np.float32(axis.scale)
    half = np.float32(0.5)
    if place == "asymmetric":
        return x / scale
    if place == "half_pixel_symmetric":
        shift = axis.before / 2 * (1 - axis.after / (axis.scale * axis.before))
        return (x + half) / scale - half + np.float32(shift)
    if place == "align_corners":
        return x * np.float32(axis.before - 1) / np.float32(max(axis.after - 1, 1))
    if place == "tf_crop_and_resize":
        start, end, last = map(np.float32, (axis.start, axis.end, axis.before - 1))
        if axis.after == 1:
            return x + half * (start + end) * last
        # In this order: the last bit decides whether an output at the border is inside.
        return start * last + x * (end - start) * last / np.float32(axis.after - 1)
    if place == "pytorch_half_pixel" and axis.after == 1:
        return x
    if place in ("half_pixel", "pytorch_half_pixel"):
        return (x + half) / scale - half
    raise NotImplementedError(f"Resize with coordinates {place}")


def _rounded(positions: NDArray[Any], mode: str) -> NDArray[np.int64]:
    half = np.float32(0.5)
    rounded: dict[str, Callable[[], NDArray[Any]]] = {
        "round_prefer_floor": lambda: np.ceil(positions - half),
        "round_prefer_ceil": lambda: np.floor(positions + half),
        "floor": lambda: np.floor(positions),
        "ceil": lambda: np.ceil(positions),
    }
    return rounded[mode]().astype(np.int64)


def _weights(
    node: Node, axis: _Axis, positions: NDArray[Any], mode: str, antialias: bool
) -> NDArray[np.float64]:
    return interpolation(
        positions,
        axis.before,
        min(axis.scale, 1.0) if antialias else 1.0,
        float(node.attrs.get("cubic_coeff_a", -0.75)) if mode == "cubic" else None,
        exclude=bool(node.attrs.get("exclude_outside", 0)),
    )


def _extrapolated(node: Node, x: Any, outside: list[tuple[_Axis, NDArray[Any]]]) -> Any:
    """`x` with the node's value at positions outside of the input."""
    if not any(mask.any() for _, mask in outside):
        return x
    shape, dtype = shape_of(x), dtype_of(x)
    mask = np.zeros(shape, "bool")
    for axis, beyond in outside:
        mask |= beyond.reshape([-1 if i == axis.index else 1 for i in range(len(shape))])
    value = constant(node.attrs.get("extrapolation_value", 0.0), dtype)
    return op.where(constant(mask, "bool"), value, x)


RULES: dict[tuple[str, str], Rule] = {("", "Resize"): _resize, ("", "Upsample"): _resize}
