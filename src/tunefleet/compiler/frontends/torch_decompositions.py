"""Operators that torch does not write in terms of others itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _addbmm(
    added: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    product = alpha * torch.bmm(left, right).sum(0)
    return product if beta == 0 else beta * added + product


def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, places = torch.sort(x, dim=dim, stable=True)
    kth = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return kth if keepdim else (kth[0].squeeze(dim), kth[1].squeeze(dim))


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """How networks of texts and images put the ones among the others."""
    shape = torch.broadcast_shapes(x.shape, mask.shape)  # type: ignore[no-untyped-call]
    x, mask = x.expand(shape), mask.expand(shape)
    # Each place that is taken over gets the next number, and others any, which is not used.
    places = (mask.flatten().to(torch.int64).cumsum(0) - 1).clamp(0, source.numel() - 1)
    return torch.where(mask, source.flatten().index_select(0, places).reshape(x.shape), x)


def _trilinear(
    one: Tensor,
    two: Tensor,
    three: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    def expanded(x: Tensor, axes: Sequence[int]) -> Tensor:
        for axis in sorted(axes):
            x = x.unsqueeze(axis)
        return x

    product = expanded(one, expand1) * expanded(two, expand2) * expanded(three, expand3)
    return product.sum(tuple(sumdim)) if sumdim else product


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.addbmm.default: _addbmm,
    aten.kthvalue.default: _kthvalue,
    aten.masked_scatter.default: _masked_scatter,
    aten._trilinear.default: _trilinear,
}
