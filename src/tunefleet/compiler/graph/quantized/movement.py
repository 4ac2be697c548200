"""Operators that move integers, or choose among them, and leave their scale and zero point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.quantized.affine import Affine, Array, relax

#: What takes one tensor of whatever numbers first, and gives numbers of it.
_MOVES = frozenset(
    f"relax.{name}"
    for name in (
        "broadcast_to",
        "expand_dims",
        "flatten",
        "permute_dims",
        "repeat",
        "reshape",
        "squeeze",
        "strided_slice",
        "take",
        "tile",
        "nn.max_pool2d",
    )
)


def moved(name: str, call: Any, value: Affine, others: list[Any]) -> Any:
    """The call on the integers of its first argument, None where that is something else.

    A scale by an axis has to stay one: see `scales_moved`.
    """
    if name not in _MOVES or (not value.by_tensor and name not in _SCALES):
        return None
    return relax.Call(call.op, [value.q, *others], call.attrs, call.ty_args)


def scales_moved(name: str, call: Any, value: Affine) -> tuple[Array, Any] | None:
    """The scale and the zero point of what `moved` gives; None where they have no such form."""
    if value.by_tensor:
        return value.scale, value.zero
    if not value.known:
        return None
    scale, zero = (_SCALES[name](call, each) for each in (value.scale, value.zero))
    return None if scale is None or zero is None else (scale, zero)


def _permuted(call: Any, values: Array) -> Array | None:
    axes = call.attrs.axes
    return np.transpose(values, None if axes is None else ints(axes)) if values.ndim else values


def _reshaped(call: Any, values: Array) -> Array | None:
    """Where only extents of 1 come and go."""
    if not values.ndim:
        return values
    before, after = ints(call.args[0].ty.shape.values), ints(call.args[1].values)
    if [e for e in before if e != 1] != [e for e in after if e != 1]:
        return None
    kept = iter([e for e, whole in zip(values.shape, before, strict=True) if whole != 1])
    return values.reshape([1 if e == 1 else next(kept) for e in after])


def _expanded(call: Any, values: Array) -> Array | None:
    return np.expand_dims(values, tuple(ints(call.attrs.axis))) if values.ndim else values


_SCALES: dict[str, Callable[[Any, Array], Array | None]] = {
    "relax.expand_dims": _expanded,
    "relax.permute_dims": _permuted,
    "relax.reshape": _reshaped,
}
