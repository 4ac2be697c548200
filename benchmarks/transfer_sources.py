"""Whose schedules does a new task start from: orders of transfer sources, measured on the device.

The best of the collected records (tasks of other networks only) are adapted to the tasks of
networks that are not among them. What each order puts first is built and measured, all programs of
a task in turn:

    random       sources of the same operator, shuffled
    shapes       nearest by the logarithms of their shapes
    embedding    nearest in the attention model's embedding of the task's row
    predicted    the adapted programs that the attention model scores highest (the search's own way)
    searched     no sources: the best of an evolutionary search with the attention model
    sampled      no sources: random programs

    .venv/bin/python benchmarks/transfer_sources.py --json out.json
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import common
from searching import tasks_of

NETWORKS = ("zoo:squeezenet", "zoo:shufflenet_v2", "zoo:vit_tiny")
RECORDS = Path(__file__).parents[1] / "datasets" / "cpu-epyc-2-threads.parquet"
ORDERS = ("random", "shapes", "embedding", "predicted", "searched", "sampled")
COUNTS = (1, 2, 4, 8)
#: Transfer sources that are adapted, the first of an order; for `predicted` the nearest by shapes.
_POOL = 32


def best_records(path: Path) -> dict[str, list[Any]]:
    """The fastest program of every task, by operator."""
    import pyarrow.parquet as pq

    from tunefleet.core.ids import canonical_json
    from tunefleet.core.trial import ranking_latency
    from tunefleet.store import BestRecord

    best: dict[str, tuple[float, str, Any]] = {}
    for row in pq.read_table(path).to_pylist():
        if row["error_no"]:
            continue
        told = json.loads(row["extra"])
        latency_s = ranking_latency(tuple(row["costs_s"]))
        if latency_s < best.get(told["task_id"], (math.inf,))[0]:
            steps = [json.loads(step) for step in row["steps"]]
            decisions = [[i, s[4]] for i, s in enumerate(steps) if len(s) > 4]
            trace = canonical_json([[s[:4] for s in steps], decisions])
            shapes = ["x".join(map(str, argument[2])) for argument in told["args_info"]]
            text = f"{' '.join(shapes[:-1])} -> {shapes[-1]}"
            best_record = BestRecord(told["task_id"], text, told["flops"], trace, latency_s)
            best[told["task_id"]] = (latency_s, told["operator"], best_record)
    found = defaultdict(list)
    for _, operator, best_record in best.values():
        found[operator].append(best_record)
    return found


class Orders:
    """What each order would measure of a task, the most promising first."""

    def __init__(self, transfer_sources: dict[str, list[Any]], target: Any) -> None:
        from tunefleet.core.settings import SHIPPED_MODEL
        from tunefleet.costmodel import UnifiedModel
        from tunefleet.costmodel.registry import registry_of
        from tunefleet.features.devices import Place
        from tunefleet.search.guide import Guide

        (shipped,) = registry_of(None).get(SHIPPED_MODEL).load()
        assert isinstance(shipped, UnifiedModel)
        self._model = shipped.network
        self._guide = Guide(shipped, None)
        self._target = target
        self._device = Place.of_job(target, _device()).numbers()
        self._transfer_sources = transfer_sources

    def programs(self, task: Any, seed: int) -> dict[str, list[str]]:
        from tunefleet.stages.similarity import nearest

        own = [
            c for c in self._transfer_sources.get(task.operator, ()) if c.task_id != task.task_id
        ]
        by_shapes = nearest(task, own, len(own))
        place = self._embedding(task.shapes, task.flops, task.operator)
        away = {
            c.task_id: np.linalg.norm(self._embedding(c.shapes, c.flops, task.operator) - place)
            for c in by_shapes
        }
        shuffled = list(by_shapes)
        np.random.default_rng(seed).shuffle(shuffled)
        near = sorted(by_shapes, key=lambda c: away[c.task_id])
        request = self._request(task, seed)
        lent = self._lent(request, by_shapes)
        return {
            "random": self._adapted(request, shuffled),
            "shapes": self._adapted(request, by_shapes),
            "embedding": self._adapted(request, near),
            "predicted": [c.trace for c in self._select(lent, self._guide)],
            "searched": [c.trace for c in self._select(request, self._guide)],
            "sampled": [c.trace for c in self._select(request, None)],
        }

    def _embedding(self, shapes: str, flops: float, operator: str) -> Any:
        from tunefleet.costmodel._attention_net import embed
        from tunefleet.features import context

        weights = self._model.weights
        extents = tuple(
            tuple(int(n) for n in re.findall(r"\d+", shape))
            for shape in shapes.split() if shape != "->"
        )  # fmt: skip
        row = weights["mean"].copy()
        row[19:51] = context.numbers(context.TaskContext(extents, flops, operator), self._device)
        return embed(np, weights, row[None])[0, : self._model.hidden]

    def _request(self, task: Any, seed: int) -> Any:
        from tunefleet.core.settings import SearchSettings
        from tunefleet.search.selection import SelectRequest

        return SelectRequest(
            task.program, self._target, SearchSettings(random_share=0.0), max(COUNTS), seed,
            operator=task.operator, flops=task.flops, device=self._device,
        )  # fmt: skip

    def _select(self, request: Any, guide: Any) -> Sequence[Any]:
        from tunefleet.compiler.space.opening import task_space
        from tunefleet.search.selection import select

        space = task_space(request.program, request.target)
        return select(request, space, guide).candidates

    def _lent(self, request: Any, transfer_sources: Sequence[Any]) -> Any:
        return replace(request, transfer_sources=tuple(c.trace for c in transfer_sources[:_POOL]))

    def _adapted(self, request: Any, transfer_sources: Sequence[Any]) -> list[str]:
        """In the order of the transfer_sources, as the select stage has them without a guide."""
        adapted = self._select(self._lent(request, transfer_sources), None)
        sampled = self._select(request, None)
        return _but(adapted, sampled)


def _but(adapted: Sequence[Any], sampled: Sequence[Any]) -> list[str]:
    """Without the random programs that fill a batch up."""
    others = {c.candidate_id for c in sampled}
    return [c.trace for c in adapted if c.candidate_id not in others]


def _device() -> Any:
    from tunefleet.hardware.processor import device_identity

    return device_identity()


def measured(
    machine: Any, target: Any, settings: Any, task: Any, traces: list[str]
) -> dict[str, float]:
    """Seconds of each program, by its trace."""
    from tunefleet.core.trial import Built, Measurement
    from tunefleet.stages import work

    calls = [
        (task.program, target, f"p{i}", trace, str(machine.scratch))
        for i, trace in enumerate(traces)
    ]
    built = [b for b in machine.host.map(work.build_candidate, calls, 60.0) if isinstance(b, Built)]
    results = machine.device.call(work.profile_interleaved, built, settings.measure, timeout_s=600)
    found = {}
    for made, result in zip(built, results, strict=True):
        if isinstance(result, Measurement):
            found[traces[int(made.candidate_id[1:])]] = result.latency_s
    return found


def main(options: argparse.Namespace) -> int:
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.core.settings import TuneSettings
    from tunefleet.hardware.processor import machine_layout
    from tunefleet.workers.machine import Machine

    started = time.time()
    target, settings = native_target(), TuneSettings()
    orders = Orders(best_records(options.records), target)
    shares: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    with Machine(machine_layout().layout) as machine:
        for network in options.networks[: 1 if options.quick else None]:
            tasks = [w.task for w in tasks_of(network)][: 2 if options.quick else None]
            for task in tasks:
                programs = orders.programs(task, seed=1)
                if len(programs["shapes"]) < max(COUNTS) or len(programs["searched"]) < max(COUNTS):
                    continue  # a space too small, or without transfer_sources: nothing to choose
                traces = sorted({t for chosen in programs.values() for t in chosen})
                latency = measured(machine, target, settings, task, traces)
                best = min(latency.values())
                for order, chosen in programs.items():
                    for count in COUNTS:
                        own = [latency[t] for t in chosen[:count] if t in latency]
                        shares[network, order, count].append(best / min(own) if own else 0.0)
                print(f"{network} {task.name}: {len(latency)} programs", flush=True)
    rows = [_row(network, order, shares) for network in options.networks for order in ORDERS
            if shares[network, order, 1]]  # fmt: skip
    rows += [_row("", order, shares) for order in ORDERS]
    common.table(rows, list(rows[0]))
    return common.finish("transfer_sources", started, {"rows": rows}, [], options.json)


def _row(
    network: str, order: str, shares: dict[tuple[str, str, int], list[float]]
) -> dict[str, Any]:
    """Best of the first programs, as a share of the best of all that were measured: means."""
    row: dict[str, Any] = {"network": network or "all", "order": order}
    for count in COUNTS:
        found = [s for (n, o, c), own in shares.items() if (o, c) == (order, count)
                 and network in ("", n) for s in own]  # fmt: skip
        row["tasks"] = len(found)
        row[f"best of {count}"] = sum(found) / len(found)
    return row


if __name__ == "__main__":
    made = common.parser("Programs adapted from other tasks, by the order of the transfer_sources.")
    made.add_argument("--networks", nargs="+", default=list(NETWORKS))
    made.add_argument("--records", type=Path, default=RECORDS)
    common.run(main, made)
