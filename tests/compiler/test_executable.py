"""Networks measured in turn, by timers that tell what they are asked to."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from tunefleet.core.step import Rounds
from tunefleet.core.trial import Timer

pytestmark = pytest.mark.tvm

_ROUNDS = Rounds(12)


def _timer(seconds: Iterator[float], spent: list[float]) -> Timer:
    def run(repeats: int) -> list[float]:
        times = [next(seconds) for _ in range(repeats)]
        spent.extend(times)
        return times

    return run


def _slower(quick_runs: int, quick_s: float, slow_s: float) -> Iterator[float]:
    for _ in range(quick_runs):
        yield quick_s
    while True:
        yield slow_s


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    from tunefleet.compiler.code import executable

    monkeypatch.setattr(executable, "_PAUSE_S", 0.0)


@pytest.mark.parametrize(
    ("run_s", "turn_s"), [(2**-6, _ROUNDS.turn_s), (2**-7, 2**-3), (2**-10, 0.1)]
)
def test_a_turn_has_enough_runs_and_is_no_longer_than_a_round(run_s: float, turn_s: float) -> None:
    from tunefleet.compiler.code.executable import time_interleaved

    spent: list[float] = []
    (rounds,) = time_interleaved([_timer(_slower(0, 0, run_s), spent)], _ROUNDS)
    assert rounds == [run_s] * _ROUNDS.number
    # Two to estimate it, and one before each round.
    assert len(spent) == 2 + _ROUNDS.number * (1 + math.ceil(turn_s / run_s))


def test_what_takes_hundreds_of_times_as_long_as_estimated_has_fewer_runs() -> None:
    """Threads that wait for each other on cores that others use."""
    from tunefleet.compiler.code.executable import time_interleaved

    spent: list[float] = []
    (rounds,) = time_interleaved([_timer(_slower(2, 0.0003, 0.1), spent)], _ROUNDS)
    assert pytest.approx(rounds) == [0.1] * _ROUNDS.number
    assert sum(spent) < _ROUNDS.number * 10 * _ROUNDS.turn_s


def test_what_is_far_slower_than_the_fastest_has_few_rounds() -> None:
    from tunefleet.compiler.code.executable import time_interleaved

    timers = [_timer(_slower(0, 0, run_s), []) for run_s in (2**-7, 1.0)]
    fast, slow = time_interleaved(timers, _ROUNDS)
    assert (fast, slow) == ([2**-7] * _ROUNDS.number, [1.0] * 3)


def test_rounds_end_where_they_take_longer_than_a_comparison_may() -> None:
    from tunefleet.compiler.code.executable import time_interleaved

    spent: list[float] = []
    (rounds,) = time_interleaved([_timer(_slower(2, 0.01, 11.0), spent)], _ROUNDS)
    assert rounds == [11.0] * 3
