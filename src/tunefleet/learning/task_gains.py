"""What the search of a task still gains, learned from earlier searches.

Trees (XGBoost) estimate its latency later over that now. What they know of a task beside its best
latencies: how many of its trials succeeded, and how far its FLOP/s are behind those of the fastest
task of the same search, of any operator and of its own. A task that is far behind one like it has
more to gain.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tunefleet.features.context import OPERATOR_CLASSES, operator_class
from tunefleet.learning.curves import Matrix, RunningTask, SearchedNetwork, SearchOrigin, Vector

#: Parts of its trials at which a search is learned from, and parts of what is left that it gained
#: in.
MOMENTS = (0.1, 0.2, 1 / 3, 0.5, 0.7)
REACHES = (0.25, 0.5, 1.0)
_METHODS = ("auto_scheduler", "droplet", "random", "tunefleet", "xgb")
#: The gain of a task is the mean of as many models, whose trees see other parts of the rows.
_SEEDS = 10
_ROUNDS = 100
_LEAST_RATIO = 0.05


class TaskSigns(NamedTuple):
    """Logarithms of trials later over trials now (`reach`), of `trials`, `successes` and `flops`;
    `last_half`: what it gained in the last half of its trials; logarithms of the FLOP/s of the
    fastest task over its own, of all tasks and of those of its operator. NaN: not known."""

    reach: float
    trials: float
    last_half: float
    succeeded: float
    successes: float
    operator: float
    is_cpu: float
    method: float
    flops: float
    behind_fastest: float
    behind_alike: float


#: In which direction the ratio goes with each sign: later trials lower it, as a faster task does.
_DIRECTIONS = TaskSigns(-1, 0, 0, 0, 1, 0, 0, 0, 0, -1, -1)


def allotted(tasks: Sequence[RunningTask], trials: float) -> list[float]:
    """How many of so many further trials of a network each task gets: equal parts."""
    searched = sum(not task.exhausted for task in tasks)
    return [0.0 if task.exhausted else trials / searched for task in tasks]


def task_signs(tasks: Sequence[RunningTask], origin: SearchOrigin, trials: float) -> Matrix:
    """A row for each task (tasks x signs), up to as many further trials of the network."""
    speeds = [math.log(t.flops / t.best_s) if t.flops > 0 else math.nan for t in tasks]
    kinds = [operator_class(task.operator) for task in tasks]
    method = _METHODS.index(origin.method) if origin.method in _METHODS else math.nan
    rows = []
    for task, kind, speed, more in zip(tasks, kinds, speeds, allotted(tasks, trials), strict=True):
        alike = [s for s, other in zip(speeds, kinds, strict=True) if other == kind]
        half = math.nan if task.halfway_s is None else math.log(task.halfway_s / task.best_s)
        rows.append(
            TaskSigns(
                reach=math.log((task.trials + more) / task.trials),
                trials=math.log(task.trials),
                last_half=half,
                succeeded=task.successes / task.trials,
                successes=math.log(task.successes),
                operator=OPERATOR_CLASSES.index(kind) if kind else math.nan,
                is_cpu=float(origin.device == "cpu"),
                method=method,
                flops=math.log(task.flops) if task.flops > 0 else math.nan,
                behind_fastest=_fastest(speeds) - speed,
                behind_alike=_fastest(alike) - speed,
            )
        )
    return np.array(rows, float).reshape(len(rows), len(TaskSigns._fields))


def _fastest(speeds: Sequence[float]) -> float:
    return max((each for each in speeds if not math.isnan(each)), default=math.nan)


@dataclass(frozen=True)
class TaskGains:
    """Rows of earlier searches: signs of a task, its latency later over that then, and its weight:
    its share of the network's latency, by the root of the number of searches of that network.
    `tasks` is how many tasks they are of."""

    signs: Matrix
    ratio: Vector
    weight: Vector
    tasks: int

    @classmethod
    def of(cls, searches: Sequence[SearchedNetwork]) -> TaskGains:
        often = Counter(search.origin.network for search in searches)
        rows, ratios, weights = [], [], []
        for search in searches:
            for signs, ratio, share in _rows(search):
                rows.append(signs)
                ratios.append(ratio)
                weights.append(share / math.sqrt(often[search.origin.network]))
        signs = np.array(rows, float).reshape(len(rows), len(TaskSigns._fields))
        tasks = sum(len(search.tasks) for search in searches)
        return cls(signs, np.array(ratios, float), np.array(weights, float), tasks)

    def __len__(self) -> int:
        return len(self.ratio)

    def __add__(self, other: TaskGains) -> TaskGains:
        return TaskGains(
            np.concatenate([self.signs, other.signs]),
            np.concatenate([self.ratio, other.ratio]),
            np.concatenate([self.weight, other.weight]),
            self.tasks + other.tasks,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "signs": [[_rounded(each) for each in row] for row in self.signs],
            "ratio": np.round(self.ratio, 4).tolist(),
            "weight": [float(f"{each:.3g}") for each in self.weight],
            "tasks": self.tasks,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TaskGains:
        signs = np.array(value["signs"], float).reshape(-1, len(TaskSigns._fields))
        ratio, weight = np.array(value["ratio"], float), np.array(value["weight"], float)
        return cls(signs, ratio, weight, value["tasks"])

    def expected_ratios(self, signs: Matrix) -> Vector:
        """The latency of each task (a row of signs) later over that now."""
        import xgboost

        rows = xgboost.DMatrix(signs, nthread=1)
        ratios = np.mean([model.predict(rows) for model in self._models], axis=0)
        going_on = signs[:, TaskSigns._fields.index("reach")] > 0
        return np.where(going_on, np.clip(ratios, _LEAST_RATIO, 1.0), 1.0)

    def prepare(self) -> None:
        """Train the models of `expected_ratios`, whose first call does it otherwise: about 1 s."""
        _ = self._models

    @cached_property
    def _models(self) -> list[Any]:
        import xgboost

        # A leaf has the weight of 20 rows at least, by their mean weight.
        weight = self.weight / self.weight.mean()
        rows = xgboost.DMatrix(self.signs, self.ratio, weight=weight, nthread=1)
        options = {
            "max_depth": 3, "eta": 0.1, "subsample": 0.5, "colsample_bytree": 0.5, "lambda": 10,
            "min_child_weight": 20, "monotone_constraints": str(tuple(_DIRECTIONS)), "nthread": 1,
        }  # fmt: skip
        return [xgboost.train({**options, "seed": n}, rows, _ROUNDS) for n in range(_SEEDS)]


def _rows(search: SearchedNetwork) -> Iterator[tuple[Vector, float, float]]:
    """Signs of a task, its latency later over that then, its share of the network's then."""
    whole = len(search.order)
    for moment in MOMENTS:
        trials = round(moment * whole)
        running = search.running(trials)
        known = [number for number, task in enumerate(running) if task is not None]
        tasks = [task for task in running if task is not None]
        total_s = sum(task.weight * task.best_s for task in tasks)
        for part in REACHES:
            end = trials + round(part * (whole - trials))
            later = search.running(end)
            signs = task_signs(tasks, search.origin, end - trials)
            for number, task, row in zip(known, tasks, signs, strict=True):
                then = later[number]
                if not task.exhausted and then is not None:
                    share = task.weight * task.best_s / total_s
                    yield row, then.best_s / task.best_s, share


def _rounded(value: float) -> float | None:
    """For a file: NaN is null."""
    return None if math.isnan(value) else round(value, 3)
