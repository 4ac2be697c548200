"""Fourier transforms of torch as products with constant matrices.

A long transform whose length has two near factors is two shorter ones with a rotation between
(Cooley and Tukey, 1965).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from tunefleet.compiler.frontends.fourier import MOST_NUMBERS, transform_matrix
from tunefleet.compiler.frontends.torch_complex import NoPairsError, Pairs, extents_of

aten = torch.ops.aten

#: A transform of fewer numbers is one product.
_LEAST_DIVIDED = 256
#: One with a factor below this stays whole: the other is nearly as long.
_LEAST_FACTOR = 4


def _scale(kind: int, count: int) -> float:
    """What torch's number of a normalisation multiplies with."""
    return (1.0, 1 / math.sqrt(count), 1 / count)[kind]


def _matrix(p: Pairs, like: Node, kind: str, count: int, scale: float, parts: int) -> Node:
    """The matrix of a transform: `forward`, `backward`, or `real`, which is backward to real
    numbers, from the first half."""
    length = count // 2 + 1 if kind == "real" else count
    columns = count if kind == "real" else 2 * count
    if length * parts * columns > MOST_NUMBERS:
        raise NoPairsError

    def made() -> torch.Tensor:
        transforms: dict[str, Callable[[Any], Any]] = {
            "forward": np.fft.fft,
            "backward": lambda rows: np.fft.ifft(rows) * count,
            "real": lambda rows: np.fft.irfft(rows, count) * count,
        }
        return torch.from_numpy(transform_matrix(transforms[kind], length, parts) * scale)

    return p.constant((kind, count, scale, parts), made, like)


def _factor(count: int) -> int:
    """The largest factor up to the square root; 1 where the transform stays whole."""
    if count < _LEAST_DIVIDED:
        return 1
    factor = next(f for f in range(math.isqrt(count), 0, -1) if count % f == 0)
    return factor if factor >= _LEAST_FACTOR else 1


def _shaped(p: Pairs, x: Node, shape: list[int]) -> Node:
    return p.call(aten.reshape.default, x, shape)


def _by_rows(p: Pairs, rows: Node, kind: str, count: int, scale: float, parts: int) -> Node:
    """The transform of rows (rows, count * parts): pairs (rows, count, 2)."""
    (lead, _), inner = extents_of(rows), _factor(count)
    if inner == 1:
        matrix = _matrix(p, rows, kind, count, scale, parts)
        return _shaped(p, p.call(aten.mm.default, rows, matrix), [lead, count, 2])
    outer = count // inner
    sign = -1 if kind == "forward" else 1

    def rotation() -> torch.Tensor:
        turns = np.outer(np.arange(outer), np.arange(inner)) / count
        turned = np.exp(sign * 2j * np.pi * turns)
        return torch.from_numpy(np.stack([turned.real, turned.imag], -1))

    # Number j of the rows is j // outer along the first factor, j % outer along the second.
    split = p.call(
        aten.permute.default, _shaped(p, rows, [lead, inner, outer, parts]), [0, 2, 1, 3]
    )
    short = _by_rows(p, _shaped(p, split, [lead * outer, inner * parts]), kind, inner, 1.0, parts)
    short = _shaped(p, short, [lead, outer, inner, 2])
    turned = p.product(short, p.constant(("rotation", kind, count), rotation, rows))
    crossed = p.call(aten.permute.default, turned, [0, 2, 1, 3])
    long = _by_rows(p, _shaped(p, crossed, [lead * inner, outer * 2]), kind, outer, scale, 2)
    long = _shaped(p, long, [lead, inner, outer, 2])
    return _shaped(p, p.call(aten.permute.default, long, [0, 2, 1, 3]), [lead, count, 2])


def _along(
    p: Pairs, x: Node, axis: int, transform: Callable[[Node], Node], parts: int, results: int
) -> Node:
    """A transform of one axis of a tensor, with a last axis of two where `parts` is 2, and after
    it where `results` is."""
    extents = extents_of(x)
    rank = len(extents) - (parts == 2)
    order = [*(a for a in range(rank) if a != axis), axis]
    lead = [extents[a] for a in order[:-1]]
    moved = p.call(aten.permute.default, x, [*order, rank] if parts == 2 else order)
    rows = _shaped(p, moved, [math.prod(lead), extents[axis] * parts])
    made = transform(rows)
    made = _shaped(p, made, [*lead, *extents_of(made)[1:]])
    back = [order.index(a) for a in range(rank)]
    return p.call(aten.permute.default, made, [*back, rank] if results == 2 else back)


