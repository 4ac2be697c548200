"""Which task of a network gets the next round: allocations replayed on rounds that were recorded.

A search with the shipped model gives every task of a network as many rounds, in turn. What each
round took and found is kept, and the best program after each round is measured again beside the
others of its task. Then any allocation can be replayed on the same rounds: it sees what a search
sees, and what it has found so far counts by the second measurement, so that neither the machine's
hours nor lucky readings tell allocations apart.

    random     all rounds of one task after the other, in random order
    in turn    a round for every task, then the next
    gradient   MetaSchedule's: the task whose latency falls fastest per round
    ours       the search's: the round expected to save most per second
    all known  greedy with what all rounds will bring: what no allocation knows

    .venv/bin/python benchmarks/allocation.py --json allocation.json
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import common
from searching import (
    in_process,
    keep,
    measured,
    ours,
    parser,
    run,
    runs_of,
    seeds_of,
    tasks_of,
)
from transfer_tuning import InOrder, by_gradient

if TYPE_CHECKING:
    from tunefleet.core.allocation import LaneState

NETWORKS = ("zoo:resnet50", "zoo:mobilenet_v2", "zoo:inception_v3",
            "zoo:squeezenet", "zoo:shufflenet_v2", "zoo:vit_tiny")  # fmt: skip
#: Of the seconds that all rounds took.
SHARES = (0.1, 0.15, 0.2, 0.27, 0.4, 0.6)
#: Draws of the random order.
_DRAWS = 20

Allocation = Callable[[list["LaneState"]], "LaneState | None"]


@dataclass(frozen=True)
class Round:
    """Its seconds, the best reading after it, and what that program took when measured again."""

    seconds: float
    read_s: float | None
    latency_s: float


@dataclass(frozen=True)
class Lane:
    task_id: str
    weight: int
    flops: float
    rounds: tuple[Round, ...]


def in_turn(rounds: int, lanes: list[LaneState], busy: Collection[str] = ()) -> LaneState | None:
    open_lanes = [lane for lane in lanes if not lane.exhausted and lane.task_id not in busy]
    least = min(open_lanes, key=lambda lane: len(lane.history), default=None)
    return least if least and len(least.history) < rounds else None


def search(network: str, seed: str, rounds: str) -> dict[str, Any]:
    from tunefleet.core.budget import Budget
    from tunefleet.core.settings import SHIPPED_MODEL
    from tunefleet.scheduler import tuning_plan

    plan: Any = tuning_plan
    plan.next_lane = partial(in_turn, int(rounds))
    found = ours(network, int(seed), Budget(trials=10**6), pretrained=SHIPPED_MODEL, transfer=True)
    return {name: found[name] for name in ("wall_s", "trials", "rounds")}


def main(options: argparse.Namespace) -> int:
    started = time.time()
    kept = runs_of(options.json)
    rounds = 2 if options.quick else options.rounds
    rows: list[dict[str, Any]] = []
    for network in options.networks:
        for seed in seeds_of(options):
            own = kept.setdefault(f"{network} {seed} {rounds}", {})
            record(own, network, seed, rounds, partial(keep, options.json, started, kept))
            rows += replayed(network, seed, lanes_of(network, own))
            common.table(rows[-5:], list(rows[-1]))
    figures = {"runs": kept, "rows": rows}
    return common.finish("allocation", started, figures, checks(rows), options.json)


def record(
    own: dict[str, Any], network: str, seed: int, rounds: int, keep: Callable[[], None]
) -> None:
    """The rounds, and the best programs after each of them measured again, where `own` has none."""
    if "rounds" not in own:
        own.update(in_process(__file__, "search", network, str(seed), str(rounds)))
        keep()
    if "again" not in own:
        winners: dict[str, dict[str, str]] = {}
        for task_id, found in own["rounds"].items():
            for number, (_, *better) in enumerate(found):
                if better:
                    winners.setdefault(str(number), {})[task_id] = better[1]
        own["again"] = measured(__file__, network, winners)
        keep()


def lanes_of(network: str, own: dict[str, Any]) -> list[Lane]:
    """Tasks with a program at all: where every trial failed no allocation can do anything."""
    found = []
    for w in tasks_of(network):
        task_id, rounds = w.task.task_id, []
        read_s, latency_s = None, math.inf
        for number, (seconds, *better) in enumerate(own["rounds"][task_id]):
            if better and task_id in own["again"][str(number)]:
                read_s, latency_s = better[0], own["again"][str(number)][task_id]
            rounds.append(Round(seconds, read_s, latency_s))
        if read_s is not None:
            found.append(Lane(task_id, w.weight, w.task.flops, tuple(rounds)))
    return found


def replayed(network: str, seed: int, lanes: Sequence[Lane]) -> list[dict[str, Any]]:
    """A row of each allocation: the network's latency over that after all rounds, by the share of
    their seconds."""
    from tunefleet.core.allocation import next_lane

    most = max(len(lane.rounds) for lane in lanes)
    orders = [replay(lanes, InOrder(draw, most)) for draw in range(_DRAWS)]
    ways = {
        "random": [statistics.fmean(values) for values in zip(*orders, strict=True)],
        "in turn": replay(lanes, partial(in_turn, most)),
        "gradient": replay(lanes, by_gradient),
        "ours": replay(lanes, next_lane),
        "all known": replay(lanes, partial(_all_known, lanes)),
    }
    return [
        {"network": network, "seed": seed, "tasks": len(lanes), "allocation": name}
        | {f"{share:.0%}": value for share, value in zip(SHARES, values, strict=True)}
        for name, values in ways.items()
    ]


def replay(lanes: Sequence[Lane], choose: Allocation) -> list[float]:
    """The network's latency at each of `SHARES`, over that after all rounds.

    Rounds follow each other. Tasks get their first round in the order of their FLOPs, whatever the
    allocation: without it a network has no latency.
    """
    total = sum(r.seconds for lane in lanes for r in lane.rounds)
    least = sum(lane.weight * lane.rounds[-1].latency_s for lane in lanes)
    done = {lane.task_id: 1 for lane in lanes}
    spent = sum(lane.rounds[0].seconds for lane in lanes)
    found: list[float] = []
    while len(found) < len(SHARES):
        now = sum(lane.weight * lane.rounds[done[lane.task_id] - 1].latency_s for lane in lanes)
        chosen = choose([_state(lane, done[lane.task_id]) for lane in lanes])
        if chosen is not None:
            number = done[chosen.task_id]
            (lane,) = (lane for lane in lanes if lane.task_id == chosen.task_id)
            spent += lane.rounds[number].seconds
            done[chosen.task_id] += 1
        else:
            spent = math.inf
        while len(found) < len(SHARES) and spent > SHARES[len(found)] * total:
            found.append(now / least)
    return found


def _state(lane: Lane, done: int) -> LaneState:
    from tunefleet.core.allocation import LaneState

    rounds = lane.rounds[:done]
    return LaneState(
        lane.task_id, lane.weight, lane.flops, tuple(r.read_s for r in rounds),
        sum(r.seconds for r in rounds), done == len(lane.rounds),
    )  # fmt: skip


def _all_known(lanes: Sequence[Lane], states: list[LaneState]) -> LaneState | None:
    """Most saved per second by the next rounds of a task, as many as are best."""
    best, most = None, -math.inf
    for lane, state in zip(lanes, states, strict=True):
        done = len(state.history)
        seconds = 0.0
        for r in lane.rounds[done:]:
            seconds += r.seconds
            saved = lane.weight * (lane.rounds[done - 1].latency_s - r.latency_s) / seconds
            if saved > most:
                best, most = state, saved
    return best


def checks(rows: list[dict[str, Any]]) -> list[common.Check]:
    at = f"{0.27:.0%}"
    ours_, gradient = (
        [row[at] for row in rows if row["allocation"] == name] for name in ("ours", "gradient")
    )
    ratio = statistics.geometric_mean(a / b for a, b in zip(ours_, gradient, strict=True))
    return [common.at_most(f"ours / gradient at {at} of the seconds", ratio, 1.0, "aim")]


if __name__ == "__main__":
    made = parser("Allocations of rounds to tasks, replayed on recorded rounds.", NETWORKS, 1)
    made.add_argument("--rounds", type=int, default=8, help="of each task")
    run(main, search, made)
