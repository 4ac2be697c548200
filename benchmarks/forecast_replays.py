"""Searches stopped after parts of their trials: what each method expects of them, from searches of
other networks alone, and the distributions of the gain that follow. `forecasts.py` judges them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recorded_searches import RecordedSearch
from tunefleet.learning.curves import Matrix, RunningTask, Vector
from tunefleet.learning.forecasting import Calibration, Gains, Signs, network_gain, signs_of
from tunefleet.learning.forecasting import Pair as Known
from tunefleet.learning.task_gains import MOMENTS, REACHES, TaskGains, task_signs

OURS, NONE, MEAN, SLOPE = "learned gains", "no further gain", "mean curve", "last slope"


@dataclass(frozen=True)
class Pair:
    """A forecast of a search: made at a part of its trials, up to a part of what is left. `rows`
    are the signs of its tasks."""

    search: int
    network: int
    moment: float
    part: float
    signs: Signs
    tasks: Sequence[RunningTask]
    rows: Matrix
    slope: float
    seen: float


@dataclass(frozen=True)
class Bench:
    """The recorded searches with all pairs, networks by number."""

    searches: Sequence[RecordedSearch]
    networks: Sequence[str]
    pairs: Sequence[Pair]
    moments: Sequence[float] = MOMENTS

    @classmethod
    def of(cls, recorded: Sequence[RecordedSearch], moments: Sequence[float] = MOMENTS) -> Bench:
        # A search that never had a program of each task could not be forecast.
        recorded = [
            each for each in recorded if _measured(each, round(moments[-1] * len(each.order)))
        ]
        networks = sorted({s.network for s in recorded})
        pairs = [
            pair
            for number, search in enumerate(recorded)
            for moment in moments
            for pair in _pairs(number, search, moment, networks)
        ]
        return cls(recorded, networks, pairs, moments)

    @cached_property
    def gains(self) -> list[TaskGains]:
        """What there is to learn from the searches of each network."""
        return [
            TaskGains.of([search for search in self.searches if search.network == network])
            for network in self.networks
        ]

    @cached_property
    def expected(self) -> NDArray[np.float64]:
        """The gain of each pair (networks x pairs) by the searches of networks other than its own
        and one; the last row leaves out no other."""
        networks = range(len(self.networks))
        own = self.column("network")
        found = np.zeros((len(networks) + 1, len(self.pairs)))
        for one, other in combinations_with_replacement(networks, 2):
            kept = [self.gains[each] for each in networks if each not in (one, other)]
            if not kept:
                continue
            gains = reduce(operator.add, kept)
            for held, network in {(one, other), (other, one)}:
                places = np.flatnonzero(own == network)
                if len(places):
                    found[held, places] = self._by(gains, places)
            if one == other:
                found[-1, own == one] = found[one, own == one]
        return found

    def _by(self, gains: TaskGains, places: NDArray[np.int64]) -> list[float]:
        pairs = [self.pairs[place] for place in places]
        ratios = gains.expected_ratios(np.concatenate([pair.rows for pair in pairs]))
        ends = np.cumsum([len(pair.rows) for pair in pairs])[:-1]
        return [
            network_gain(pair.tasks, own.tolist())
            for pair, own in zip(pairs, np.split(ratios, ends), strict=True)
        ]

    def column(self, name: str) -> NDArray[Any]:
        return np.array([getattr(pair, name) for pair in self.pairs])


def _measured(search: RecordedSearch, trials: int) -> list[RunningTask]:
    """All tasks after so many trials; none where one has no program yet."""
    tasks = [task for task in search.running(trials) if task is not None]
    return tasks if len(tasks) == len(search.tasks) else []


def _pairs(
    number: int, search: RecordedSearch, moment: float, networks: Sequence[str]
) -> list[Pair]:
    whole = len(search.order)
    trials = round(moment * whole)
    tasks = _measured(search, trials)
    if not tasks:
        return []
    now_s, before_s = search.latency_s(trials), search.latency_s(trials // 2)
    doubled = math.log(before_s / now_s) / math.log(2) if math.isfinite(before_s) else 0.0
    network = networks.index(search.network)
    pairs = []
    for part in REACHES:
        end = trials + round(part * (whole - trials))
        rows = task_signs(tasks, search.origin, end - trials)
        signs, seen = signs_of(tasks, trials, end, 0.0), math.log(now_s / search.latency_s(end))
        slope = doubled * signs.reach
        pairs.append(Pair(number, network, moment, part, signs, tasks, rows, slope, seen))
    return pairs


#: The signs of each pair where a network is left out.
Points = Callable[[Bench, int], list[Signs]]


def learned(bench: Bench, held: int) -> list[Signs]:
    return [
        pair.signs._replace(expected=expected)
        for pair, expected in zip(bench.pairs, bench.expected[held].tolist(), strict=True)
    ]


def plain(bench: Bench, points: Vector) -> list[Signs]:
    """Signs of nothing but how far a forecast reaches, and of the gain that is expected."""
    rows = zip(bench.pairs, points.tolist(), strict=True)
    return [Signs(pair.signs.reach, point, 0.0, 1.0, 1.0) for pair, point in rows]


def no_gain(bench: Bench, held: int) -> list[Signs]:
    return plain(bench, np.zeros(len(bench.pairs)))


def last_slope(bench: Bench, held: int) -> list[Signs]:
    return plain(bench, np.maximum(0.0, bench.column("slope")))


def mean_curve(bench: Bench, held: int) -> list[Signs]:
    """What searches of other networks gained on average from the same part of their trials."""
    network, seen = bench.column("network"), bench.column("seen")
    moment, part = bench.column("moment"), bench.column("part")
    points = np.zeros(len(bench.pairs))
    for at in bench.moments:
        for to in REACHES:
            alike = (moment == at) & (part == to)
            for own in range(len(bench.networks)):
                others = alike & (network != held) & (network != own)
                if others.any():
                    points[alike & (network == own)] = seen[others].mean()
    return plain(bench, points)


METHODS: dict[str, Points] = {OURS: learned, MEAN: mean_curve, NONE: no_gain, SLOPE: last_slope}


def distributions(
    bench: Bench, points: Points, chosen: NDArray[np.bool_], held_too: int = -1
) -> dict[int, Gains]:
    """Of each chosen pair the distribution of its gain, by the pairs of other networks; those of
    `held_too` are not known either."""
    network, found = bench.column("network"), {}
    for held in range(len(bench.networks)):
        wanted = np.flatnonzero(chosen & (network == held))
        if not len(wanted) or held == held_too:
            continue
        signs = points(bench, held if held_too < 0 else held_too)
        known = calibration(bench, signs, {held, held_too})
        for place in wanted:
            found[int(place)] = known.gains(signs[place])
    return found


def calibration(bench: Bench, signs: Sequence[Signs], without: Collection[int]) -> Calibration:
    return Calibration.of(
        [
            Known(bench.networks[pair.network], str(pair.search), own, pair.seen)
            for pair, own in zip(bench.pairs, signs, strict=True)
            if pair.network not in without
        ]
    )
