"""Recorded logs as searches of networks: the trials of each task in their order.

A log of a network is one search. Logs of one operator each are joined to one search of their
network: by their folder, or for Roller's by their shapes, which are those of ResNet-50, NASNet,
BERT and an LSTM. One operator alone is a network of one task. A search is replayed in the order of
its log where each task has a trial that succeeded in its first tenth; else its tasks get rounds of
16 trials in turn, each in the order of its log. Occurrences are not recorded: each task counts
once, and the latency of a network is the sum of its tasks'.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from common import DATA
from recorded_devices import CPU, GPU
from tunefleet.core.forecast import TaskCurve
from tunefleet.core.job import Job, JobKind, JobState
from tunefleet.dataset import codecs
from tunefleet.dataset.flops import flops_by_workload
from tunefleet.dataset.rows import Rows
from tunefleet.features.context import operator_class
from tunefleet.learning.contexts import task_context
from tunefleet.learning.curves import SearchedNetwork, SearchOrigin
from tunefleet.runs.outlook import METHOD, device_class
from tunefleet.store import Store, each_job, open_store

#: Logs, the class of their device, and whether a file is a network (else its folder is).
SOURCES = (
    ("rtx2080ti_bert_resnet50/**/*.gz", GPU, True),
    ("icelake8358_*/*.gz", CPU, True),
    ("droplet_*_ansor/*a72*.gz", CPU, True),
    ("droplet_*_ansor/*llvm*.gz", CPU, True),
    ("droplet_*_ansor/*gtx1650*.gz", GPU, True),
    ("droplet_*_ansor/*gpu_matmul*.gz", GPU, True),
    ("tlcbench_autotvm/*t4*.gz", GPU, True),
    ("fineco_a100/**/*.gz", GPU, False),
    ("roller_*/**/*.gz", GPU, False),
    ("droplet_autotvm/cuda*/**/*_layer_*.gz", GPU, False),
    ("droplet_autotvm/arm*/**/*_layer_*.gz", CPU, False),
    ("droplet_autotvm/x86*/**/*_layer_*.gz", CPU, False),
)
_ROLLER = "roller_"
NETWORKS = ("resnet", "bert", "mobilenet", "vgg", "darknet", "mha", "mlp", "matmul")
_TUNERS = ("droplet", "random", "xgb")
#: Shorter searches are left out: trials of the network, and of half of its tasks.
_LEAST, _LEAST_EACH = 256, 48
_BATCH = 16


@dataclass(frozen=True)
class RecordedSearch(SearchedNetwork):
    """`best_s` has the best latency of each task after its trials; `in_own_order`: `order` is that
    in which they were measured."""

    name: str
    files: tuple[str, ...]
    in_own_order: bool
    best_s: tuple[NDArray[np.float64], ...]

    @property
    def network(self) -> str:
        return self.origin.network

    def latency_s(self, trials: int) -> float:
        """Of all tasks after so many trials of the network; inf where one has no success."""
        counts = self.counts(trials)
        if not counts.all():
            return float("inf")
        each = zip(self.tasks, self.best_s, counts, strict=True)
        return float(sum(task.weight * best[n - 1] for task, best, n in each))


def searches() -> list[RecordedSearch]:
    """All that are long enough; none without the data."""
    logs: dict[tuple[str, SearchOrigin], list[Path]] = {}
    for pattern, device, is_network in SOURCES:
        for path in sorted(DATA.glob(pattern)):
            name = path.relative_to(DATA)
            network = _network(name)
            whole = str(name) if is_network else f"{name.parts[0]}/{network}"
            if "autotvm" in name.parts[0] and not is_network:
                whole = str(name.parent)
            logs.setdefault((whole, SearchOrigin(network, device, _method(name))), []).append(path)
    return [
        search for (name, origin), paths in logs.items() for search in _search(name, origin, paths)
    ]


def searches_of(home: Path) -> list[RecordedSearch]:
    """Those of tunefleet itself: of the jobs of a home that ended, in the order of their trials."""
    store = open_store(home)
    try:
        ended = each_job(store.jobs, state=JobState.SUCCEEDED)
        jobs = [job for job in ended if job.spec.kind is JobKind.TUNE]
        found = [_of_job(store, job) for job in reversed(jobs)]
        return [search for search in found if search is not None]
    finally:
        store.close()


def _of_job(store: Store, job: Job) -> RecordedSearch | None:
    tasks = store.records.curves(job.job_id)
    if not tasks or not all(any(task.latencies_s) for task in tasks):
        return None
    origin = SearchOrigin(job.spec.network.name, device_class(job), METHOD)
    return recorded(SearchedNetwork.of(origin, tasks), job.job_id[:8])


def recorded(known: SearchedNetwork, name: str, files: tuple[str, ...] = ()) -> RecordedSearch:
    """A search in the order of its trials."""
    best = tuple(map(_best, known.tasks))
    return RecordedSearch(known.origin, known.tasks, known.order, name, files, True, best)


def _best(task: TaskCurve) -> NDArray[np.float64]:
    return np.minimum.accumulate([np.inf if s is None else s for s in task.latencies_s])


def _network(name: Path) -> str:
    if name.parts[0].startswith(_ROLLER):
        return _of_shapes(name.name)
    text = f"{name.parent.name} {name.name}" if "fineco" in name.parts[0] else str(name)
    place = text if "fineco" in name.parts[0] else text.split("/", 1)[1].lower()
    return next(each for each in NETWORKS if each in place)


def _of_shapes(name: str) -> str:
    """The network of one of Roller's operators: NASNet's numbers of channels are 42 times some."""
    kind = re.match(r"ansor_([a-z2_]*?)_(\d.*)", name)
    assert kind is not None
    extents = [int(each) for each in re.findall(r"\d+", kind[2])]
    if "matmul" in kind[1]:
        known = {(128, 256): "lstm", (128, 2048): "resnet", (128, 4032): "nasnet"}
        return known.get((extents[0], extents[1]), "bert")
    if extents[0] == 65536 or (extents[:2] == [128, 512] and kind[1] == "reduction"):
        return "bert"
    of_nasnet = extents[1] % 42 == 0 or extents[1] == 96 or 331 in extents
    return "nasnet" if of_nasnet else "resnet"


def _method(name: Path) -> str:
    if "autotvm" not in name.parts[0]:
        return "auto_scheduler"
    return next((each for each in _TUNERS if each == name.parent.name), "xgb")


def _search(name: str, origin: SearchOrigin, paths: Sequence[Path]) -> Iterator[RecordedSearch]:
    tasks: list[TaskCurve] = []
    order: list[NDArray[np.int64]] = []
    for path in paths:
        batches = list(codecs.read(path))
        if not batches:
            continue
        table = pa.Table.from_batches(batches).unify_dictionaries()
        rows, flops = Rows.of(table), flops_by_workload(batches)
        format = str(table.column("format")[0].as_py())
        kept = [t for t in range(int(rows.task.max()) + 1) if rows.valid[rows.task == t].any()]
        new = np.full(int(rows.task.max()) + 1, -1)
        new[kept] = np.arange(len(kept)) + len(tasks)
        for number in kept:
            own = rows.task == number
            workload = rows.workload.names[rows.workload.codes[own][0]]
            known = flops.get((format, workload))
            operator = task_context(format, workload, known, {}).operator
            count = known.count if known and known.count else 0.0
            latencies = [float(each) if np.isfinite(each) else None for each in rows.latency_s[own]]
            kind = operator_class(operator)
            tasks.append(TaskCurve(workload, kind, count, 1, tuple(latencies)))
        placed = new[rows.task]
        order.append(placed[placed >= 0])
    lengths = [len(task.latencies_s) for task in tasks]
    if sum(lengths) < _LEAST or np.median(lengths) < _LEAST_EACH:
        return
    best = tuple(_best(task) for task in tasks)
    joined = np.concatenate(order)
    in_own_order = len(paths) == 1 and _all_measured(joined, best)
    if not in_own_order:
        joined = joined[_in_turn(joined, len(tasks))]
    files = tuple(str(path.relative_to(DATA)) for path in paths)
    yield RecordedSearch(origin, tuple(tasks), joined, name, files, in_own_order, best)


def _all_measured(order: NDArray[np.int64], best: Sequence[NDArray[np.float64]]) -> bool:
    """Whether each task has a success in the first tenth of the trials."""
    counts = np.bincount(order[: len(order) // 10], minlength=len(best))
    return all(n and np.isfinite(each[n - 1]) for each, n in zip(best, counts, strict=True))


def _in_turn(order: NDArray[np.int64], tasks: int) -> NDArray[np.int64]:
    """Places of the trials in rounds of the tasks in turn."""
    own = [np.flatnonzero(order == task) for task in range(tasks)]
    rounds = range(0, max(map(len, own)), _BATCH)
    return np.concatenate([places[at : at + _BATCH] for at in rounds for places in own])
