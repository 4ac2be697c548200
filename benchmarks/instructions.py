"""How well models rank programs by tensor instructions: Table IV of UniCoMo (ICCD 2024) in kind.

Records of products of 8-bit integers and of bfloat16, of code for processors with AMX, with VNNI,
with AVX-512 and with AVX2, of each apart and mixed. Workloads are left out of training on all
processors: those that test are others. Beside each other:

xgb, per-store        boosted trees on MetaSchedule's features of lowered programs
attention, sequences  TLP's attention on sequences of primitives
xgb, tilings          boosted trees on tunefleet's features of decisions
unified, tilings      the unified model on these
unified, behaviours   the unified model on what loops load, compute and store

    .venv/bin/python benchmarks/instructions.py --json out.json
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import common
from tunefleet.core.statistics import median
from tunefleet.costmodel import AttentionModel, UnifiedModel, XGBModel, metrics
from tunefleet.dataset.codecs.codec import BadLine
from tunefleet.dataset.rows import Codes
from tunefleet.dataset.splits import SplitRows
from tunefleet.learning.inputs import Inputs
from tunefleet.learning.records import Records, read_records

_DATASETS = Path(__file__).resolve().parents[1] / "datasets"
RECORDS = [_DATASETS / "int8-epyc.parquet", _DATASETS / "tensor-xeon.parquet"]
MODELS = {
    "xgb, per-store": ("xgb", "per-store/1"),
    "attention, sequences": ("attention", "sequences/1"),
    "xgb, tilings": ("xgb", "tilings/1"),
    "unified, tilings": ("unified", "tilings/1"),
    "unified, behaviours": ("unified", "behaviours/1"),
}
#: What the unified model is held against.
RIVALS = ("xgb, per-store", "attention, sequences")
MIXED, CHANCE = "mixed", "chance"
AHEAD = 0.05
#: Shares of the workloads.
_TEST, _VALIDATION = 0.25, 0.1
#: Records that a quick run looks at: all of them take minutes to extract.
_QUICK = 2_000
COLUMNS = [
    "set",
    "model",
    "records",
    "tasks",
    "top1",
    "top1_range",
    "top5",
    "top5_range",
    "train_s",
]


@dataclass
class Bench:
    """Records, and their features by schema, each extracted once; of a quick one a sample."""

    records: Records
    options: argparse.Namespace
    features: dict[str, Inputs] = field(default_factory=dict)

    @cached_property
    def every(self) -> Codes:
        """Numbers of the rows that are looked at."""
        count = len(self.records.rows)
        most = _QUICK if self.options.quick else count
        return np.sort(np.random.default_rng(0).permutation(count)[:most])

    def sets(self) -> dict[str, Codes]:
        """Numbers of the rows of each instruction set, and of all."""
        targets = self.records.table.column("target").take(self.every).to_pylist()
        names = np.array([_instructions(target) for target in targets])
        of = {name: self.every[names == name] for name in np.unique(names)}
        return {**of, MIXED: self.every}

    def split(self, numbers: Codes, seed: int) -> SplitRows:
        """Whole workloads to each part, for all processors alike, of these rows alone."""
        workload = self.records.table.column("workload").combine_chunks().dictionary_encode()
        codes = workload.indices.to_numpy(zero_copy_only=False)
        generator = np.random.default_rng(seed)
        order = generator.permutation(len(workload.dictionary))
        bounds = (np.array([_TEST, _TEST + _VALIDATION, 1.0]) * len(order)).astype(int)
        parts, start = {}, 0
        for name, end in zip(("test", "validation", "train"), bounds, strict=True):
            own = numbers[np.isin(codes[numbers], order[start:end])]
            most = self.options.most if name == "train" else len(own)
            parts[name] = np.sort(generator.choice(own, min(most, len(own)), replace=False))
            start = end
        return SplitRows(**parts)

    def rows(self, name: str, numbers: Codes) -> Iterator[dict[str, Any]]:
        splits = [self.split(numbers, seed) for seed in range(self.options.seeds)]
        yield self._row(name, CHANCE, splits, [self._chance(split) for split in splits])
        for model in self.options.models:
            kind, schema = MODELS[model]
            found, seconds = [], []
            for seed, split in enumerate(splits):
                parts = self.inputs(schema).parts(kind, split)
                scorer = self._new(kind, seed)
                started = time.process_time()
                scorer.learn(parts.train.measured(), parts.validation.measured())
                seconds.append(time.process_time() - started)
                scores = scorer.predict(parts.test.programs)
                found.append(asdict(metrics.ranking(parts.test.labels, scores, parts.test.tasks)))
            yield self._row(name, model, splits, found) | {"train_s": median(seconds)}

    def inputs(self, schema: str) -> Inputs:
        if schema not in self.features:
            started = time.time()
            self.features[schema] = Inputs.of(self.records, self.every, schema, told)
            seconds = time.time() - started
            print(f"{schema}: {len(self.every):,} programs in {seconds:.0f} s", flush=True)
        return self.features[schema]

    def _new(self, kind: str, seed: int) -> Any:
        options = self.options
        if kind == "xgb":
            return XGBModel(rounds=300)
        if kind == "attention":
            return AttentionModel(options.hidden, epochs=options.epochs, seed=seed)
        return UnifiedModel(options.hidden, options.epochs, seed=seed)

    def _chance(self, split: SplitRows) -> dict[str, float]:
        rows = self.records.rows
        return asdict(metrics.random_ranking(rows.labels[split.test], rows.task[split.test]))

    def _row(
        self, name: str, model: str, splits: list[SplitRows], found: list[dict[str, float]]
    ) -> dict[str, Any]:
        tasks = self.records.rows.task
        row: dict[str, Any] = {
            "set": name, "model": model, "records": len(splits[0].train),
            "tasks": len(np.unique(tasks[splits[0].test])),
        }  # fmt: skip
        for score in ("top1", "top5"):
            values = [each[score] for each in found]
            row[score] = median(values)
            row[f"{score}_range"] = f"{min(values):.3f}-{max(values):.3f}"
        return row


def told(text: str) -> None:
    print(text, flush=True)


def refused(line: BadLine) -> None:
    raise SystemExit(str(line))


def _instructions(target: str) -> str:
    """The best instructions of a target's processor that multiply 8-bit integers."""
    from tunefleet.compiler.space.intrinsics import INTRINSICS, runs_on
    from tunefleet.compiler.toolchain.host import parse_target
    from tunefleet.dataset.splits import processor

    cpu = parse_target(processor(target), 1).cpu
    fitting = [each.name for each in INTRINSICS if runs_on(each, cpu)]
    return next((name.split(".")[0] for name in fitting), "none")


