"""Losses of lists: each is the measured programs of one task, never a mixture of tasks.

    gap          logistic loss of each pair, weighted by how far its labels are apart
    lambdarank   weighted by how much exchanging the two would change the NDCG of the list
                 (Burges 2010; Wang et al., LambdaLoss, CIKM 2018; gains 2^label - 1)

A batch is a table (lists, longest) with a mask.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tunefleet.costmodel._torch import torch

if TYPE_CHECKING:
    from torch import Tensor

LOSSES = ("gap", "lambdarank")


def ranking_loss(name: str, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Mean over lists for `lambdarank`, over pairs by weight for `gap`; all (lists, longest)."""
    behind = torch().nn.functional.softplus(scores[:, None, :] - scores[:, :, None])
    better = labels[:, :, None] > labels[:, None, :]
    pairs = better & mask[:, :, None] & mask[:, None, :]
    if name == "gap":
        weight = (labels[:, :, None] - labels[:, None, :]) * pairs
        loss: Tensor = (weight * behind).sum() / weight.sum().clamp(min=1e-6)
        return loss
    weight = _exchange(scores, labels, mask) * pairs
    loss = (weight * behind).sum((1, 2)).mean() / math.log(2)
    return loss


def _exchange(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Change of each list's NDCG when two programs exchange their ranks."""
    known = scores.detach().masked_fill(~mask, -math.inf)
    rank = known.argsort(dim=1, descending=True).argsort(dim=1) + 1
    discount = 1.0 / torch().log2(1.0 + rank)
    gain = (2.0**labels - 1.0) * mask
    places = torch().arange(2, labels.shape[1] + 2, device=labels.device)
    ideal = (gain.sort(dim=1, descending=True)[0] / torch().log2(places)).sum(1, keepdim=True)
    gain = gain / ideal.clamp(min=1e-6)
    by_rank = (discount[:, :, None] - discount[:, None, :]).abs()
    exchanged: Tensor = by_rank * (gain[:, :, None] - gain[:, None, :]).abs()
    return exchanged
