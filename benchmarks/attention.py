"""Which behaviours of a program the unified model's network looks at, and which it needs.

A network learns to rank programs of products by what their loops load, compute and store
(`behaviours/1`), plain and by tensor instructions. Of programs of tasks that it has not seen:

    attention   how much of what a program's rows see of each other is of rows of a kind, as a
                multiple of an equal share, by head
    top-1 lost  by the ranking where rows of a kind, or some numbers of all rows, are those of
                another program of the same task (permutation importance; Breiman, 2001)

Attention is what UniCoMo (ICCD 2024) goes by. It tells what is mixed into what, not what decides:
so the second stands beside it.

    .venv/bin/python benchmarks/attention.py --json attention.json --picture docs/attention.png
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import common
from instructions import RECORDS, Bench, refused, told
from tunefleet.core.statistics import median
from tunefleet.costmodel import AttentionModel, UnifiedModel, metrics
from tunefleet.features.behaviours import PARTS, SCHEMA, Behaviour, behaviours_of
from tunefleet.learning.records import read_records

#: Programs whose attention is looked at, and how often numbers are exchanged.
_LOOKED_AT, _EXCHANGES = 500, 3
#: Of the model, besides rows of a kind.
_ALL = "all of it"

Rows = NDArray[np.float32]


@dataclass(frozen=True)
class Unseen:
    """Programs that test, with their tasks and labels."""

    programs: list[Rows]
    tasks: NDArray[Any]
    labels: NDArray[np.float64]

    def top1(self, network: AttentionModel, programs: Sequence[Rows]) -> float:
        return metrics.ranking(self.labels, network.predict(programs), self.tasks).top1


def attention_of(network: AttentionModel, programs: Sequence[Rows]) -> dict[str, list[float]]:
    """By kind of row, what a row of it is of what is seen, as a multiple of an equal share, in the
    mean of the programs that have such rows; of each head."""
    shares = defaultdict(list)
    for rows in programs:
        seen = network.attention(rows).mean(axis=1) * len(rows)  # (heads, rows)
        kinds = np.array(behaviours_of(rows))
        for kind in np.unique(kinds):
            shares[str(kind)].append(seen[:, kinds == kind].mean(axis=1))
    return {kind: np.mean(of_kind, axis=0).tolist() for kind, of_kind in shares.items()}


def lost(network: AttentionModel, unseen: Unseen, seed: int) -> dict[str, float]:
    """Top-1 that goes with each kind of rows and each part of the columns."""
    whole = unseen.top1(network, unseen.programs)
    kinds = [np.array(behaviours_of(rows)) for rows in unseen.programs]
    every = np.arange(unseen.programs[0].shape[1])
    cases: dict[str, tuple[tuple[str, ...], Any]] = {
        **{kind.value: ((kind.value,), every) for kind in Behaviour},
        **{name: (tuple(Behaviour), np.array(columns)) for name, columns in PARTS.items()},
        _ALL: (tuple(Behaviour), every),
    }
    found = {}
    for name, (of_kinds, columns) in cases.items():
        generator = np.random.default_rng(seed)
        tops = []
        for _ in range(_EXCHANGES):
            partners = _partners(unseen.tasks, generator)
            programs = [
                exchanged(unseen.programs[i], kinds[i], unseen.programs[j], kinds[j], of_kinds,
                          columns)
                for i, j in enumerate(partners)
            ]  # fmt: skip
            tops.append(unseen.top1(network, programs))
        found[name] = whole - float(np.mean(tops))
    return found


def _partners(tasks: NDArray[Any], generator: np.random.Generator) -> NDArray[np.int64]:
    """For each program another of its task."""
    partners = np.arange(len(tasks))
    for task in np.unique(tasks):
        own = generator.permutation(np.flatnonzero(tasks == task))
        partners[own] = np.roll(own, 1)
    return partners


def exchanged(
    rows: Rows,
    kinds: NDArray[Any],
    others: Rows,
    other_kinds: NDArray[Any],
    of_kinds: Sequence[str],
    columns: NDArray[np.int64],
) -> Rows:
    """A program with numbers of another's rows of the same kinds, in their order."""
    made = rows.copy()
    for kind in of_kinds:
        mine, theirs = np.flatnonzero(kinds == kind), np.flatnonzero(other_kinds == kind)
        if len(mine) and len(theirs):
            near = theirs[np.arange(len(mine)) * len(theirs) // len(mine)]
            made[np.ix_(mine, columns)] = others[np.ix_(near, columns)]
    return made


def draw(path: Path, rows: list[dict[str, Any]], parts: list[dict[str, Any]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), layout="constrained")
    panels = figure.subplot_mosaic(
        [["seen", "rows"], ["numbers", "numbers"]],
        width_ratios=(2, 1),
        height_ratios=(len(rows), len(parts)),
    )
    heads = np.array([row["attention"] for row in rows])
    axes = panels["seen"]
    image = axes.imshow(np.log2(heads), cmap="RdBu_r", vmin=-3, vmax=3, aspect="auto")
    for (y, x), value in np.ndenumerate(heads):
        axes.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=7)
    axes.set(
        xlabel="heads, each kind from the least to the most",
        title="attention to a row, as a multiple of an equal share",
        xticks=range(heads.shape[1]), yticks=range(len(rows)),
        yticklabels=[row["rows"] for row in rows],
    )  # fmt: skip
    figure.colorbar(image, ax=axes, label="log2", pad=0.01)
    _bars(panels["rows"], [row["top1 lost"] for row in rows])
    panels["rows"].set(title="top-1 lost", yticks=[])
    _bars(panels["numbers"], [part["top1 lost"] for part in parts])
    panels["numbers"].set(yticks=range(len(parts)), yticklabels=[part["numbers"] for part in parts])
    figure.savefig(path, dpi=110)


