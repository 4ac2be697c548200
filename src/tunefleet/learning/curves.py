"""Searches of networks: what each of their tasks is known by after so many trials."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tunefleet.core.forecast import TaskCurve, running_best
from tunefleet.features.context import operator_class

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SearchOrigin:
    """Where a search comes from: the network, the class of the device (`cpu`, `gpu`), what searched
    (`tunefleet`, `auto_scheduler`, an AutoTVM tuner)."""

    network: str
    device: str
    method: str


@dataclass(frozen=True, slots=True)
class RunningTask:
    """The search of a task so far: `successes` of its trials did not fail. `halfway_s` was its best
    latency after half of its trials, None where it had none; nothing more is tried of one that is
    `exhausted`."""

    operator: str
    flops: float
    weight: int
    trials: int
    best_s: float
    halfway_s: float | None = None
    exhausted: bool = False
    successes: int = 1

    @classmethod
    def of(cls, curve: TaskCurve, *, exhausted: bool = False) -> RunningTask | None:
        """A task after all trials of a curve; None where none of them succeeded."""
        best, trials = list(running_best(curve.latencies_s)), len(curve.latencies_s)
        if not best or best[-1] is None:
            return None
        halfway_s = best[max(1, trials // 2) - 1]
        successes = sum(each is not None for each in curve.latencies_s)
        named = (operator_class(curve.operator), curve.flops, curve.weight)
        return cls(*named, trials, best[-1], halfway_s, exhausted, successes)


@dataclass(frozen=True)
class SearchedNetwork:
    """A search that ended. `order` has the task (its place in `tasks`) of each trial."""

    origin: SearchOrigin
    tasks: tuple[TaskCurve, ...]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, origin: SearchOrigin, tasks: Iterable[TaskCurve]) -> SearchedNetwork:
        """By the numbers of their trials."""
        tasks = tuple(tasks)
        places = np.repeat(np.arange(len(tasks)), [len(task.latencies_s) for task in tasks])
        numbers = [number for task in tasks for number in task.numbers]
        return cls(origin, tasks, places[np.argsort(numbers, kind="stable")])

    def counts(self, trials: int) -> NDArray[np.int64]:
        """How many of the first `trials` each task had."""
        return np.bincount(self.order[:trials], minlength=len(self.tasks))

    def running(self, trials: int) -> list[RunningTask | None]:
        """Each task as the search knew it by then; None of one without a success."""
        return [
            RunningTask.of(
                replace(task, latencies_s=task.latencies_s[:done]),
                exhausted=bool(done == len(task.latencies_s)),
            )
            for task, done in zip(self.tasks, self.counts(trials), strict=True)
        ]
