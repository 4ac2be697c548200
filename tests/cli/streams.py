"""Made-up runs: the events that `tune` would tell, without it."""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console

from tunefleet.cli.live import LineView
from tunefleet.cli.overview import Overview, short_names
from tunefleet.cli.progress import Progress
from tunefleet.core.budget import Budget
from tunefleet.core.events import (
    Event,
    Forecasted,
    JobContinued,
    JobEnded,
    JobHeld,
    JobOpened,
    LaneUpdated,
    Note,
    PhaseStarted,
    Prepared,
    Progressed,
    ResourceBack,
    ResourceQuarantined,
    SearchEnded,
    StageAbandoned,
    StageCommitted,
    StageProgressed,
    StageStarted,
    StepCommitted,
)
from tunefleet.core.forecast import Quantiles, SearchForecast, SearchOutcome
from tunefleet.core.stage import (
    STAGE_ORDER,
    BuildResult,
    ProfileResult,
    SelectResult,
    StageKey,
    StageKind,
    StageResult,
    StageRun,
    UpdateResult,
)
from tunefleet.core.step import StepKey, StepKind, StepSpan
from tunefleet.core.task import Task, WeightedTask

JOB = "0123456789abcdef0123456789abcdef"
SECONDS = {"select": 4.0, "build": 6.0, "profile": 5.0, "update": 0.5}
RESULTS: dict[StageKind, StageResult] = {
    StageKind.SELECT: SelectResult(()),
    StageKind.BUILD: BuildResult(()),
    StageKind.PROFILE: ProfileResult(()),
    StageKind.UPDATE: UpdateResult(),
}
OPERATORS = ("conv2d+add+maximum", "conv2d+add", "matmul+add+gelu", "max_pool2d", "softmax")


def weighted(index: int) -> WeightedTask:
    name = OPERATORS[index % len(OPERATORS)]
    task = Task(f"{index:032x}", name, name.split("+")[0], "1x56x56x64", 2e8 / (1 + index), "{}")
    return WeightedTask(task, 1 + index % 3)


def lane(
    index: int, *, trials: int = 0, failed: int = 0, best_s: float | None = None
) -> LaneUpdated:
    return LaneUpdated(weighted(index), trials, failed, best_s, None)


def key(index: int, iteration: int, kind: StageKind, job: str = JOB) -> StageKey:
    return StageKey(job, f"{index:032x}", iteration, kind)


def finished(stage: StageKey, trials: int, elapsed_s: float) -> StageCommitted:
    run = StageRun(stage, RESULTS[StageKind(stage.kind)], 0.0, SECONDS[StageKind(stage.kind)])
    return StageCommitted(run, trials, elapsed_s)


def forecast(trials: int, end_trials: int, elapsed_s: float, now_s: float) -> SearchForecast:
    at_end = Quantiles(0.7 * now_s, 0.8 * now_s, 0.9 * now_s)
    end_s = elapsed_s * end_trials / trials
    target = {"target_s": 2e-3, "target_at_s": Quantiles(end_s, None, None), "probability": 0.2}
    known = (trials, elapsed_s, now_s, end_trials, end_s, at_end, (1.0, 0.1, 0.0, 0.0, 0.0), 99)
    return SearchForecast(*known, **target)  # type: ignore[arg-type]


def a_run(
    *,
    tasks: int = 24,
    rounds: int = 60,
    resumed: bool = False,
    steps: int = 4,
    job: str = JOB,
) -> Iterator[Event]:
    """Every kind of event, in the order of a network's run."""
    generator = random.Random(0)
    budget = Budget(trials=rounds * 16, seconds=1800.0, target_latency_s=2e-3)
    elapsed = 300.0 if resumed else 0.0
    yield JobOpened(job, resumed, budget, elapsed)
    for step_kind in (StepKind.IMPORT, StepKind.CHECK):
        yield PhaseStarted(step_kind)
        yield StepCommitted(StepSpan(StepKey("preparation", step_kind), "host0", 1, 0.0, 2.0))
    yield Prepared(218.0)
    yield PhaseStarted("tune")
    yield Note("28 records of earlier jobs are used")
    best: dict[int, float | None] = dict.fromkeys(range(tasks))
    trials = dict.fromkeys(range(tasks), 16 if resumed else 0)
    if resumed:
        best = {i: weighted(i).task.flops / 2e10 for i in range(tasks)}
    for index in range(tasks):
        yield lane(index, trials=trials[index], best_s=best[index])
    for number in range(rounds):
        index = number if number < tasks else generator.randrange(min(8, tasks))
        for kind in STAGE_ORDER:
            stage = key(index, number, kind, job)
            resource = "cpu0" if kind is StageKind.PROFILE else "host0"
            yield StageStarted(stage, resource)
            if number == 9 and kind is StageKind.BUILD:
                yield StageAbandoned(stage, "its worker is silent")
                yield StageStarted(stage, resource)
            for step in range(1, steps + 1):
                yield StageProgressed(stage, 16 * step // steps, 16)
            elapsed += SECONDS[kind]
            if kind is StageKind.PROFILE:
                trials[index] += 16
                fresh = weighted(index).task.flops / (generator.uniform(2, 10) * 1e10)
                best[index] = min(fresh, best[index] or fresh)
            yield finished(stage, sum(trials.values()), elapsed)
            yield lane(index, trials=trials[index], failed=number % 3, best_s=best[index])
        known = [each for each in best.values() if each is not None]
        if len(known) == tasks and number % 8 == 0:
            yield Forecasted(forecast(sum(trials.values()), rounds * 16, elapsed, sum(known)))
        if number == 5:
            yield Note("the reference kernel moved by 4.1 %, a batch is measured again", True)
        elif number == 7:
            yield ResourceQuarantined("cpu0", "the reference kernel moved by 40 %", 30.0)
            yield JobHeld("by its user", by_user=True)
            yield JobContinued()
            yield ResourceBack("cpu0")
    latency_s = sum(each or 0.0 for each in best.values())
    yield SearchEnded(SearchOutcome(sum(trials.values()), elapsed, latency_s, False))
    yield PhaseStarted("verify winners")
    for index in range(tasks):
        yield Progressed(index + 1, tasks, weighted(index).task.name)
    for phase in ("compile", "verify", "publish", "measure"):
        yield PhaseStarted(phase)
    yield JobEnded()


def several(count: int, *, rounds: int = 20) -> Iterator[tuple[int, Event]]:
    """The events of so many runs at once, each with its network's index, in a random order."""
    generator = random.Random(0)
    runs = [a_run(tasks=4, rounds=rounds, steps=1, job=f"{i:032x}") for i in range(count)]
    left = list(range(count))
    while left:
        index = generator.choice(left)
        event = next(runs[index], None)
        if event is None:
            left.remove(index)
        else:
            yield index, event


def after(events: Iterable[Event]) -> tuple[Progress, float]:
    """The progress of one network after events that come a second apart, and the time then."""
    progress, now = Progress("net"), 0.0
    for event in events:
        now += 1.0
        progress.absorb(event, now)
    return progress, now


def lines_of_all(
    networks: Sequence[str], events: Iterable[tuple[int, Event]], step_s: float
) -> list[str]:
    """What a log shows of events that come `step_s` apart."""
    file, now = io.StringIO(), [0.0]
    view = LineView(
        Overview(short_names(networks)), Console(file=file, width=80, markup=False), lambda: now[0]
    )
    for index, event in events:
        now[0] += step_s
        view.observer(index)(event)
    view.stop()
    return file.getvalue().splitlines()
