"""Schedules of jobs with deadlines by someone who knows all durations, for `arrivals.py`.

Each is found by the scheduler itself, under a policy that is given an order of the jobs. What any
of them meets can be met in this simulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any


class Clairvoyant:
    """Jobs in a given order, the others behind; of one job the lane with the most seconds left
    goes first. The lanes of the jobs in the order may look ahead at once."""

    name = "clairvoyant"
    gated = False
    lookahead = True

    def __init__(self, order: Sequence[str], rounds: Mapping[Any, Sequence[Any]]) -> None:
        from tunefleet.scheduler.policies import Queues

        self._rank = {job_id: place for place, job_id in enumerate(order)}
        self._rounds = rounds
        self._queues = Queues()

    def bind(self, view: Any) -> None:
        pass

    def add(self, stage: Any, now: float) -> None:
        job_id, iteration = stage.job.job_id, stage.key.iteration
        rounds = self._rounds[job_id, stage.lane.task_id]
        left_s = sum(rounds[iteration][stage.position :]) + sum(map(sum, rounds[iteration + 1 :]))
        rank = self._rank.get(job_id, len(self._rank))
        self._queues[stage.pool].push((rank, -left_s), stage)

    def take(self, pool: Any, now: float) -> Any:
        return self._queues[pool].pop()

    def hurries(self, job: Any, now: float) -> bool:
        return job.job_id in self._rank

    def done(self, stage: Any, seconds: float) -> None:
        pass

    def finished(self, job: Any) -> None:
        pass


class KnownEstimates:
    """In place of a scheduler's `Estimates`: the true means of every lane from the beginning."""

    def __init__(self, rounds: Mapping[Any, Sequence[Any]]) -> None:
        from tunefleet.core.stage import STAGE_ORDER

        self._means: dict[tuple[str, str, Any], float] = {
            (*lane, kind): sum(seconds) / len(seconds)
            for lane, of_lane in rounds.items()
            for kind, seconds in zip(STAGE_ORDER, zip(*of_lane, strict=True), strict=True)
        }

    def learn(self, job_id: str, task_id: str, kind: Any, seconds: float) -> None:
        pass

    def seconds(self, job_id: str, task_id: str, kind: Any) -> float:
        return self._means[job_id, task_id, kind]

    def forget(self, job_id: str, task_ids: Any, order: Any) -> None:
        pass


def orders(due_by: Mapping[str, float]) -> Iterator[tuple[str, ...]]:
    """Every order of the jobs with a deadline and of some of them, earliest deadlines first."""
    jobs = sorted(due_by, key=lambda job_id: due_by[job_id])
    for count in range(len(jobs), -1, -1):
        yield from permutations(jobs, count)
