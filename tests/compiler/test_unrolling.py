"""Loops whose copies would gather too much stay loops."""

from __future__ import annotations

from typing import Any

import pytest

from tunefleet.compiler.toolchain import load_tvm

pytestmark = pytest.mark.tvm

_STEPS = "pragma_auto_unroll_max_step"


def _copy(turned: bool, rows: int, columns: int) -> Any:
    """A copy of 4 tables, `turned` or not."""
    te = load_tvm().te
    table = te.placeholder((4, columns, rows) if turned else (4, rows, columns), name="table")

    def element(n: Any, i: Any, j: Any) -> Any:
        return table[n, j, i] if turned else table[n, i, j]

    return te.create_prim_func([table, te.compute((4, rows, columns), element, name="copy")])


def _scheduled(function: Any) -> Any:
    """With rows as vectors, and the loops of a table unrolled, up to 64 of them."""
    schedule = load_tvm().s_tir.Schedule(function)
    outer, _, lanes = schedule.get_loops(schedule.get_sblock("copy"))
    schedule.parallel(outer)
    schedule.vectorize(lanes)
    schedule.annotate(outer, _STEPS, 64)
    schedule.annotate(outer, "pragma_unroll_explicit", 1)
    return schedule


@pytest.mark.parametrize(
    ("turned", "rows", "columns", "unrolled"),
    [
        (True, 64, 64, False),
        (True, 64, 16, False),
        (True, 8, 64, True),  # 512 elements
        (True, 128, 64, True),  # more rows than are unrolled
        (False, 64, 64, True),
    ],
)
def test_loops_that_gather_much_stay(turned: bool, rows: int, columns: int, unrolled: bool) -> None:
    from tunefleet.compiler.code.unrolling import keep_rolled

    schedule = _scheduled(_copy(turned, rows, columns))
    keep_rolled(schedule)
    outer, *_ = schedule.get_loops(schedule.get_sblock("copy"))
    assert (_STEPS in schedule.get(outer).annotations) == unrolled


def test_a_trace_with_loops_that_stay_can_be_applied_again() -> None:
    from tunefleet.compiler.code.unrolling import keep_rolled

    tvm = load_tvm()
    copy = _copy(turned=True, rows=64, columns=64)
    schedule, fresh = _scheduled(copy), tvm.s_tir.Schedule(copy)
    keep_rolled(schedule)
    schedule.trace.apply_to_schedule(fresh, remove_postproc=False)
    tvm.ir.assert_structural_equal(fresh.mod, schedule.mod)
