"""Behaviours of programs from their decisions: are they those of the lowered programs, how many are
told, how fast.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/behaviours.py --json out.json

Random programs of every sketch of the networks' tasks. `derived` are told from their decisions,
`remembered` are as one that was lowered before; the others are lowered. `same` are equal bit by bit
to what lowering gives, of all that are compared: `--compared` of a sketch.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import Any

import numpy as np

import common

NETWORKS = [
    "zoo:tiny_cnn",
    "zoo:tiny_cnn?precision=int8",
    "zoo:mobilenet_v2?size=64",
    "zoo:bert_tiny?size=16",
    "zoo:bert_tiny?size=16&precision=int8",
    "zoo:resnet50?size=64",
    "zoo:resnet50?size=64&precision=int8",
]
CUDA = ["zoo:tiny_cnn"]
COLUMNS = [
    "network", "target", "kind", "sketches", "programs", "derived", "remembered", "lowered",
    "compared", "same", "told_ms", "lower_ms", "times",
]  # fmt: skip


def main(options: argparse.Namespace) -> int:
    started = time.time()
    rows, why = [], Counter[str]()
    named = {"cpu": NETWORKS[: 2 if options.quick else None], "cuda": CUDA}
    cases = [(n, t) for t in options.targets for n in options.networks or named[t]]
    for network, target in cases:
        rows += _network(network, target, options, why)
        common.table(rows, COLUMNS)
    for reason, count in why.most_common():
        print(f"{count:6} {reason}")
    cpu = [row for row in rows if row["target"] == "cpu"] or rows
    compared, same = (sum(r[c] for r in rows) for c in ("compared", "same"))
    told = sum(r["derived"] + r["remembered"] for r in cpu) / sum(r["programs"] for r in cpu)
    derived = sum(r["derived"] for r in cpu) / sum(r["programs"] for r in cpu)
    checks = [
        common.at_least("share of compared that is the same", same / compared, 1.0, "condition",
                        any_size=True),
        common.at_least("share of programs of CPUs that is not lowered", told, 0.8, "aim"),
        common.at_least("share that is told from decisions alone", derived, 0.8, "aim"),
        common.at_least(
            "times as fast as lowering, all programs of CPUs",
            _times(cpu), 10.0, "aim",
        ),
    ]  # fmt: skip
    return common.finish(
        "behaviours", started, {"rows": rows, "why": dict(why)}, checks, options.json
    )


def _times(rows: list[dict[str, Any]]) -> float:
    """Lowering all against telling all."""
    lowering = sum(r["programs"] * (r["lower_ms"] or 0) for r in rows)
    return float(lowering / sum(r["programs"] * r["told_ms"] for r in rows))


def _network(
    network: str, kind: str, options: argparse.Namespace, why: Counter[str]
) -> list[dict[str, Any]]:
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.core.target import CudaTarget
    from tunefleet.stages.importing import import_network

    cpu = native_target(1)
    target = cpu if kind == "cpu" else CudaTarget("sm_80", cpu)
    rows: dict[str, dict[str, float]] = {}
    for weighted in import_network(network, target).tasks:
        _task(weighted.task.program, target, options, rows, why)
    return [_row(network, kind, of, found) for of, found in sorted(rows.items())]


def _row(network: str, target: str, kind: str, found: dict[str, float]) -> dict[str, Any]:
    told = 1e3 * found["told_s"] / found["programs"]
    lower = 1e3 * found["lower_s"] / found["compared"] if found["compared"] else None
    counts = {c: int(found[c]) for c in COLUMNS if c in found}
    return {
        "network": network,
        "target": target,
        "kind": kind,
        **{column: counts.get(column, 0) for column in COLUMNS[3:10]},
        "told_ms": told,
        "lower_ms": lower,
        "times": lower / told if lower else None,
    }


def _task(
    program: str,
    target: Any,
    options: argparse.Namespace,
    rows: dict[str, dict[str, float]],
    why: Counter[str],
) -> None:
    from tunefleet.compiler.nests.encoding import Counts, TaskBehaviours
    from tunefleet.compiler.space.opening import task_space

    rng = np.random.default_rng(0)
    context = np.zeros(32, np.float32)
    behaviours = TaskBehaviours(program, target)
    space = task_space(program, target).decisions
    for number, sketch in enumerate(space.sketches):
        picks = sketch.sample(options.programs, rng)
        population = space.population(number, picks)
        behaviours.counts = counts = Counts()
        told, told_s = _timed(lambda p=population: behaviours.encode(p, context))
        some = rng.choice(len(picks), min(options.compared, len(picks)), replace=False)
        compared, lower_s = _compare(behaviours, number, sketch.settled(picks), told, some, context)
        of = rows.setdefault(_kind(sketch), {})
        figures = {
            "sketches": 1, "programs": len(picks), "derived": counts.derived,
            "remembered": counts.remembered, "lowered": counts.lowered, "told_s": told_s,
            "lower_s": lower_s, "compared": len(compared), "same": sum(compared),
        }  # fmt: skip
        of.update({name: of.get(name, 0.0) + value for name, value in figures.items()})
        why.update(behaviours.derived(number).why)


def _compare(
    behaviours: Any, number: int, picks: Any, told: list[Any], some: Any, context: Any
) -> tuple[list[bool], float]:
    from tunefleet.features.behaviours import encode

    same, seconds = [], 0.0
    for place in some:
        began = time.perf_counter()
        found = behaviours.lowered(number, picks[place])
        rows = None if found is None else encode(found, context)
        seconds += time.perf_counter() - began
        if rows is None or told[place] is None:
            same.append(rows is told[place])
        else:
            same.append(np.array_equal(rows, told[place]))
    return same, seconds


def _kind(sketch: Any) -> str:
    kinds = Counter(instruction[0] for instruction in sketch.instructions)
    if kinds["Tensorize"] > 1:
        return "tiles of a tensor instruction"
    if kinds["Tensorize"]:
        return "vectors of a tensor instruction"
    if kinds["RFactor"]:
        return "reduction taken apart"
    if any(
        kind == "Annotate" and attributes[0] == "meta_schedule.tiling_structure"
        for kind, _, attributes, _ in sketch.instructions
    ):
        return "tiling, blocks that move" if kinds["SampleComputeLocation"] else "tiling"
    return "other"


def _timed(call: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    return call(), time.perf_counter() - began


if __name__ == "__main__":
    options = common.parser(__doc__ or "")
    options.add_argument("--programs", type=int, default=300, help="of a sketch")
    options.add_argument("--compared", type=int, default=10, help="of a sketch")
    options.add_argument("--networks", nargs="*", help="instead of those above")
    options.add_argument("--targets", nargs="*", default=["cpu", "cuda"], choices=["cpu", "cuda"])
    common.run(main, options)
