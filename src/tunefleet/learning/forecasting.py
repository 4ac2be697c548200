"""Forecasts of a search from earlier ones, with bounds from the forecasts before it.

The gain of a network is the natural logarithm of what its tasks take together now over what they
take later. It is estimated from what its tasks gain as those of earlier searches did
(`task_gains`), and from what they gained in the last half of their trials. Forecasts of other
searches, with what came of them, say how much each counts (a least-squares fit of logarithms), how
far such estimates are off by the number of tasks and their trials (another), and how often by how
much: the errors, in these units, of forecasts that reached as far make the distribution of the gain
(split conformal prediction).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tunefleet.core.forecast import Quantiles, SearchForecast
from tunefleet.core.statistics import median
from tunefleet.learning.curves import Matrix, RunningTask, SearchOrigin, Vector
from tunefleet.learning.task_gains import TaskGains, task_signs

#: Added to a gain before its logarithm is taken, to an error before that of errors is.
_LEAST, _LEAST_ERROR = 0.01, 0.1
#: How alike forecasts have to be, in the logarithm of how far they reach.
_REACH = 1.0
#: Keeps fits from following few forecasts: of gains, and of errors.
_RIDGE, _RIDGE_ERRORS = 1e-3, 0.05
_LEVELS = (0.1, 0.5, 0.9)
_SHIPPED = Path(__file__).with_name("forecaster.json")
#: Later moments at which the gain is forecast to say when a target is reached.
_MOMENTS = 10


class Signs(NamedTuple):
    """`reach` is the logarithm of trials at the end over trials now, `expected` the gain by
    earlier searches, `last_half` what the tasks gained in the last half of their trials;
    `tasks` is their number, `trials` the median of their trials."""

    reach: float
    expected: float
    last_half: float
    tasks: float
    trials: float


class Pair(NamedTuple):
    """A forecast of the search of a network, and the gain that was seen."""

    network: str
    search: str
    signs: Signs
    seen: float


def signs_of(
    tasks: Sequence[RunningTask], trials: float, end_trials: float, expected: float
) -> Signs:
    known = [(task, task.halfway_s) for task in tasks if task.halfway_s is not None]
    before_s = sum(task.weight * halfway_s for task, halfway_s in known)
    now_s = sum(task.weight * task.best_s for task, _ in known)
    return Signs(
        reach=math.log(end_trials / trials),
        expected=expected,
        last_half=math.log(before_s / now_s) if known else 0.0,
        tasks=len(tasks),
        trials=median([float(task.trials) for task in tasks]),
    )


def network_gain(tasks: Sequence[RunningTask], ratios: Sequence[float]) -> float:
    """The gain where the latency of each task falls to so many times what it is."""
    now_s = [task.weight * task.best_s for task in tasks]
    end_s = sum(each * ratio for each, ratio in zip(now_s, ratios, strict=True))
    return max(0.0, math.log(sum(now_s) / end_s))


@dataclass(frozen=True)
class Calibration:
    """Forecasts with what came of them: rows of signs, and the gain of each. `weight`: a network
    counts by the root of its number of searches."""

    signs: Matrix
    seen: Vector
    weight: Vector

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> Calibration:
        searches: dict[str, set[str]] = {}
        counts: dict[str, int] = {}
        for pair in pairs:
            searches.setdefault(pair.network, set()).add(pair.search)
            counts[pair.network] = counts.get(pair.network, 0) + 1
        weight = [math.sqrt(len(searches[p.network])) / counts[p.network] for p in pairs]
        signs = np.array([pair.signs for pair in pairs], float).reshape(-1, len(Signs._fields))
        return cls(signs, np.array([pair.seen for pair in pairs], float), np.array(weight, float))

    def __len__(self) -> int:
        return len(self.seen)

    def __add__(self, other: Calibration) -> Calibration:
        return Calibration(
            np.concatenate([self.signs, other.signs]),
            np.concatenate([self.seen, other.seen]),
            np.concatenate([self.weight, other.weight]),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "signs": np.round(self.signs, 4).tolist(),
            "seen": np.round(self.seen, 4).tolist(),
            "weight": [float(f"{each:.3g}") for each in self.weight],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Calibration:
        signs = np.array(value["signs"], float).reshape(-1, len(Signs._fields))
        return cls(signs, np.array(value["seen"], float), np.array(value["weight"], float))

    def gains(self, signs: Signs) -> Gains:
        """The distribution of the gain of a forecast with these signs."""
        row = np.array([signs], float)
        estimate = float((_of_gain(row) @ self._fit)[0])
        spread = float(np.exp(_of_spread(row) @ self._spread_fit)[0])
        far = (_log_reach(self.signs) - _log_reach(row)) / _REACH
        order = np.argsort(self._errors)
        gain = np.exp(estimate + spread * self._errors[order]) - _LEAST
        return Gains(np.maximum(0.0, gain), (self.weight * np.exp(-0.5 * far**2))[order])

    @cached_property
    def _fit(self) -> Vector:
        return _fitted(_of_gain(self.signs), np.log(self.seen + _LEAST), self.weight, _RIDGE)

    @cached_property
    def _residuals(self) -> Vector:
        return np.asarray(np.log(self.seen + _LEAST) - _of_gain(self.signs) @ self._fit)

    @cached_property
    def _spread_fit(self) -> Vector:
        errors = np.log(np.abs(self._residuals) + _LEAST_ERROR)
        return _fitted(_of_spread(self.signs), errors, self.weight, _RIDGE_ERRORS)

    @cached_property
    def _errors(self) -> Vector:
        return np.asarray(self._residuals / np.exp(_of_spread(self.signs) @ self._spread_fit))


def _fitted(rows: Matrix, values: Vector, weight: Vector, ridge: float) -> Vector:
    """Coefficients of weighted least squares."""
    weighted = rows * weight[:, None]
    squares = rows.T @ weighted + ridge * np.eye(rows.shape[1])
    return np.asarray(np.linalg.solve(squares, weighted.T @ values), np.float64)


def _log_reach(signs: Matrix) -> Vector:
    return np.asarray(np.log(np.maximum(signs[:, 0], 1e-3)))


def _of_gain(signs: Matrix) -> Matrix:
    """What gains are estimated from."""
    return np.hstack([np.ones((len(signs), 1)), np.log(np.maximum(signs[:, 1:3], 0.0) + _LEAST)])


def _of_spread(signs: Matrix) -> Matrix:
    """What errors are estimated from."""
    return np.hstack([np.ones((len(signs), 1)), np.log(np.maximum(signs[:, 3:5], 1.0))])


@dataclass(frozen=True)
class Gains:
    """A distribution of gains, in ascending order, with their weights."""

    gain: Vector
    weight: Vector

    def quantiles(self, levels: Sequence[float] = _LEVELS) -> list[float]:
        share = np.cumsum(self.weight)
        middle = (share - 0.5 * self.weight) / share[-1]
        return [float(each) for each in np.interp(levels, middle, self.gain)]

    def probability(self, least: float) -> float:
        """That the gain is no less."""
        if least <= 0:
            return 1.0
        return float(self.weight[self.gain >= least].sum() / self.weight.sum())


@dataclass(frozen=True)
class Forecaster:
    """What tasks gained in earlier searches, and forecasts of them with what came of each."""

    gains: TaskGains
    calibration: Calibration

    @classmethod
    def shipped(cls) -> Forecaster:
        """Of the searches that datasets/README.md names; for a home without any."""
        value = json.loads(_SHIPPED.read_text(encoding="utf-8"))
        return cls(TaskGains.from_json(value["gains"]), Calibration.from_json(value["calibration"]))

    def forecast(
        self,
        tasks: Sequence[RunningTask],
        origin: SearchOrigin,
        *,
        trials: int,
        end_trials: int,
        elapsed_s: float,
        trial_s: float,
        target_s: float | None = None,
    ) -> SearchForecast | None:
        """Of a search after some of its trials, each of which takes `trial_s`; None where nothing
        is known to forecast it from."""
        if not (len(self.gains) and len(self.calibration) and 0 < trials < end_trials):
            return None
        now_s = sum(task.weight * task.best_s for task in tasks)
        signs = self._signs(tasks, origin, trials, end_trials)
        gains = self.calibration.gains(signs)
        # The largest gain is the lowest latency.
        high_s, middle_s, low_s = (now_s * math.exp(-gain) for gain in gains.quantiles())
        end_s = elapsed_s + (end_trials - trials) * trial_s
        known = SearchForecast(
            trials, elapsed_s, now_s, end_trials, end_s,
            Quantiles(low_s, middle_s, high_s), tuple(signs), self.gains.tasks,
        )  # fmt: skip
        if target_s is None:
            return known
        need, ends = math.log(now_s / target_s), np.linspace(trials, end_trials, _MOMENTS + 1)
        chances = [1.0 if need <= 0 else 0.0]
        for end in ends[1:]:
            later = self.calibration.gains(self._signs(tasks, origin, trials, float(end)))
            chances.append(max(chances[-1], later.probability(need)))
        at_s = (elapsed_s + (ends - trials) * trial_s).tolist()
        reached = Quantiles(*(_first(chances, at_s, level) for level in _LEVELS))
        return replace(known, target_s=target_s, target_at_s=reached, probability=chances[-1])

    def _signs(
        self, tasks: Sequence[RunningTask], origin: SearchOrigin, trials: int, end_trials: float
    ) -> Signs:
        rows = task_signs(tasks, origin, end_trials - trials)
        ratios = self.gains.expected_ratios(rows).tolist()
        return signs_of(tasks, trials, end_trials, network_gain(tasks, ratios))


def _first(chances: Sequence[float], at_s: Sequence[float], level: float) -> float | None:
    """When the chance is `level` first; None where it never is."""
    if chances[0] >= level:
        return at_s[0]
    for (before, after), (start_s, end_s) in zip(pairwise(chances), pairwise(at_s), strict=True):
        if after >= level:
            return start_s + (end_s - start_s) * (level - before) / (after - before)
    return None
