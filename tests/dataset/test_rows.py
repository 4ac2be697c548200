from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunefleet.core.trial import ranking_latency
from tunefleet.dataset.rows import Rows

from .records import RECORD, Record, rows, table

RECORDS = st.lists(RECORD, min_size=1, max_size=30)


@settings(max_examples=40)
@given(RECORDS)
def test_programs_are_equal_where_task_and_primitives_are(records: list[Record]) -> None:
    found = rows(records)
    keys = [(r.device, r.target, r.workload, r.steps) for r in records]
    for i, first in enumerate(keys):
        for j, second in enumerate(keys):
            assert (first == second) == (found.program[i] == found.program[j])


@settings(max_examples=40)
@given(RECORDS, RECORDS)
def test_chunks_with_dictionaries_of_their_own_are_one_table(
    first: list[Record], second: list[Record]
) -> None:
    together = rows(first + second)
    apart = Rows.of(pa.concat_tables([table(first), table(second)]))
    np.testing.assert_array_equal(together.program, apart.program)
    np.testing.assert_array_equal(together.latency_s, apart.latency_s)


@settings(max_examples=40)
@given(RECORDS, st.data())
def test_taken_rows_are_those_of_a_table_of_them(
    records: list[Record], data: st.DataObject
) -> None:
    numbers = data.draw(st.lists(st.sampled_from(range(len(records))), unique=True))
    expected = rows([records[i] for i in numbers])
    found = rows(records).take(np.array(numbers, int))
    np.testing.assert_array_equal(expected.program, found.program)
    np.testing.assert_array_equal(expected.labels, found.labels)


def test_the_label_is_relative_to_the_best_of_the_task() -> None:
    found = rows(
        [
            Record(costs_s=(2.0, 4.0)),
            Record(costs_s=(1.5,)),
            Record(costs_s=(1e10,), error_no=7),
            Record(costs_s=(6.0,), workload="other"),
        ]
    )
    np.testing.assert_allclose(found.labels, [0.5, 1.0, 0.0, 1.0])


def test_what_has_no_positive_latency_has_failed() -> None:
    records = [
        Record(costs_s=()),
        Record(costs_s=(0.0,)),
        Record(costs_s=(float("nan"),)),
        Record(costs_s=(float("inf"),)),
        Record(costs_s=(0.25, 0.75)),
    ]
    np.testing.assert_array_equal(rows(records).labels, [0, 0, 0, 0, 1])


COSTS = st.lists(st.floats(1e-9, 1e3) | st.just(1e-6), max_size=12)


@settings(max_examples=60)
@given(st.lists(COSTS, min_size=1, max_size=8))
def test_many_repeats_have_the_latency_that_ranks_them_and_few_their_mean(
    costs: list[list[float]],
) -> None:
    expected = [
        ranking_latency(tuple(one)) if len(one) >= 5 else float(np.mean(one)) if one else np.inf
        for one in costs
    ]
    found = rows([Record(costs_s=tuple(one)) for one in costs])
    np.testing.assert_allclose(expected, np.asarray(found.latency_s), rtol=1e-9)


def test_repeats_that_were_disturbed_do_not_count() -> None:
    found = rows([Record(costs_s=(1.0, 1.0, 1.0, 9.0, 1.0)), Record(costs_s=(1.1,) * 5)])
    assert (found.latency_s[0], found.labels[1]) == (1.0, pytest.approx(1 / 1.1))


@pytest.mark.parametrize("wrong", [0.0, float("nan"), float("inf")])
def test_one_repeat_without_a_latency_among_many_is_a_failure(wrong: float) -> None:
    assert rows([Record(costs_s=(*[0.5] * 5, wrong, wrong))]).latency_s.tolist() == [np.inf]


def test_a_failure_does_not_blur_the_latencies_beside_it() -> None:
    found = rows([Record(costs_s=(1e-7,)), Record(costs_s=(1e10,), error_no=4)] * 3)
    np.testing.assert_allclose(found.latency_s[::2], 1e-7, rtol=1e-9)


def test_devices_make_different_tasks() -> None:
    found = rows([Record(device="a100"), Record(device="v100"), Record(device="a100")])
    assert found.task.tolist() == [0, 1, 0]


def test_an_empty_table_has_no_rows() -> None:
    found = Rows.of(table([]))
    assert (len(found), len(found.labels), len(found.program)) == (0, 0, 0)