def checks(rows: list[dict[str, Any]]) -> list[common.Check]:
    made = []
    for name in dict.fromkeys(row["set"] for row in rows):
        own = {row["model"]: row for row in rows if row["set"] == name}
        rivals = [own[rival] for rival in RIVALS if rival in own]
        for model in (model for model in own if model.startswith("unified")):
            for score in ("top1", "top5"):
                above = own[model][score] - own[CHANCE][score]
                made.append(
                    common.at_least(f"{name}: {model} {score} above chance", above, 0, "aim")
                )
            if rivals:
                ahead = own[model]["top1"] - max(rival["top1"] for rival in rivals)
                bound = AHEAD if name == MIXED else 0.0
                made.append(common.at_least(f"{name}: {model} top1 ahead", ahead, bound, "aim"))
    return made


def main(options: argparse.Namespace) -> int:
    started = time.time()
    missing = [path for path in options.records if not path.is_file()]
    if missing:
        raise common.Skip(f"no records: {missing[0]} is missing")
    if options.quick:
        options.most, options.epochs, options.seeds, options.hidden = 300, 1, 1, 16
        options.models = ["xgb, tilings", "unified, tilings"]
    bench = Bench(read_records(options.records, device="", on_bad=refused, progress=told), options)
    rows: list[dict[str, Any]] = []
    sets = bench.sets()
    for name in options.sets or sets:
        numbers = sets[name]
        new = list(bench.rows(name, numbers))
        common.table(new, COLUMNS)
        print(flush=True)
        rows += new
    return common.finish("instructions", started, {"rows": rows}, checks(rows), options.json)


if __name__ == "__main__":
    made = common.parser(__doc__ or "")
    made.add_argument("--records", type=Path, nargs="+", default=RECORDS)
    made.add_argument("--sets", nargs="+", help="of instructions, such as vnni and mixed; else all")
    made.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    made.add_argument("--most", type=int, default=3_000, help="records to learn from, at most")
    made.add_argument("--epochs", type=int, default=30)
    made.add_argument("--hidden", type=int, default=64)
    made.add_argument("--seeds", type=int, default=3)
    common.run(main, made)
