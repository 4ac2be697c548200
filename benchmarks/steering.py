"""What the online model of a search ranks where tasks are in float32 and in 8-bit integers.

Recorded programs of both, measured on one processor with one thread: some of each task train the
trees as a search would, the rest of it is ranked.

    every task   a model that has learned float32 alone steers all of them: the trees learn what it
                 leaves of each label
    by card      it steers the tasks in float32, which its card tells; of the others the trees learn
                 whole labels, in the same fit
    none         no task is steered

    .venv/bin/python benchmarks/steering.py --json steering.json
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import common

DATASETS = Path(__file__).resolve().parents[1] / "datasets"
FILES = {"float32": "cpu-epyc.parquet", "int8": "int8-epyc.parquet"}
PROCESSOR = "znver4"
TASKS = {"float32": 16, "int8": 24}
#: Programs of a task that train: after one round of a search, and after two.
TRAIN = (6, 12)
#: A task needs as many more to be ranked.
LEAST_RANKED = 8
SCORES = ("top1", "top5", "pca")


def examples(name: str) -> Any:
    """The recorded programs of a precision on the processor."""
    from tunefleet.learning.inputs import Inputs
    from tunefleet.learning.records import read_records

    path = DATASETS / FILES[name]
    if not path.is_file():
        raise common.Skip(f"no records: {path} is missing")
    quiet: Any = lambda told: None  # noqa: E731
    records = read_records([path], device="", on_bad=quiet, progress=quiet)
    names = records.rows.target.names
    wanted = [f'"{PROCESSOR}"' in text and '"num-cores":1,' in text for text in names]
    numbers = np.flatnonzero(np.array(wanted)[records.rows.target.codes])
    return Inputs.of(records, numbers, "tilings/1", quiet).examples("attention")


def floats(given: Any, epochs: int) -> Any:
    """A model of the programs in float32: those that are ranked later are among them, for all sides
    alike."""
    from tunefleet.costmodel import AttentionModel

    measured = given.measured()
    return AttentionModel(64, epochs=epochs).fit(measured.programs, measured.labels, measured.tasks)


def drawn(given: Any, tasks: int, train: int, seed: int) -> tuple[Any, Any]:
    """Rows of some tasks: those that train, and those that are ranked."""
    generator = np.random.default_rng(seed)
    training: list[int] = []
    ranked: list[int] = []
    for task in generator.permutation(np.unique(given.tasks)):
        rows = generator.permutation(np.flatnonzero(given.tasks == task))
        if len(rows) >= train + LEAST_RANKED and tasks:
            tasks -= 1
            training += rows[:train].tolist()
            ranked += rows[train:].tolist()
    return np.array(training), np.array(ranked)


def ranked(train: int, seed: int, of: dict[str, Any], base: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each side and precision: how well its unseen programs are ranked. `base` are the
    scores of the model that steers."""
    from tunefleet.costmodel import MODELS, metrics
    from tunefleet.costmodel._lists import numbers_of
    from tunefleet.features.tilings import flatten

    parts = {name: drawn(of[name], TASKS[name], train, seed) for name in FILES}
    flat = {
        name: [flatten([of[name].programs[row] for row in rows]) for rows in parts[name]]
        for name in FILES
    }
    programs = [program for name in FILES for program in flat[name][0]]
    labels = np.concatenate([of[name].labels[parts[name][0]] for name in FILES])
    steered = {"every task": tuple(FILES), "by card": ("float32",), "none": ()}
    found = []
    for side, with_base in steered.items():
        offsets = [base[n][parts[n][0]] * (n in with_base) for n in FILES]
        model = MODELS["xgb"]()
        model.fit_residual(programs, labels, [""] * len(labels), np.concatenate(offsets))
        for name in FILES:
            rows = parts[name][1]
            scores = model.predict(flat[name][1]) + base[name][rows] * (name in with_base)
            tasks = numbers_of(of[name].tasks[rows].astype(str).tolist())
            told = asdict(metrics.ranking(of[name].labels[rows], scores, tasks))
            found.append({"side": side, "precision": name, "trained on": train, "seed": seed}
                         | {score: float(told[score]) for score in SCORES})  # fmt: skip
    return found


def main(options: argparse.Namespace) -> int:
    started = time.time()
    of = {name: examples(name) for name in FILES}
    model = floats(of["float32"], 2 if options.quick else options.epochs)
    base = {name: model.predict(each.programs) for name, each in of.items()}
    seeds = range(1 if options.quick else options.seeds)
    runs = [row for train in TRAIN for seed in seeds for row in ranked(train, seed, of, base)]
    keys = dict.fromkeys((r["precision"], r["trained on"], r["side"]) for r in runs)
    rows = []
    for precision, train, side in sorted(keys, key=lambda key: key[:2]):
        same = [r for r in runs if (r["precision"], r["trained on"]) == (precision, train)]
        means = {s: float(np.mean([r[s] for r in same if r["side"] == side])) for s in SCORES}
        rows.append({"precision": precision, "trained on": train, "side": side, **means})
    common.table(rows, list(rows[0]))
    return common.finish(
        "steering", started, {"rows": rows, "runs": runs}, checks(rows), options.json
    )


def checks(rows: list[dict[str, Any]]) -> list[common.Check]:
    """By card, integers are ranked as without a model and floats as with it: within .02."""
    top1 = {(r["precision"], r["trained on"], r["side"]): r["top1"] for r in rows}
    found = []
    for precision, other in (("int8", "none"), ("float32", "every task")):
        for train in TRAIN:
            gap = top1[precision, train, "by card"] - top1[precision, train, other]
            name = f"{precision}, {train} programs a task: top-1 by card less {other}"
            found.append(common.at_least(name, gap, -0.02, "condition"))
    return found


if __name__ == "__main__":
    made = common.parser("Rankings of an online model beside a pretrained one.")
    made.add_argument("--seeds", type=int, default=12)
    made.add_argument("--epochs", type=int, default=30, help="of the model in float32")
    common.run(main, made)
