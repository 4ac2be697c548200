from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunefleet.costmodel._ranking_loss import LOSSES, ranking_loss
from tunefleet.costmodel._torch import torch

pytestmark = pytest.mark.frameworks

#: One task: (score, label) of each program. Scores differ: ranks of equal ones are anyone's.
LIST = st.lists(
    st.tuples(st.integers(-40, 40), st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])),
    min_size=1, max_size=6, unique_by=lambda pair: pair[0],
).map(lambda pairs: [(score / 8, label) for score, label in pairs])  # fmt: skip
LISTS = st.lists(LIST, min_size=1, max_size=3)

Pairs = list[tuple[float, float]]


def behind(better: float, worse: float) -> float:
    return math.log1p(math.exp(worse - better))


def gap(lists: list[Pairs]) -> float:
    pairs = [(l1 - l2, behind(s1, s2)) for one in lists for s1, l1 in one for s2, l2 in one
             if l1 > l2]  # fmt: skip
    weight = sum(w for w, _ in pairs)
    return sum(w * loss for w, loss in pairs) / weight if weight else 0.0


def ndcg(labels: list[float]) -> float:
    """Discounted gain of labels in the order they are ranked in, over that of the best order."""

    def dcg(ranked: list[float]) -> float:
        return sum((2**label - 1) / math.log2(rank + 2) for rank, label in enumerate(ranked))

    best = dcg(sorted(labels, reverse=True))
    return dcg(labels) / best if best else 0.0


def lambdarank(lists: list[Pairs]) -> float:
    total = 0.0
    for one in lists:
        ranked = sorted(one, reverse=True)
        labels = [label for _, label in ranked]
        for i, (s1, l1) in enumerate(ranked):
            for j, (s2, l2) in enumerate(ranked):
                if l1 > l2:
                    exchanged = labels.copy()
                    exchanged[i], exchanged[j] = l2, l1
                    total += abs(ndcg(labels) - ndcg(exchanged)) * behind(s1, s2)
    return total / len(lists) / math.log(2)


def found(name: str, lists: list[Pairs], filling: float = 0.0) -> float:
    shape = (len(lists), max(map(len, lists)))
    scores, labels = np.full(shape, filling), np.full(shape, filling)
    mask = np.zeros(shape, bool)
    for i, one in enumerate(lists):
        scores[i, : len(one)], labels[i, : len(one)] = zip(*one, strict=True)
        mask[i, : len(one)] = True
    return float(ranking_loss(name, *map(torch().from_numpy, (scores, labels, mask))))


@settings(max_examples=60, deadline=None)
@given(LISTS)
def test_the_gap_loss_weighs_pairs_by_their_labels(lists: list[Pairs]) -> None:
    assert gap(lists) == pytest.approx(found("gap", lists), rel=1e-6, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(LISTS)
def test_lambdarank_weighs_pairs_by_the_change_of_ndcg(lists: list[Pairs]) -> None:
    assert lambdarank(lists) == pytest.approx(found("lambdarank", lists), rel=1e-6, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(LISTS, st.sampled_from(LOSSES))
def test_what_is_beyond_a_list_does_not_count(lists: list[Pairs], name: str) -> None:
    assert found(name, lists) == pytest.approx(found(name, lists, filling=0.75), abs=1e-9)


@pytest.mark.parametrize("name", LOSSES)
def test_the_right_order_costs_less(name: str) -> None:
    right, wrong = [[(2.0, 1.0), (-1.0, 0.5)]], [[(-1.0, 1.0), (2.0, 0.5)]]
    assert found(name, right) < found(name, wrong)
