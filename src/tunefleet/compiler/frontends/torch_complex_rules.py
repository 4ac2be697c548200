"""How operators of complex numbers are written in pairs of real ones."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from tunefleet.compiler.frontends.torch_complex import (
    NoPairsError,
    Pairs,
    extents_of,
    rank_of,
)
from tunefleet.compiler.frontends.torch_fourier import FOURIER
from tunefleet.compiler.frontends.torch_nodes import argument

aten = torch.ops.aten

Rule = Callable[[Pairs, Node], Node]


def _same(p: Pairs, node: Node) -> Node:
    """What moves no numbers, or each for itself."""
    return p.of(node.args[0])


def _viewed(p: Pairs, node: Node) -> Node:
    """view_as_complex: pairs are what it is given."""
    (pairs,) = node.all_input_nodes
    return pairs


def _reshaped(p: Pairs, node: Node) -> Node:
    return p.call(aten.reshape.default, p.of(node.args[0]), [*extents_of(node), 2])


def _expanded(p: Pairs, node: Node) -> Node:
    return p.call(aten.expand.default, p.of(node.args[0]), [*extents_of(node), 2])


def _permuted(p: Pairs, node: Node) -> Node:
    order: Any = node.args[1]
    rank = len(order)
    return p.call(aten.permute.default, p.of(node.args[0]), [*(a % rank for a in order), rank])


def _along(target: Any, place: int = 1, default: Any = 0) -> Rule:
    """An operator along one axis, which counts from the start then."""

    def write(p: Pairs, node: Node) -> Node:
        x = p.of(node.args[0])
        axis = argument(node, place, "dim", default)
        args = [*node.args[1:place], axis % (rank_of(x) - 1), *node.args[place + 1 :]]
        return p.call(target, x, *args, **{k: v for k, v in node.kwargs.items() if k != "dim"})

    return write


def _unsqueezed(p: Pairs, node: Node) -> Node:
    x, axis = p.of(node.args[0]), int(argument(node, 1, "dim"))
    return p.call(aten.unsqueeze.default, x, axis % rank_of(x))


def _joined(p: Pairs, node: Node) -> Node:
    parts: Any = node.args[0]
    pairs = [p.of(part) for part in parts]
    axis = int(argument(node, 1, "dim", 0))
    return p.call(aten.cat.default, pairs, axis % (rank_of(pairs[0]) - 1))


def _over_axes(target: Any) -> Rule:
    """A reduction, or what turns axes round; without axes over all of them."""

    def write(p: Pairs, node: Node) -> Node:
        x = p.of(node.args[0])
        rank = rank_of(x) - 1
        axes = argument(node, 1, "dim")
        axes = [axes] if isinstance(axes, int) else axes or range(rank)
        rest = node.args[2:]
        return p.call(target, x, [a % rank for a in axes], *rest)

    return write


def _padded(p: Pairs, node: Node) -> Node:
    x, widths, value = p.of(node.args[0]), node.args[1], argument(node, 2, "value", 0)
    if value:
        raise NoPairsError
    amounts: Any = widths
    return p.call(aten.constant_pad_nd.default, x, [0, 0, *amounts], 0.0)


def _repeated(p: Pairs, node: Node) -> Node:
    times: Any = node.args[1]
    return p.call(aten.repeat.default, p.of(node.args[0]), [*times, 1])


def _looked_up(p: Pairs, node: Node) -> Node:
    return p.call(aten.index.Tensor, p.of(node.args[0]), node.args[1])


def _put(p: Pairs, node: Node) -> Node:
    x, values = p.of(node.args[0]), p.of(node.args[2])
    return p.call(aten.index_put.default, x, node.args[1], values, *node.args[3:])


def _gathered(p: Pairs, node: Node) -> Node:
    x, index = p.of(node.args[0]), node.args[2]
    axis = int(argument(node, 1, "dim")) % (rank_of(x) - 1)
    lifted = p.call(aten.unsqueeze.default, index, rank_of(x) - 1)
    both = p.call(aten.expand.default, lifted, [*extents_of(node), 2])
    return p.call(aten.gather.default, x, axis, both)


def _placed(target: Any) -> Rule:
    """slice_scatter and select_scatter: a part of one tensor is another."""

    def write(p: Pairs, node: Node) -> Node:
        x, source = p.of(node.args[0]), p.of(node.args[1])
        axis = int(argument(node, 2, "dim", 0)) % (rank_of(x) - 1)
        return p.call(target, x, source, axis, *node.args[3:])

    return write


def _chosen(p: Pairs, node: Node) -> Node:
    condition, *branches = node.args
    yes, no = (p.of(branch, node) for branch in branches)
    return p.call(aten.where.self, _spread(p, condition), yes, no)


def _spread(p: Pairs, x: Any) -> Node:
    """A real tensor beside both parts of pairs."""
    return p.call(aten.unsqueeze.default, x, rank_of(x))


def _cast(p: Pairs, node: Node) -> Node:
    """_to_copy: to another precision, to complex, or to real numbers."""
    given: Any = node.args[0]
    wanted = node.meta["val"].dtype
    real = wanted.to_real() if wanted.is_complex else wanted
    if not given.meta["val"].is_complex():
        cast = p.call(aten._to_copy.default, given, dtype=real)
        return p.of(cast)
    x = p.of(given) if wanted.is_complex else p.part(p.of(given), 0)
    return x if x.meta["val"].dtype is real else p.call(aten._to_copy.default, x, dtype=real)


def _sum(target: Any) -> Rule:
    def write(p: Pairs, node: Node) -> Node:
        left, right = (p.of(x, node) for x in node.args[:2])
        alpha = node.kwargs.get("alpha", 1)
        if isinstance(alpha, complex):
            raise NoPairsError
        return p.call(target, left, right, alpha=alpha)

    return write


def _is_complex(x: Any) -> bool:
    return isinstance(x, complex) or (isinstance(x, Node) and x.meta["val"].is_complex())


def _scaled(p: Pairs, x: Node, factor: Any, target: Any) -> Node:
    """Pairs times, or by, something real."""
    if isinstance(factor, Node):
        return p.call(target, x, _spread(p, factor))
    return p.call(target, x, factor)


def _product(p: Pairs, node: Node) -> Node:
    left, right = node.args[:2]
    for x, factor in ((left, right), (right, left)):
        if not _is_complex(factor):
            return _scaled(p, p.of(x, node), factor, aten.mul.Tensor)
    return p.product(p.of(left, node), p.of(right, node))


def _quotient(p: Pairs, node: Node) -> Node:
    left, right = node.args[:2]
    if not _is_complex(right):
        return _scaled(p, p.of(left, node), right, aten.div.Tensor)
    x = p.of(right, node)
    over = p.product(p.of(left, node), p.conjugate(x))
    return p.call(aten.div.Tensor, over, _spread(p, p.squares(x)))


def _reciprocal(p: Pairs, node: Node) -> Node:
    x = p.of(node.args[0])
    return p.call(aten.div.Tensor, p.conjugate(x), _spread(p, p.squares(x)))


def _length(p: Pairs, x: Node) -> Node:
    return p.call(aten.sqrt.default, p.squares(x))


def _direction(p: Pairs, x: Node) -> Node:
    return p.call(aten.atan2.default, p.part(x, 1), p.part(x, 0))


def _taken(p: Pairs, node: Node) -> Node:
    """One of several results."""
    return p.call(operator.getitem, p.of(node.args[0]), node.args[1])


def _turned(p: Pairs, length: Any, angle: Any) -> Node:
    """Pairs of lengths and angles."""
    parts = [p.call(turn, angle) for turn in (aten.cos.default, aten.sin.default)]
    return p.joined(*(p.times(length, part) for part in parts))


def _polar(p: Pairs, node: Node) -> Node:
    length, angle = node.args[:2]
    return _turned(p, length, angle)


def _exponential(p: Pairs, node: Node) -> Node:
    x = p.of(node.args[0])
    return _turned(p, p.call(aten.exp.default, p.part(x, 0)), p.part(x, 1))


def _of_parts(p: Pairs, node: Node) -> Node:
    real, imaginary = node.args[:2]
    return p.joined(*(_full(p, x, node) for x in (real, imaginary)))


def _full(p: Pairs, x: Any, node: Node) -> Node:
    extents = extents_of(node)
    return x if extents_of(x) == extents else p.call(aten.expand.default, x, extents)


def _power(p: Pairs, node: Node) -> Node:
    exponent: Any = node.args[1]
    return _raised(p, p.of(node.args[0]), exponent)


def _raised(p: Pairs, x: Node, exponent: Any) -> Node:
    """Pairs to a power of a real number, by their lengths and angles."""
    if isinstance(exponent, complex) or exponent <= 0:
        raise NoPairsError
    if exponent == 2:
        return p.product(x, x)
    length = p.call(aten.pow.Tensor_Scalar, _length(p, x), exponent)
    return _turned(p, length, p.call(aten.mul.Tensor, _direction(p, x), exponent))


def _logarithm(p: Pairs, node: Node) -> Node:
    x = p.of(node.args[0])
    return p.joined(p.call(aten.log.default, _length(p, x)), _direction(p, x))


def _copied(p: Pairs, node: Node) -> Node:
    """copy (what is overwritten, by what)."""
    extents = extents_of(node)
    return p.call(aten.expand.default, p.of(node.args[1], node), [*extents, 2])


def _matrix_product(p: Pairs, node: Node) -> Node:
    return _multiplied(p, *(p.of(x) for x in node.args[:2]))


def _multiplied(p: Pairs, left: Node, right: Node) -> Node:
    """One real product of twice as many rows: real parts and imaginary ones of the left, by pairs
    of the right."""
    *batch, rows, inner, _ = extents_of(left)
    columns, axes = extents_of(right)[-2], len(batch)
    order = [*range(axes), axes + 2, axes, axes + 1]
    tall = p.call(aten.permute.default, left, order)
    tall = p.call(aten.reshape.default, tall, [*batch, 2 * rows, inner])
    wide = p.call(aten.reshape.default, right, [*batch, inner, 2 * columns])
    target = aten.bmm.default if batch else aten.mm.default
    both = p.call(target, tall, wide)
    both = p.call(aten.reshape.default, both, [*batch, 2, rows, columns, 2])
    by_real, by_imaginary = (p.call(aten.select.int, both, axes, i) for i in (0, 1))
    real = p.call(aten.sub.Tensor, p.part(by_real, 0), p.part(by_imaginary, 1))
    imaginary = p.call(aten.add.Tensor, p.part(by_real, 1), p.part(by_imaginary, 0))
    return p.joined(real, imaginary)


def _added_product(p: Pairs, node: Node) -> Node:
    """addmm: what is added, and a product."""
    if node.kwargs.get("alpha", 1) != 1 or node.kwargs.get("beta", 1) != 1:
        raise NoPairsError
    bias, left, right = (p.of(x) for x in node.args[:3])
    return p.call(aten.add.Tensor, bias, _multiplied(p, left, right))


RULES: dict[Any, Rule] = {
    operator.getitem: _taken,
    **dict.fromkeys(
        (aten.alias.default, aten.clone.default, aten.detach.default, aten.lift_fresh_copy.default,
         aten.resolve_conj.default, aten.resolve_neg.default, aten.view_as_real.default),
        _same,
    ),
    **dict.fromkeys(
        (aten.reshape.default, aten.view.default, aten._unsafe_view.default,
         aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims),
        _reshaped,
    ),
    **dict.fromkeys(
        (aten.conj.default, aten._conj.default, aten._conj_physical.default,
         aten.conj_physical.default),
        lambda p, node: p.conjugate(p.of(node.args[0])),
    ),
    **dict.fromkeys((aten.mul.Tensor, aten.mul.Scalar), _product),
    **dict.fromkeys((aten.div.Tensor, aten.div.Scalar), _quotient),
    **dict.fromkeys((aten.mm.default, aten.bmm.default), _matrix_product),
    aten.abs.default: lambda p, node: _length(p, p.of(node.args[0])),
    aten.add.Tensor: _sum(aten.add.Tensor),
    aten.addmm.default: _added_product,
    aten.angle.default: lambda p, node: _direction(p, p.of(node.args[0])),
    aten.cat.default: _joined,
    aten.complex.default: _of_parts,
    aten.constant_pad_nd.default: _padded,
    aten.copy.default: _copied,
    aten.cumsum.default: _along(aten.cumsum.default),
    aten.exp.default: _exponential,
    aten.expand.default: _expanded,
    aten.flip.default: _over_axes(aten.flip.default),
    aten.gather.default: _gathered,
    aten.imag.default: lambda p, node: p.part(p.of(node.args[0]), 1),
    aten.index.Tensor: _looked_up,
    aten.index_put.default: _put,
    aten.index_select.default: _along(aten.index_select.default),
    aten.log.default: _logarithm,
    aten.mean.default: _over_axes(aten.mean.dim),
    aten.mean.dim: _over_axes(aten.mean.dim),
    aten.neg.default: lambda p, node: p.call(aten.neg.default, p.of(node.args[0])),
    aten.permute.default: _permuted,
    aten.polar.default: _polar,
    aten.pow.Tensor_Scalar: _power,
    aten.real.default: lambda p, node: p.part(p.of(node.args[0]), 0),
    aten.reciprocal.default: _reciprocal,
    aten.repeat.default: _repeated,
    aten.select.int: _along(aten.select.int),
    aten.select_scatter.default: _placed(aten.select_scatter.default),
    aten.slice.Tensor: _along(aten.slice.Tensor),
    aten.slice_scatter.default: _placed(aten.slice_scatter.default),
    aten.split_with_sizes.default: _along(aten.split_with_sizes.default, 2),
    aten.sqrt.default: lambda p, node: _raised(p, p.of(node.args[0]), 0.5),
    aten.sub.Tensor: _sum(aten.sub.Tensor),
    aten.sum.default: _over_axes(aten.sum.dim_IntList),
    aten.sum.dim_IntList: _over_axes(aten.sum.dim_IntList),
    aten.unsqueeze.default: _unsqueezed,
    aten.view_as_complex.default: _viewed,
    aten.where.self: _chosen,
    aten._to_copy.default: _cast,
    **FOURIER,
}  # fmt: skip
