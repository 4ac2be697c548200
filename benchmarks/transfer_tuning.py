"""Transfer tuning beside tuning every task: what a share of the tuning time buys (Table 9).

Four searches of each network, from an empty store each:

    random     the baseline: every task gets as many trials, one task after the other in random
               order; the cost model starts from nothing, no schedule is handed on
    given      the same trials and order, with the shipped cost model and schedule transfer
    gradient   with both; MetaSchedule's gradient says which task goes on
    ours       with both; rounds go where they are expected to save most time per second

The latter two get `--share` of the baseline's tuning time. The winners of all sides are built and
measured by one worker in turn; the latency of a network is the sum over its tasks by occurrences.
Runs are kept in `--json OUT` as they end, and the same command goes on where it stopped.

    .venv/bin/python benchmarks/transfer_tuning.py --json transfer_tuning.json
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

import common
from searching import (
    compare,
    curve,
    keep,
    latency_of,
    ours,
    parser,
    reached,
    run,
    runs_of,
    seeds_of,
    tasks_of,
)

if TYPE_CHECKING:
    from tunefleet.core.allocation import LaneState

NETWORKS = ("zoo:resnet50", "zoo:mobilenet_v2", "zoo:inception_v3")
SIDES = ("random", "given", "gradient", "ours")
#: Of stock MetaSchedule and of the first benchmark of searches.
PER_TASK = 64
#: Weight of what the last rounds brought against what all did, and how many rounds that are:
#: MetaSchedule's gradient task scheduler.
_ALPHA, _WINDOW = 0.2, 3


class InOrder:
    """As many rounds for every task, one task after the other, in an order drawn by the seed."""

    def __init__(self, seed: int, rounds: int) -> None:
        self._seed = seed
        self._rounds = rounds

    def __call__(self, lanes: list[LaneState], busy: Collection[str] = ()) -> LaneState | None:
        from tunefleet.core.ids import seed_of

        for lane in sorted(lanes, key=lambda lane: seed_of(self._seed, lane.task_id)):
            waits = not lane.exhausted and lane.task_id not in busy
            if waits and len(lane.history) < self._rounds:
                return lane
        return None


def by_gradient(lanes: list[LaneState], busy: Collection[str] = ()) -> LaneState | None:
    """Each task once, and then the one whose latency falls fastest per round."""
    open_lanes = [lane for lane in lanes if not lane.exhausted and lane.task_id not in busy]
    for lane in open_lanes:
        if not lane.history:
            return lane
    return max(open_lanes, key=_gradient, default=None)


def _gradient(lane: LaneState) -> float:
    best, rounds = lane.best_s, len(lane.history)
    if best is None:
        return math.inf if rounds < _WINDOW else 0.0
    before = lane.history[max(0, rounds - 1 - _WINDOW)]
    recent = (before - best) / _WINDOW if before is not None else 0.0
    return lane.weight * (_ALPHA * recent + (1 - _ALPHA) * best / rounds)


def search(network: str, seed: str, side: str, per_task: str, seconds: str) -> dict[str, Any]:
    from tunefleet.core.budget import Budget
    from tunefleet.core.settings import SHIPPED_MODEL, SearchSettings
    from tunefleet.scheduler import tuning_plan

    settings = SearchSettings()
    rounds = 1 + max(0, int(per_task) - settings.first_batch) // settings.batch
    # Whom the plan asks, in this process alone.
    plan: Any = tuning_plan
    if side == "gradient":
        plan.next_lane = by_gradient
    elif side != "ours":
        plan.next_lane = InOrder(int(seed), rounds)
    # Where the order ends the search, no more trials than it asks for are made.
    budget = Budget(seconds=float(seconds)) if float(seconds) else Budget(trials=10**6)
    known = side != "random"
    model = SHIPPED_MODEL if known else ""
    return ours(network, int(seed), budget, pretrained=model, transfer=known)


def main(options: argparse.Namespace) -> int:
    started = time.time()
    kept = runs_of(options.json)
    per_task = 4 if options.quick else options.per_task
    rows: list[dict[str, Any]] = []
    for network in options.networks:
        weights = {w.task.task_id: w.weight for w in tasks_of(network)}
        for seed in seeds_of(options):
            own = kept.setdefault(f"{network} {seed} {per_task} {options.share}", {})
            compare(
                __file__, own, network, options.sides,
                partial(_words, network, seed, per_task, options.share, own),
                partial(keep, options.json, started, kept),
            )  # fmt: skip
            rows += compared(network, seed, own, weights, options.sides)
            common.table(rows[-len(options.sides) :], list(rows[-1]))
    figures = {"runs": kept, "rows": rows}
    return common.finish("transfer_tuning", started, figures, checks(rows), options.json)


def _words(
    network: str, seed: int, per_task: int, share: float, own: dict[str, Any], side: str
) -> tuple[Any, ...]:
    """What `search` is to do for a side: until its order ends, or for a share of the baseline's
    seconds."""
    seconds = 0.0 if side in ("random", "given") else share * own["random"]["wall_s"]
    return network, seed, side, per_task, seconds


def compared(
    network: str, seed: int, own: dict[str, Any], weights: dict[str, int], sides: list[str]
) -> list[dict[str, Any]]:
    final = {side: latency_of(own["final"][side], weights) for side in sides}
    base = own["random"]
    rows = []
    for side in sides:
        points = curve(own[side]["points"], weights, own["final"][side])
        hit = reached(points, final["random"])
        rows.append(
            {
                "network": network, "seed": seed, "side": side, "tasks": len(weights),
                "trials": own[side]["trials"], "wall_s": own[side]["wall_s"],
                "final_ms": 1e3 * final[side], "final / random": final[side] / final["random"],
                "time / random": own[side]["wall_s"] / base["wall_s"],
                "to random's final / random": hit[0] / base["wall_s"] if hit else None,
            }
        )  # fmt: skip
    return rows


def checks(rows: list[dict[str, Any]]) -> list[common.Check]:
    found = []
    for network in dict.fromkeys(row["network"] for row in rows):
        mine = [r for r in rows if (r["network"], r["side"]) == (network, "ours")]
        if mine:
            latency = _median([r["final / random"] for r in mine])
            share = _median([r["time / random"] for r in mine])
            found += [
                common.at_most(f"{network}: tuning time / baseline", share, 0.3, "aim"),
                common.at_most(f"{network}: latency / baseline", latency, 1.0, "aim"),
            ]
    return found


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    made = parser(
        "All tasks in random order, and transfer tuning in a share of the time.", NETWORKS, 3
    )
    made.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    made.add_argument("--per-task", type=int, default=PER_TASK, help="trials of each task")
    made.add_argument("--share", type=float, default=0.28, help="of the baseline's tuning time")
    run(main, search, made)
