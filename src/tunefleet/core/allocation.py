"""Which task of a job gets the next round, and how large it is.

Every task gets a first, small round, in descending order of FLOPs: those of which a program was
verified on this very device come after the others. Each later round goes to the
task with the largest expected reduction of the network's latency per second of tuning: the task's
share of that latency, times the expected gain of its next round, divided by the cost of its rounds.
The gains of a task's own last rounds are ignored: they predict the next gain poorly and add noise
(docs/benchmarks.md, search). Compare Ansor's gradient (OSDI 2020, section 6), which
counts trials instead of seconds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tunefleet.core.settings import SearchSettings

#: Below this share of the network's FLOPs a task gets a small first round: its space is small.
_MINOR_SHARE = 0.002
_MINOR_BATCH = 2

#: The round after n rounds reduces a task's latency by this divided by n, on average.
_GAIN = 0.1

#: The share of that gain which remains for a task as fast as the fastest of the network.
_LEAST_HEADROOM = 0.1


@dataclass(frozen=True, slots=True)
class LaneState:
    """Progress of one task; `history` holds the best latency after each finished round.
    `is_verified`: an earlier job verified a program of it on this device."""

    task_id: str
    weight: int
    flops: float
    history: tuple[float | None, ...] = ()
    seconds: float = 0.0
    exhausted: bool = False
    is_verified: bool = False

    @property
    def best_s(self) -> float | None:
        return self.history[-1] if self.history else None


def first_batch(
    lane: LaneState,
    lanes: list[LaneState],
    settings: SearchSettings,
    trials_left: int | None,
    busy: Collection[str] = (),
) -> int:
    """The size of a lane's first round. A small budget is divided among the lanes that have not
    started yet, without those that come after it; lanes in `busy` have started."""
    total_flops = sum(other.flops * other.weight for other in lanes)
    share = lane.flops * lane.weight / total_flops if total_flops else 0.0
    size = settings.first_batch
    if share < _MINOR_SHARE:
        size = min(size, _MINOR_BATCH)
    if trials_left is not None:
        before = [other for other in lanes if lane.is_verified >= other.is_verified]
        waiting = sum(1 for other in before if not other.history and other.task_id not in busy)
        size = min(size, max(2, trials_left // max(1, waiting)))
    return size


def expected_gain(lane: LaneState, best_throughput: float) -> float:
    """Expected reduction in seconds per inference for each second of tuning this lane."""
    if lane.exhausted:
        return 0.0
    rounds = len(lane.history)
    best = lane.best_s
    if best is None:  # every trial failed so far: retry with decreasing priority
        return 1.0 / (1 + rounds) ** 3
    headroom = 1.0
    if best_throughput and lane.flops:
        headroom = max(_LEAST_HEADROOM, 1 - lane.flops / best / best_throughput)
    worth = headroom * _GAIN / rounds
    cost = max(lane.seconds / rounds, 1e-3)
    return lane.weight * best * worth / cost


def next_lane(lanes: list[LaneState], busy: Collection[str] = ()) -> LaneState | None:
    """The lane that gets the next round; None when all are exhausted or in `busy`."""
    open_lanes = [lane for lane in lanes if not lane.exhausted and lane.task_id not in busy]
    unstarted = [lane for lane in open_lanes if not lane.history]
    if unstarted:
        return min(unstarted, key=lambda lane: lane.is_verified)
    if not open_lanes:
        return None
    best_throughput = max((lane.flops / lane.best_s for lane in lanes if lane.best_s), default=0.0)
    return max(open_lanes, key=lambda lane: expected_gain(lane, best_throughput))
