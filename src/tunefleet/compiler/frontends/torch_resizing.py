"""Conversions of torch operators that resize images, or read volumes between their elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch.fx import Node

from tunefleet.compiler.frontends.resampling import interpolation, resampled
from tunefleet.compiler.frontends.torch_nodes import argument
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax, topi = tvm.relax, tvm.topi
op = relax.op

#: Torch's coefficient of the cubic kernel, as that of Pillow, where it antialiases.
_CUBIC = -0.5


def _resize(method: str) -> Callable[[Any, Node], Any]:
    """upsample_*: torch's nearest takes the pixel at floor(i * scale)."""

    def convert(t: Any, node: Node) -> Any:
        x, size = t.env[node.args[0]], [int(e) for e in node.meta["val"].shape[2:]]
        if method == "nearest_neighbor":
            mode, rounding = "asymmetric", "floor"
        else:
            aligned = bool(argument(node, 2, "align_corners", False))
            mode, rounding = ("align_corners" if aligned else "half_pixel"), ""
        _check_scales(t, node, size)
        return t.block_builder.emit(
            op.image.resize2d(
                x,
                tuple(size),
                layout="NCHW",
                method=method,
                coordinate_transformation_mode=mode,
                rounding_method=rounding,
                cubic_alpha=-0.75,
            )
        )

    return convert


def _antialiased(cubic: float | None) -> Callable[[Any, Node], Any]:
    """TVM has no antialiasing, and resizes without. What lies beyond the ends has no weight."""

    def convert(t: Any, node: Node) -> Any:
        x, sizes = t.env[node.args[0]], [int(e) for e in node.meta["val"].shape[2:]]
        if argument(node, 2, "align_corners", False):
            raise NotImplementedError("antialiasing with aligned corners")
        _check_scales(t, node, sizes)
        for axis, after in enumerate(sizes, 2):
            before = int(x.ty.shape[axis])
            if before == after:
                continue
            positions = (np.arange(after) + 0.5) * before / after - 0.5
            narrow = min(after / before, 1.0)
            matrix = interpolation(positions, before, narrow, cubic, exclude=True)
            x = resampled(t.block_builder.emit, x, axis, matrix)
        return x

    return convert


def _check_scales(t: Any, node: Node, size: list[int]) -> None:
    """Raises where torch would use the scale itself, which is not the quotient of the sizes."""
    scales: list[Any] = [a for a in node.args[2:] if isinstance(a, float)]
    scales += [s for a in node.args[2:] if isinstance(a, tuple | list) for s in a]
    extents = [int(e) for e in t.env[node.args[0]].ty.shape][2:]
    for scale, before, after in zip(scales, extents, size, strict=False):
        if scale is not None and abs(before * scale - after) > 1e-6 * after:
            raise NotImplementedError(f"a scale of {scale} from {before} to {after} pixels")


#: By torch's numbers.
_BETWEEN = ("bilinear", "nearest", "bicubic")
_BEYOND = ("zeros", "border", "reflection")


def _looked_up(t: Any, node: Node) -> Any:
    """grid_sampler_2d and grid_sampler_3d (x, places, how between elements, what beyond the ends,
    aligned). TVM has no operator of the second, and the first takes two rows of places for their
    coordinates."""
    x, places = t.env[node.args[0]], t.env[node.args[1]]
    method, beyond = (int(argument(node, i, n)) for i, n in ((2, "mode"), (3, "padding_mode")))
    aligned = bool(argument(node, 4, "align_corners"))
    _, _, *extents = (int(extent) for extent in x.ty.shape)
    if _BEYOND[beyond] == "reflection" and 1 in extents:
        raise NotImplementedError("reflection at an axis of one element")
    last = len(extents) + 1
    layout = "NCHW" if len(extents) == 2 else "NCDHW"

    def compute(x: Any, places: Any) -> Any:
        moved = topi.transpose(places, [0, last, *range(1, last)])
        how = _BETWEEN[method]
        return topi.image.grid_sample(x, moved, how, layout, _BEYOND[beyond], aligned)

    return t.block_builder.emit_te(compute, x, places, primfunc_name_hint="grid_sample")


#: By the name of the torch operator.
RESIZING: dict[str, Callable[[Any, Node], Any]] = {
    "_upsample_bicubic2d_aa.default": _antialiased(_CUBIC),
    "_upsample_bilinear2d_aa.default": _antialiased(None),
    "grid_sampler_2d.default": _looked_up,
    "grid_sampler_3d.default": _looked_up,
    "upsample_bilinear2d.default": _resize("linear"),
    "upsample_bilinear2d.vec": _resize("linear"),
    "upsample_nearest2d.default": _resize("nearest_neighbor"),
    "upsample_nearest2d.vec": _resize("nearest_neighbor"),
}
