"""Forecasts of searches whose truth is known: programs drawn at random."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tunefleet.core.forecast import (
    Quantiles,
    SearchForecast,
    SearchOutcome,
    TaskCurve,
    judge_forecast,
)
from tunefleet.learning.curves import RunningTask, SearchedNetwork, SearchOrigin
from tunefleet.learning.forecasting import (
    Calibration,
    Forecaster,
    Pair,
    Signs,
    network_gain,
    signs_of,
)
from tunefleet.learning.task_gains import TaskGains, TaskSigns, allotted, task_signs

TRIALS = 96
ORIGIN = SearchOrigin("net", "cpu", "tunefleet")


def curve(generator: np.random.Generator, trials: int = TRIALS) -> TaskCurve:
    """A tenth of the trials fail."""
    latencies = 1e-3 * np.exp(generator.normal(0, 0.5, trials))
    failed = generator.random(trials) < 0.1
    failed[0] = False
    known = [None if bad else float(s) for s, bad in zip(latencies, failed, strict=True)]
    return TaskCurve("t", "conv2d", float(10 ** generator.uniform(6, 9)), 1, tuple(known))


def cut(task: TaskCurve, trials: int) -> RunningTask:
    known = RunningTask.of(replace(task, latencies_s=task.latencies_s[:trials]))
    assert known is not None
    return known


def end_s(task: TaskCurve) -> float:
    return min(each for each in task.latencies_s if each is not None)


def searched(*tasks: TaskCurve, network: str = "net") -> SearchedNetwork:
    """A trial of each task in turn."""
    order = np.tile(np.arange(len(tasks)), len(tasks[0].latencies_s))
    return SearchedNetwork(replace(ORIGIN, network=network), tasks, order)


def pairs_of(network: str, tasks: list[TaskCurve], gains: TaskGains) -> list[Pair]:
    found = []
    for trials in (16, 32, 48):
        running = [cut(task, trials) for task in tasks]
        whole, now = len(tasks) * TRIALS, len(tasks) * trials
        ratios = gains.expected_ratios(task_signs(running, ORIGIN, whole - now)).tolist()
        signs = signs_of(running, now, whole, network_gain(running, ratios))
        seen = math.log(sum(t.best_s for t in running) / sum(map(end_s, tasks)))
        found.append(Pair(network, network, signs, seen))
    return found


def forecaster(generator: np.random.Generator, searches: int = 20) -> Forecaster:
    """From as many searches to learn from as to calibrate with."""
    learned = [searched(*(curve(generator) for _ in range(3))) for _ in range(searches)]
    gains = TaskGains.of(learned)
    pairs = []
    for number in range(searches):
        pairs += pairs_of(f"net{number}", [curve(generator) for _ in range(3)], gains)
    return Forecaster(gains, Calibration.of(pairs))


def forecast(
    made: Forecaster, tasks: list[TaskCurve], trials: int, **more: float
) -> SearchForecast:
    known = made.forecast(
        [cut(task, trials) for task in tasks],
        ORIGIN,
        trials=len(tasks) * trials,
        end_trials=len(tasks) * TRIALS,
        elapsed_s=10.0,
        trial_s=0.5,
        **more,
    )
    assert known is not None
    return known


@pytest.mark.parametrize("seed", [0, 1])
def test_bounds_hold_as_often_as_they_say(seed: int) -> None:
    generator = np.random.default_rng(seed)
    made = forecaster(generator)
    held = []
    for _ in range(120):
        tasks = [curve(generator) for _ in range(3)]
        at_end = forecast(made, tasks, 24).latency_s
        held.append(at_end.covers(sum(map(end_s, tasks))))
    assert 0.7 <= np.mean(held) <= 0.9


def test_a_probability_is_as_often_right_as_it_says() -> None:
    generator = np.random.default_rng(2)
    made = forecaster(generator)
    said, met = [], []
    for _ in range(120):
        tasks = [curve(generator) for _ in range(3)]
        now_s = sum(cut(task, 24).best_s for task in tasks)
        said.append(forecast(made, tasks, 24, target_s=0.85 * now_s).probability)
        met.append(sum(map(end_s, tasks)) <= 0.85 * now_s)
    assert np.mean(met) == pytest.approx(np.mean(np.array(said, float)), abs=0.12)


def test_a_lower_target_is_reached_later_and_less_likely() -> None:
    generator = np.random.default_rng(3)
    made = forecaster(generator)
    tasks = [curve(generator) for _ in range(3)]
    now_s = forecast(made, tasks, 24).now_s
    known = [forecast(made, tasks, 24, target_s=part * now_s) for part in (1.0, 0.95, 0.5)]
    assert known[0].target_at_s == Quantiles(10.0, 10.0, 10.0)
    assert known[0].probability == 1.0
    assert known[1].probability is not None
    assert 0 < known[1].probability < 1
    assert known[1].end_s == 10.0 + 0.5 * 3 * (TRIALS - 24)
    assert known[2].target_at_s == Quantiles(None, None, None)
    assert known[2].is_unlikely
    assert not known[0].is_unlikely


def going(latency: Callable[[int], float], operator: str, flops: float = 1e9) -> TaskCurve:
    return TaskCurve("t", operator, flops, 1, tuple(1e-3 * latency(n) for n in range(64)))


def ratio_of(gains: TaskGains, *tasks: TaskCurve, trials: int = 16) -> float:
    """What is expected of the first of the tasks at its end."""
    running = [cut(task, trials) for task in tasks]
    more = len(tasks) * (len(tasks[0].latencies_s) - trials)
    return float(gains.expected_ratios(task_signs(running, ORIGIN, more))[0])


def test_a_task_is_expected_to_go_on_like_those_alike() -> None:
    flat = going(lambda _: 1.0, "conv2d")
    falling = going(lambda n: 1 / (1 + n), "matmul")
    gains = TaskGains.of([searched(task) for task in (flat, falling) for _ in range(10)])
    assert ratio_of(gains, flat) > 0.9
    assert ratio_of(gains, falling) < 0.4


def test_more_is_expected_of_a_task_behind_one_like_it() -> None:
    """Tasks stand still until two thirds of their trials; then the slow one is as fast as the
    other, which its own trials do not tell."""
    fast = going(lambda _: 1.0, "conv2d")
    slow = going(lambda n: 4.0 if n < 40 else 1.0, "conv2d")
    gains = TaskGains.of([searched(slow, fast) for _ in range(20)])
    assert ratio_of(gains, slow, fast) < 0.7
    assert ratio_of(gains, fast, slow) > 0.85
    assert ratio_of(gains, slow, going(lambda _: 1.0, "matmul", 1e3)) > 0.85


def test_signs_that_are_not_known_are_none() -> None:
    task = RunningTask("", 0.0, 1, 1, 1e-3)
    (row,) = task_signs([task], SearchOrigin("net", "gpu", "unheard of"), 7)
    known = [name for name, each in zip(TaskSigns._fields, row, strict=True) if not np.isnan(each)]
    assert known == ["reach", "trials", "succeeded", "successes", "is_cpu"]
    assert math.log(8) == pytest.approx(row[0])


def test_a_search_is_known_by_the_numbers_of_its_trials() -> None:
    first = TaskCurve("a", "conv2d", 1e9, 1, (None, 2e-3, 1e-3), (0, 1, 4))
    second = TaskCurve("b", "conv2d", 1e9, 1, (3e-3, 4e-3), (2, 3))
    search = SearchedNetwork.of(ORIGIN, [first, second])
    assert search.order.tolist() == [0, 0, 1, 1, 0]
    assert search.running(1) == [None, None]
    later, other = search.running(3)
    assert RunningTask("convolution", 1e9, 1, 2, 2e-3, successes=1) == later
    assert RunningTask("convolution", 1e9, 1, 1, 3e-3, 3e-3) == other


def test_nothing_more_is_expected_of_a_task_that_is_exhausted() -> None:
    done = RunningTask("product", 1e9, 1, 4, 1e-3, exhausted=True)
    going_on = replace(done, exhausted=False)
    assert allotted([done, going_on], 30.0) == [0.0, 30.0]
    assert allotted([done, done], 30.0) == [0.0, 0.0]


def test_a_task_without_a_success_is_not_known() -> None:
    assert RunningTask.of(TaskCurve("a", "conv2d", 1e9, 1, (None, None))) is None


def test_what_was_learned_reads_back() -> None:
    made = forecaster(np.random.default_rng(4), searches=3)
    text = json.dumps({"g": made.gains.to_json(), "p": made.calibration.to_json()})
    value = json.loads(text)
    read = Forecaster(TaskGains.from_json(value["g"]), Calibration.from_json(value["p"]))
    tasks = [curve(np.random.default_rng(5)) for _ in range(3)]
    expected, known = forecast(made, tasks, 24), forecast(read, tasks, 24)
    assert expected.latency_s.p50 == pytest.approx(known.latency_s.p50, rel=0.01)
    assert expected.latency_s.p90 == pytest.approx(known.latency_s.p90, rel=0.01)


def test_without_earlier_searches_nothing_is_forecast() -> None:
    empty = Forecaster(TaskGains.of([]), Calibration.of([]))
    tasks = [cut(curve(np.random.default_rng(0)), 8)]
    known = empty.forecast(tasks, ORIGIN, trials=8, end_trials=64, elapsed_s=1.0, trial_s=0.1)
    assert known is None


def test_what_is_shipped_forecasts_a_first_search() -> None:
    tasks = [curve(np.random.default_rng(seed)) for seed in range(3)]
    known = forecast(Forecaster.shipped(), tasks, 24)
    assert known.latency_s.p10 is not None
    assert known.latency_s.p90 is not None
    assert 0 < known.latency_s.p10 < known.latency_s.p90 <= known.now_s


MADE = SearchForecast(
    16, 10.0, 2.0, 64, 40.0, Quantiles(1.0, 1.2, 1.5), Signs(1.4, 0.2, 0.1, 3, 16), 9,
    target_s=1.3, target_at_s=Quantiles(20.0, 30.0, None), probability=0.6,
)  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "held", "time_held"),
    [
        (None, None, None),
        (SearchOutcome(64, 40.0, 1.4, False), True, True),
        (SearchOutcome(64, 40.0, 1.6, False), False, True),
        (SearchOutcome(40, 25.0, 1.3, True), None, True),
        (SearchOutcome(20, 12.0, 1.3, True), None, False),
        (SearchOutcome(20, 12.0, 1.9, False), None, None),
    ],
)
def test_a_forecast_is_judged_by_what_came(
    outcome: SearchOutcome | None, held: bool | None, time_held: bool | None
) -> None:
    judged = judge_forecast(MADE, outcome)
    assert (held, time_held) == (judged.held, judged.time_held)
