"""Made-up runs: the events a session would send, without one."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tunefleet.core.budget import Budget
from tunefleet.core.events import (
    Event,
    JobOpened,
    LaneUpdated,
    Note,
    PhaseStarted,
    Progressed,
    StageFinished,
    StageProgressed,
    StageStarted,
)
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


def key(index: int, iteration: int, kind: StageKind) -> StageKey:
    return StageKey(JOB, f"{index:032x}", iteration, kind)


def finished(stage: StageKey, trials: int, elapsed_s: float) -> StageFinished:
    run = StageRun(stage, RESULTS[stage.kind], 0.0, SECONDS[stage.kind])
    return StageFinished(run, trials, elapsed_s)


def a_run(
    *, tasks: int = 24, rounds: int = 60, resumed: bool = False, steps: int = 4
) -> Iterator[Event]:
    """Every kind of event, in the order of a session."""
    generator = random.Random(0)
    for phase in ("import", "check"):
        yield PhaseStarted(phase)
    budget = Budget(trials=rounds * 16, seconds=1800.0, target_latency_s=2e-3)
    elapsed = 300.0 if resumed else 0.0
    yield JobOpened(JOB, resumed, budget, elapsed)
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
            stage = key(index, number, kind)
            yield StageStarted(stage)
            for step in range(1, steps + 1):
                yield StageProgressed(stage, 16 * step // steps, 16)
            elapsed += SECONDS[kind]
            if kind is StageKind.PROFILE:
                trials[index] += 16
                fresh = weighted(index).task.flops / (generator.uniform(2, 10) * 1e10)
                best[index] = min(fresh, best[index] or fresh)
            yield finished(stage, sum(trials.values()), elapsed)
            yield lane(index, trials=trials[index], failed=number % 3, best_s=best[index])
        if number == 5:
            yield Note("the reference kernel moved by 4.1 %, a batch is measured again", True)
    yield PhaseStarted("verify winners")
    for index in range(tasks):
        yield Progressed(index + 1, tasks, weighted(index).task.name)
    for phase in ("compile", "measure", "publish"):
        yield PhaseStarted(phase)
