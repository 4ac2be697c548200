"""Curves of searches: the best latency of a task after so many trials.

What a search of a task still gains is read off those of the tasks most like it, from the same
number of trials on. A curve that is too short is read at fewer trials, in the same proportion: of
programs in random order, the expected gain depends on the proportion alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.core.forecast import TaskCurve, running_best
from tunefleet.features.context import operator_class

Vector = NDArray[np.float64]

#: Numbers of trials at which curves are kept: half octaves.
GRID = np.unique(np.round(2.0 ** (np.arange(27) / 2)))
_LOG_GRID = np.log(GRID)

#: How much less a curve counts (by the exponential function) that is of another operator, another
#: class of devices, or another method of search; for a factor of ten in FLOPs, for each unit of the
#: squared logarithm of the proportion at which it is read, and for each `_SLOPE` that it gained
#: more or less in the last doubling of trials.
_OPERATOR, _DEVICE, _METHOD, _FLOPS, _SHORTER, _SLOPED = 1.0, 0.7, 1.0, 0.4, 0.5, 1.0
_SLOPE, _MOST_SLOPED = 0.15, 2.0


@dataclass(frozen=True, slots=True)
class SearchOrigin:
    """Where a curve comes from: the network, the class of the device (`cpu`, `gpu`), what searched
    (`tunefleet`, `auto_scheduler`, an AutoTVM tuner)."""

    network: str
    device: str
    method: str


@dataclass(frozen=True, slots=True)
class RunningTask:
    """The search of a task so far. `halfway_s` was its best latency after half of its trials, None
    where it had none; nothing more is tried of one that is `exhausted`."""

    operator: str
    flops: float
    weight: int
    trials: int
    best_s: float
    halfway_s: float | None = None
    exhausted: bool = False

    @classmethod
    def of(cls, curve: TaskCurve, *, exhausted: bool = False) -> RunningTask | None:
        """A task after all trials of a curve; None where none of them succeeded."""
        best, trials = list(running_best(curve.latencies_s)), len(curve.latencies_s)
        if not best or best[-1] is None:
            return None
        halfway_s = best[max(1, trials // 2) - 1]
        named = (operator_class(curve.operator), curve.flops, curve.weight)
        return cls(*named, trials, best[-1], halfway_s, exhausted)


@dataclass(frozen=True)
class Curves:
    """A row for each search of a task: where it comes from, and the logarithm of its best latency
    (any unit) after each number of trials of `GRID`; NaN before its first success. The last value
    of a curve stands for all after its `length` in trials too."""

    origins: tuple[SearchOrigin, ...]
    operators: tuple[str, ...]
    flops: Vector
    length: Vector
    log_best: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.origins)

    @classmethod
    def of(cls, searches: Iterable[tuple[SearchOrigin, TaskCurve]]) -> Curves:
        """Of searches with at least one success."""
        kept = [(origin, curve) for origin, curve in searches if any(curve.latencies_s)]
        rows = [_on_grid(curve.latencies_s) for _, curve in kept]
        return cls(
            tuple(origin for origin, _ in kept),
            tuple(operator_class(curve.operator) for _, curve in kept),
            np.array([curve.flops for _, curve in kept], float),
            np.array([len(curve.latencies_s) for _, curve in kept], float),
            np.array(rows, float).reshape(len(rows), len(GRID)),
        )

    def __add__(self, other: Curves) -> Curves:
        return Curves(
            self.origins + other.origins,
            self.operators + other.operators,
            np.concatenate([self.flops, other.flops]),
            np.concatenate([self.length, other.length]),
            np.concatenate([self.log_best, other.log_best]),
        )

    def to_json(self) -> dict[str, Any]:
        """Curves with their values relative to the last, in thousandths."""
        relative = np.round(1000 * (self.log_best - self.log_best[:, -1:]))
        return {
            "origins": [[o.network, o.device, o.method] for o in self.origins],
            "operators": list(self.operators),
            "flops": [float(f"{flops:.3g}") for flops in self.flops],
            "length": [int(length) for length in self.length],
            "log_best": [_shortened(row) for row in relative],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Curves:
        rows = np.full((len(value["origins"]), len(GRID)), np.nan)
        for row, kept in zip(rows, value["log_best"], strict=True):
            row[:] = 0.0
            row[: len(kept)] = [np.nan if each is None else each / 1000 for each in kept]
        return cls(
            tuple(SearchOrigin(*each) for each in value["origins"]),
            tuple(value["operators"]),
            np.array(value["flops"], float),
            np.array(value["length"], float),
            rows,
        )

    def expected_ratio(self, task: RunningTask, origin: SearchOrigin, end_trials: float) -> float:
        """The latency of a task at `end_trials` over that now, on average over curves."""
        weight, ratio = self.remaining(task, origin, end_trials)
        total = float(weight.sum())
        return float(weight @ ratio) / total if total else 1.0

    def remaining(
        self, task: RunningTask, origin: SearchOrigin, end_trials: float
    ) -> tuple[Vector, Vector]:
        """For each curve its weight, and the latency that it had at `end_trials` over that at the
        task's present trials."""
        shorter = np.minimum(0.0, np.log(self.length / end_trials))
        now, end = math.log(task.trials) + shorter, math.log(end_trials) + shorter
        best = self._at(now)
        ratio = np.exp(self._at(end) - best)
        distance = _SHORTER * shorter**2 + self._unlike(task, origin)
        if task.trials > 1 and task.halfway_s is not None:
            gained = self._at(now - math.log(2)) - best
            unlike = np.abs(gained - math.log(task.halfway_s / task.best_s)) / _SLOPE
            known = np.where(np.isnan(unlike), 1.0, np.minimum(unlike, _MOST_SLOPED))
            distance = distance + _SLOPED * known
        weight = np.where((now >= 0) & np.isfinite(ratio), np.exp(-distance), 0.0)
        return weight, np.where(weight > 0, ratio, 1.0)

    def _unlike(self, task: RunningTask, origin: SearchOrigin) -> Vector:
        other = _OPERATOR * (self._operators != task.operator)
        other = other + _DEVICE * (self._devices != origin.device)
        other = other + _METHOD * (self._methods != origin.method)
        with np.errstate(divide="ignore", invalid="ignore"):
            flops = np.abs(np.log10(self.flops) - np.log10(task.flops))
        return np.asarray(other + _FLOPS * np.where(np.isfinite(flops), flops, 1.0))

    @cached_property
    def _operators(self) -> NDArray[np.str_]:
        return np.array(self.operators)

    @cached_property
    def _devices(self) -> NDArray[np.str_]:
        return np.array([each.device for each in self.origins])

    @cached_property
    def _methods(self) -> NDArray[np.str_]:
        return np.array([each.method for each in self.origins])

    def _at(self, log_trials: Vector) -> Vector:
        """The logarithm of each curve's best latency after so many trials."""
        place = np.clip(np.searchsorted(_LOG_GRID, log_trials, "right") - 1, 0, len(GRID) - 2)
        rows = np.arange(len(self))
        below, above = self.log_best[rows, place], self.log_best[rows, place + 1]
        step = (log_trials - _LOG_GRID[place]) / (_LOG_GRID[place + 1] - _LOG_GRID[place])
        return np.asarray(below + np.clip(step, 0.0, 1.0) * (above - below))


def _on_grid(latencies_s: Sequence[float | None]) -> Vector:
    best = np.minimum.accumulate([math.inf if each is None else each for each in latencies_s])
    places = np.minimum(GRID, len(best)).astype(int) - 1
    with np.errstate(divide="ignore"):
        logs = np.log(best[places])
    return np.where(np.isfinite(logs), logs, np.nan)


def _shortened(row: Vector) -> list[int | None]:
    """Without the end, where it changes no more."""
    last = int(np.flatnonzero(np.nan_to_num(row, nan=1.0))[-1:].sum()) + 1 if row.any() else 0
    return [None if math.isnan(each) else int(each) for each in row[:last]]
