"""Decisions of a single job: which lane starts the next round, and when the job ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from tunefleet.core.stage import StageKey, WorkKind


class Plan(Protocol):
    """The scheduler calls these methods in the order of its events. A plan reads no clock."""

    def lanes(self) -> Mapping[str, int]:
        """Task id -> iteration of the round that the lane opens next."""
        ...

    def unfinished(self) -> Sequence[tuple[str, int, frozenset[WorkKind]]]:
        """Rounds left open by an earlier scheduler: (task id, iteration, finished stages)."""
        ...

    def next_lane(self, now: float) -> str | None:
        """The lane that opens its next round now, or None."""
        ...

    def absorb(self, key: StageKey, result: object, seconds: float) -> bool:
        """Take the result of a finished stage; False after a select without candidates."""
        ...

    def closed(self, task_id: str) -> None:
        """The lane may open another round: its last one ended, or look-ahead allows it. Lanes
        without an unfinished round may open one from the start."""
        ...

    def failed(self, task_id: str, reason: str) -> None:
        """The lane was given up."""
        ...

    def ended(self, now: float) -> str:
        """The reason why no further round is opened, or "" while the job continues."""
        ...

    def rounds_left(self, task_id: str) -> float:
        """The estimated number of remaining rounds of the lane, without the open one."""
        ...


class StepPlan:
    """The steps of a network as one round; some may already be done."""

    def __init__(self, done: frozenset[WorkKind] = frozenset()) -> None:
        self._done = done
        self._opened = bool(done)
        self._over = ""

    def lanes(self) -> Mapping[str, int]:
        return {"": 0}

    def unfinished(self) -> Sequence[tuple[str, int, frozenset[WorkKind]]]:
        return [("", 0, self._done)] if self._done else ()

    def next_lane(self, now: float) -> str | None:
        if self._opened:
            return None
        self._opened = True
        return ""

    def absorb(self, key: StageKey, result: object, seconds: float) -> bool:
        return True

    def closed(self, task_id: str) -> None:
        self._over = "every step is done"

    def failed(self, task_id: str, reason: str) -> None:
        self._over = reason

    def ended(self, now: float) -> str:
        return self._over

    def rounds_left(self, task_id: str) -> float:
        return 0.0


class FixedPlan:
    """Every lane runs a fixed number of rounds; for mock jobs and the simulator."""

    def __init__(self, rounds: Mapping[str, int]) -> None:
        self._left = dict(rounds)
        self._waiting = deque(task for task, count in rounds.items() if count > 0)
        self._running = len(self._waiting)

    def lanes(self) -> Mapping[str, int]:
        return dict.fromkeys(self._left, 0)

    def unfinished(self) -> Sequence[tuple[str, int, frozenset[WorkKind]]]:
        return ()

    def next_lane(self, now: float) -> str | None:
        if not self._waiting:
            return None
        task_id = self._waiting.popleft()
        self._left[task_id] -= 1
        return task_id

    def absorb(self, key: StageKey, result: object, seconds: float) -> bool:
        return True

    def closed(self, task_id: str) -> None:
        if self._left[task_id] > 0:
            self._waiting.append(task_id)
        else:
            self._running -= 1

    def failed(self, task_id: str, reason: str) -> None:
        self._left[task_id] = 0
        self._running -= 1

    def ended(self, now: float) -> str:
        return "" if self._running > 0 else "every lane is complete"

    def rounds_left(self, task_id: str) -> float:
        return self._left[task_id]
