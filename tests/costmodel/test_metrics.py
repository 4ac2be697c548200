from __future__ import annotations

import itertools
import time
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.costmodel import metrics

#: Few distinct values: ties everywhere. Zero is a failed trial.
VALUES = st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0])
PAIRS = st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=40).map(
    lambda rows: np.array(rows, dtype=float)
)


def tenset_pairwise(labels: np.ndarray, scores: np.ndarray) -> float:
    """`metric_pairwise_comp_accuracy` of TenSet as it defines it, in O(n^2)."""
    n = len(labels)
    if n <= 1:
        return 0.5
    predicted = (scores[:, None] - scores[None, :]) > 0
    true = (labels[:, None] - labels[None, :]) > 0
    correct = np.triu(~np.logical_xor(predicted, true), k=1).sum()
    return float(correct / (n * (n - 1) / 2))


@given(PAIRS)
def test_pairwise_accuracy_is_tensets_with_its_ties(rows: np.ndarray) -> None:
    labels, scores = rows.T
    expected = tenset_pairwise(labels, scores)
    assert expected == pytest.approx(metrics.pairwise_accuracy(labels, scores))


@given(st.permutations(range(37)))
def test_inversions_are_counted(order: list[int]) -> None:
    expected = sum(a > b for a, b in itertools.combinations(order, 2))
    assert expected == metrics.inversions(np.array(order))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8, 9])
def test_a_reversed_order_inverts_every_pair(n: int) -> None:
    assert n * (n - 1) // 2 == metrics.inversions(np.arange(n)[::-1])


def test_pairwise_accuracy_of_many_records_is_quick() -> None:
    generator = np.random.default_rng(0)
    labels, scores = generator.random((2, 200_000))
    started = time.process_time()
    assert metrics.pairwise_accuracy(labels, scores) == pytest.approx(0.5, abs=0.01)
    assert time.process_time() - started < 2


def test_pairwise_accuracy_of_a_perfect_and_of_the_opposite_ranking() -> None:
    labels = np.array([0.1, 1.0, 0.5, 0.0])
    assert metrics.pairwise_accuracy(labels, 3 * labels) == 1.0
    assert metrics.pairwise_accuracy(labels, -labels) == 0.0


def test_the_last_of_equal_scores_wins() -> None:
    labels = np.array([1.0, 0.5, 0.25])
    assert metrics.top_k(labels, np.zeros(3), 1) == 0.25
    assert metrics.top_k(labels, np.zeros(3), 2) == 0.5


def test_errors_count_failed_trials() -> None:
    labels, scores = np.array([0.5, 1.0, 0.0]), np.array([0.25, 1.0, 0.5])
    assert metrics.rmse(labels, scores) == pytest.approx(np.sqrt((0.25**2 + 0.5**2) / 3))
    assert metrics.r_squared(labels, scores) == pytest.approx(1 - (0.25**2 + 0.5**2) / 0.5)


def test_r_squared_of_equal_labels_is_one() -> None:
    assert metrics.r_squared(np.ones(3), np.zeros(3)) == 1.0


def test_tasks_count_by_their_records_and_not_without_a_valid_trial() -> None:
    labels = np.array([1.0, 0.5, 1.0, 0.5, 0.25, 0.0])
    scores = np.array([0.0, 1.0, 3.0, 2.0, 1.0, 9.0])
    tasks = np.array([7, 7, 2, 2, 2, 5])
    found = metrics.ranking(labels, scores, tasks)
    assert found.pca == pytest.approx((2 * 0.0 + 3 * 1.0) / 5)
    assert found.top1 == pytest.approx((2 * 0.5 + 3 * 1.0) / 5)


def test_nothing_valid_is_refused() -> None:
    with pytest.raises(ValueError, match="no task"):
        metrics.ranking(np.zeros(2), np.zeros(2), np.zeros(2, int))


@given(st.lists(VALUES, min_size=2, max_size=5).filter(any), st.sampled_from(range(1, 6)))
def test_expected_best_is_the_mean_over_every_choice(values: list[float], k: int) -> None:
    k = min(k, len(values))
    choices = [max(c) for c in itertools.combinations(values, k)]
    assert np.mean(choices) == pytest.approx(metrics.expected_best(np.array(values), k)[-1])


def test_the_random_baseline_is_the_mean_of_random_scores() -> None:
    generator = np.random.default_rng(3)
    tasks = np.repeat([0, 1, 2], [3, 9, 30])
    labels = generator.random(len(tasks)) ** 3
    drawn = [
        astuple(metrics.ranking(labels, generator.random(len(tasks)), tasks)) for _ in range(800)
    ]
    expected = astuple(metrics.random_ranking(labels, tasks))
    assert expected == pytest.approx(np.mean(drawn, axis=0), abs=0.015)
