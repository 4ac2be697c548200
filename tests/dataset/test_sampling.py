from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunefleet.dataset import sampling
from tunefleet.dataset.rows import Codes, Rows
from tunefleet.dataset.sampling import SampleSize
from tunefleet.errors import InputError

from .records import RECORD, Record, regular, rows

Sampler = Callable[[Rows, SampleSize, int], Codes]


def vectors(found: Rows) -> np.ndarray:
    return np.random.default_rng(1).random((len(found), 5)).astype(np.float32)


def flops(found: Rows) -> dict[str, float]:
    return {name: 2.0**i for i, name in enumerate(found.workload.names)}


SAMPLERS: dict[str, Sampler] = {
    "uniform": sampling.uniform,
    "by_flops": lambda found, amount, seed: sampling.by_flops(found, amount, flops(found), seed),
    "diverse": lambda found, amount, seed: sampling.diverse(found, amount, vectors(found), seed),
}


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
class TestEverySampler:
    @settings(max_examples=40)
    @given(st.lists(RECORD, min_size=1, max_size=60), st.floats(0.01, 1.0), st.integers(1, 4))
    def test_keeps_valid_records_of_large_tasks_up_to_the_rate(
        self, sampler: Sampler, records: list[Record], rate: float, least: int
    ) -> None:
        found = rows(records)
        valid = np.bincount(found.task[found.valid], minlength=found.task.max() + 1)
        if valid.max() < least:
            with pytest.raises(InputError, match="valid records"):
                sampler(found, SampleSize(rate, least), 0)
            return
        kept = sampler(found, SampleSize(rate, least), 0)
        assert 1 <= len(kept) <= max(1, rate * len(found))
        assert (np.diff(kept) > 0).all()
        assert found.valid[kept].all()
        assert (valid[found.task[kept]] >= least).all()

    def test_is_the_same_for_the_same_seed(self, sampler: Sampler) -> None:
        found = regular()
        first, second = (sampler(found, SampleSize(0.3), 7) for _ in range(2))
        assert first.tolist() == second.tolist()

    def test_keeps_all_that_is_valid_at_most(self, sampler: Sampler) -> None:
        found = regular(failed=10)
        np.testing.assert_array_equal(
            np.flatnonzero(found.valid), sampler(found, SampleSize(1.0), 0)
        )

    def test_reaches_the_amount(self, sampler: Sampler) -> None:
        assert len(sampler(regular(tasks=6, programs=40), SampleSize(0.5), 0)) == 120


@pytest.mark.parametrize("rate", [0.0, -1.0, 1.1, float("nan")])
def test_a_rate_that_is_no_share_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match="sampling rate"):
        SampleSize(rate)


def test_a_least_number_of_no_records_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        SampleSize(0.5, 0)


def test_flops_keep_whole_tasks_but_the_last() -> None:
    found = regular(tasks=6, programs=40)
    kept = sampling.by_flops(found, SampleSize(0.55), flops(found))
    assert sorted(np.bincount(found.task[kept], minlength=6).tolist()) == [0, 0, 12, 40, 40, 40]


def test_a_task_is_drawn_with_the_probability_of_its_flops() -> None:
    found = regular(tasks=3, programs=20)
    weights = {"w0": 1.0, "w1": 2.0, "w2": 5.0}
    first = [
        found.task[sampling.by_flops(found, SampleSize(0.3), weights, seed)[0]]
        for seed in range(2000)
    ]
    shares = np.bincount(first, minlength=3) / len(first)
    np.testing.assert_allclose(shares, [1 / 8, 2 / 8, 5 / 8], atol=0.03)


def test_tasks_without_known_flops_are_never_drawn() -> None:
    found = regular(tasks=3, programs=20)
    kept = sampling.by_flops(found, SampleSize(1.0), {"w1": 10.0, "w2": 0.0})
    assert set(found.task[kept].tolist()) == {1}


def test_no_known_flops_are_refused() -> None:
    with pytest.raises(InputError, match="all 3 tasks are unknown"):
        sampling.by_flops(regular(tasks=3), SampleSize(0.5), {})


def test_diverse_takes_the_same_share_of_every_task() -> None:
    found = regular(tasks=4, programs=40)
    kept = sampling.diverse(found, SampleSize(0.25), vectors(found))
    assert np.bincount(found.task[kept]).tolist() == [10] * 4


def test_diverse_takes_one_of_each_crowd_before_a_second_one() -> None:
    found = regular(tasks=1, programs=30)
    crowd = np.repeat(np.eye(3, dtype=np.float32) * 9, 10, axis=0)
    noise = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32) / 100
    kept = sampling.diverse(found, SampleSize(0.1), (crowd + noise).astype(np.float32))
    assert sorted(k // 10 for k in kept) == [0, 1, 2]


def test_diverse_fills_up_with_equal_programs() -> None:
    found = regular(tasks=1, programs=20)
    assert len(sampling.diverse(found, SampleSize(0.9), np.zeros((20, 3), np.float32))) == 18


def test_diverse_needs_a_vector_of_each_record() -> None:
    with pytest.raises(ValueError, match="3 vectors"):
        sampling.diverse(regular(), SampleSize(0.5), np.zeros((3, 2), np.float32))