def _bars(axes: Any, values: list[float]) -> None:
    axes.barh(range(len(values)), values, color="#0f6b6b")
    axes.invert_yaxis()
    axes.grid(True, axis="x", alpha=0.25)


def main(options: argparse.Namespace) -> int:
    started = time.time()
    missing = [path for path in options.records if not path.is_file()]
    if missing:
        raise common.Skip(f"no records: {missing[0]} is missing")
    if options.quick:
        options.most, options.epochs, options.seeds, options.hidden = 200, 1, 1, 16
    records = read_records(options.records, device="", on_bad=refused, progress=told)
    bench = Bench(records, options)
    attention: dict[str, list[list[float]]] = defaultdict(list)
    losses: dict[str, list[float]] = defaultdict(list)
    for seed in range(options.seeds):
        parts = bench.inputs(SCHEMA).parts("unified", bench.split(bench.every, seed))
        model = UnifiedModel(options.hidden, options.epochs, seed=seed)
        model.learn(parts.train.measured(), parts.validation.measured())
        test = parts.test
        unseen = Unseen([np.asarray(p) for p in test.programs], test.tasks, test.labels)
        generator = np.random.default_rng(seed)
        chosen = generator.permutation(len(unseen.programs))[:_LOOKED_AT]
        seen = attention_of(model.network, [unseen.programs[i] for i in chosen])
        for kind, heads in seen.items():
            attention[kind].append(sorted(heads))
        for name, value in lost(model.network, unseen, seed).items():
            losses[name].append(value)
        losses["top1"].append(unseen.top1(model.network, unseen.programs))
    rows = [
        {
            "rows": kind.value,
            "attention": np.median(attention[kind.value], axis=0).tolist(),
            "mean of heads": float(np.mean(attention[kind.value])),
            "top1 lost": median(losses[kind.value]),
        }
        for kind in Behaviour
        if attention[kind.value]
    ]
    numbers = [
        {"numbers": name, "top1 lost": median(losses[name])} for name in (*PARTS, _ALL)
    ]  # fmt: skip
    common.table(rows, ["rows", "mean of heads", "top1 lost"])
    common.table(numbers, list(numbers[0]))
    if options.picture:
        draw(options.picture, rows, numbers)
    figures = {"rows": rows, "numbers": numbers, "top1": median(losses["top1"])}
    return common.finish("attention", started, figures, [], options.json)


if __name__ == "__main__":
    made = common.parser(__doc__ or "")
    made.add_argument("--records", type=Path, nargs="+", default=RECORDS)
    made.add_argument("--most", type=int, default=3_000, help="records to learn from, at most")
    made.add_argument("--epochs", type=int, default=30)
    made.add_argument("--hidden", type=int, default=64)
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--picture", type=Path, help="draw what was found into this file")
    common.run(main, made)
