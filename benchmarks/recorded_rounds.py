"""Rounds of real tuning runs as stage durations: what the records hold, and what is assumed.

Held by the records: seconds of compiling and of running of every configuration (benchmark_hub), and
their sum (`all_cost` of auto_scheduler and AutoTVM logs). Assumed, drawn once per job or task with
the seed of the mix:

- a round is 16 candidates in the order of the log (benchmark_hub: in random order, its files are
  enumerations);
- a host builds with 4, 8 or 16 processes, a device runs one candidate at a time;
- of `all_cost`, between 20 and 80 % is the build;
- select and update take between 12 % (measured here, docs/benchmarks.md) and 48 % (the thesis) of a
  round, and of that the selection takes 20 to 80 %.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HUB = "benchmark_hub/cachefiles/*/*[!4].json.gz"
ANSOR = ("rtx2080ti_bert_resnet50/default-Ansor/[345]/*/*/*.json.gz",
         "droplet_a72_ansor/*.log.gz")  # fmt: skip
AUTOTVM = ("droplet_autotvm/cuda_gtx1650/*/xgb/*layer*.log.gz",
           "droplet_autotvm/arm_cortex-a72/*/xgb/*layer*.log.gz")  # fmt: skip

BATCH = 16
BUILDERS = (4, 8, 16)
BUILD_SHARE = (0.2, 0.8)
SEARCH_SHARE = (0.12, 0.48)
SELECT_SHARE = (0.2, 0.8)
ROUNDS = (4, 20)

#: Seconds of build and of run of one candidate; of a log only their sum is known: (sum, None).
Trial = tuple[float, float | None]
#: What one job may tune: its tasks, each with its trials in order.
Network = list[list[Trial]]
Round = tuple[float, float, float, float]


def load(data: Path) -> list[list[Network]]:
    """By kind of source, the networks in it."""
    found = [
        [[_hub_trials(path)] for path in sorted(data.glob(HUB))],
        [_ansor_network(path) for pattern in ANSOR for path in sorted(data.glob(pattern))],
        _autotvm_networks(data),
    ]
    return [kind for kind in found if kind]


def _hub_trials(path: Path) -> list[Trial]:
    with gzip.open(path) as file:
        cache = json.load(file)["cache"].values()
    return [
        (c["compile_time"] / 1e3, c["benchmark_time"] / 1e3)
        for c in cache
        if _positive(c.get("compile_time")) and _positive(c.get("benchmark_time"))
    ]


def _ansor_network(path: Path) -> Network:
    tasks: dict[str, list[Trial]] = {}
    for record in _lines(path):
        tasks.setdefault(record["i"][0][0], []).append((record["r"][2], None))
    return _long_enough(tasks.values())


def _autotvm_networks(data: Path) -> list[Network]:
    networks: dict[Path, Network] = {}
    for pattern in AUTOTVM:
        for path in sorted(data.glob(pattern)):
            trials: list[Trial] = [
                (r["result"][2], None) for r in _lines(path) if "result" in r
            ]  # fmt: skip
            networks.setdefault(path.parent, []).append(trials)
    return [_long_enough(tasks) for tasks in networks.values()]


def _lines(path: Path) -> Iterator[Any]:
    with gzip.open(path, "rt") as file:
        for line in file:
            if line.startswith("{"):
                yield json.loads(line)


def _long_enough(tasks: Any) -> Network:
    return [trials for trials in tasks if len(trials) >= ROUNDS[0] * BATCH]


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and value > 0


def random_job(
    rng: random.Random, sources: Sequence[Sequence[Network]], most_lanes: int
) -> list[list[Round]]:
    """The lanes of one job, each a list of rounds in seconds."""
    network = rng.choice(rng.choice(sources))
    builders, search = rng.choice(BUILDERS), rng.uniform(*SEARCH_SHARE)
    lanes = rng.randint(1, min(most_lanes, len(network)))
    return [_lane(rng, trials, builders, search) for trials in rng.sample(network, lanes)]


def _lane(rng: random.Random, trials: Sequence[Trial], builders: int, search: float) -> list[Round]:
    build_share = rng.uniform(*BUILD_SHARE)
    if trials[0][1] is not None:
        trials = rng.sample(trials, min(len(trials), ROUNDS[1] * BATCH))
    rounds = rng.randint(ROUNDS[0], min(ROUNDS[1], len(trials) // BATCH))
    worked = [
        _worked(trials[i * BATCH : (i + 1) * BATCH], builders, build_share) for i in range(rounds)
    ]
    mean = sum(build + run for build, run in worked) / rounds
    select_share = rng.uniform(*SELECT_SHARE)
    searched = mean * search / (1 - search)
    select, update = searched * select_share, searched * (1 - select_share)
    return [(select, build, run, update) for build, run in worked]


def _worked(batch: Sequence[Trial], builders: int, build_share: float) -> tuple[float, float]:
    """Seconds of building and of running a batch; the longest build bounds the first."""
    builds = [first if run is not None else first * build_share for first, run in batch]
    runs = [run if run is not None else first * (1 - build_share) for first, run in batch]
    return max(sum(builds) / builders, *builds), sum(runs)