def _of_axes(p: Pairs, x: Node, axes: list[int], kind: str, scale: float) -> Node:
    """Pairs transformed along several axes."""
    for index, axis in enumerate(axes):
        count, last = extents_of(x)[axis], index == len(axes) - 1

        def transform(rows: Node, count: int = count, last: bool = last) -> Node:
            return _by_rows(p, rows, kind, count, scale if last else 1.0, 2)

        x = _along(p, x, axis, transform, 2, 2)
    return x


def _complex(p: Pairs, node: Node) -> Node:
    """_fft_c2c (x, axes, normalisation, forward)."""
    x = p.of(node.args[0])
    axes, kind, forward = _axes(node), int(node.args[2]), node.args[3]  # type: ignore[arg-type]
    scale = _scale(kind, math.prod(extents_of(x)[a] for a in axes))
    return _of_axes(p, x, axes, "forward" if forward else "backward", scale)


def _from_real(p: Pairs, node: Node) -> Node:
    """_fft_r2c (x, axes, normalisation, only the first half of the last axis)."""
    x: Any = node.args[0]
    axes, kind, half = _axes(node), int(node.args[2]), node.args[3]  # type: ignore[arg-type]
    scale = _scale(kind, math.prod(extents_of(x)[a] for a in axes))
    *others, last = axes
    count = extents_of(x)[last]

    def transform(rows: Node) -> Node:
        of_last = 1.0 if others else scale
        length = count // 2 + 1
        if not half:
            return _by_rows(p, rows, "forward", count, of_last, 1)
        if _factor(count) == 1:
            whole = _matrix(p, rows, "forward", count, of_last, 1)
            return _halved(p, rows, whole, length)
        made = _by_rows(p, rows, "forward", count, of_last, 1)
        return p.call(aten.slice.Tensor, made, 1, 0, length)

    return _of_axes(p, _along(p, x, last, transform, 1, 2), others, "forward", scale)


def _halved(p: Pairs, rows: Node, matrix: Node, length: int) -> Node:
    """The first numbers of a transform."""
    columns = p.call(aten.slice.Tensor, matrix, 1, 0, 2 * length)
    return _shaped(p, p.call(aten.mm.default, rows, columns), [extents_of(rows)[0], length, 2])


def _to_real(p: Pairs, node: Node) -> Node:
    """_fft_c2r (x, axes, normalisation, length of the last axis): of the first half of it."""
    x = p.of(node.args[0])
    axes, kind = _axes(node), int(node.args[2])  # type: ignore[arg-type]
    *others, last = axes
    count, length = extents_of(node)[last], extents_of(x)[last]
    if length != count // 2 + 1:
        raise NoPairsError
    scale = _scale(kind, count * math.prod(extents_of(x)[a] for a in others))
    x = _of_axes(p, x, others, "backward", 1.0)

    def transform(rows: Node) -> Node:
        if _factor(count) == 1:
            return p.call(aten.mm.default, rows, _matrix(p, rows, "real", count, scale, 2))
        whole = _completed(p, _shaped(p, rows, [extents_of(rows)[0], length, 2]), count)
        flat = _shaped(p, whole, [extents_of(rows)[0], 2 * count])
        return p.part(_by_rows(p, flat, "backward", count, scale, 2), 0)

    return _along(p, x, last, transform, 2, 1)


def _completed(p: Pairs, half: Node, count: int) -> Node:
    """Both halves of a spectrum of real numbers, whose ends have no imaginary part."""
    ends = [0, count // 2] if count % 2 == 0 else [0]

    def mask() -> torch.Tensor:
        kept = torch.ones(count // 2 + 1, 2)
        kept[ends, 1] = 0
        return kept

    half = p.times(half, p.constant(("ends", count), mask, half))
    inner = p.call(aten.slice.Tensor, half, 1, 1, (count + 1) // 2)
    mirrored = p.conjugate(p.call(aten.flip.default, inner, [1]))
    return p.call(aten.cat.default, [half, mirrored], 1)


def _axes(node: Node) -> list[int]:
    given: Any = node.args[1]
    rank = node.meta["val"].dim()
    return [int(axis) % rank for axis in given]


#: By torch's operator.
FOURIER: dict[Any, Callable[[Pairs, Node], Node]] = {
    aten._fft_c2c.default: _complex,
    aten._fft_c2r.default: _to_real,
    aten._fft_r2c.default: _from_real,
}
