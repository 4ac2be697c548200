"""Fewer records to train on: cost models of full and of sampled data on real records.

Table 7 of Verma et al., Applied Sciences 14(2):513, 2024, on other data: size of the training
part, training time (CPU seconds of one thread) and ranking of held-out programs, full and sampled,
under each split. Both are tested on the same records: the valid ones of the test part. `pca_ratio`
and `kept_ratio` are relative to full data, on all of them and on those of tasks that the sample
kept; `failed` is the pairwise accuracy when failed trials are ranked too. Sampled rows are medians
over seeds. `--curves` adds pairwise accuracy over sampling rate for all samplers.

    .venv/bin/python benchmarks/sampling.py --json out.json
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import common
import recorded_programs
from recorded_programs import CPU, DEVICES, GPU, Programs
from tunefleet.core.statistics import median
from tunefleet.costmodel import CostModel, LGBMModel, MLPModel, XGBModel, metrics
from tunefleet.dataset import sampling, splits
from tunefleet.dataset.rows import Codes

#: The paper: share of records saved, and its best saving of training time.
SAVED = {GPU: 0.43, CPU: 0.53}
SAVED_TIME = {GPU: 0.32, CPU: 0.56}
LEAST_PCA = 0.95

SPLITS = ("within_task", "by_task", "by_target")
SAMPLERS = ("flops", "random", "diversity")
#: Of each kind, the device that tests when it is held out.
HELD_OUT = {GPU: "2080ti", CPU: "a72"}
COLUMNS = ["device", "split", "model", "data", "records", "tasks", "train_s", "pca", "top1", "top5",
           "failed", "pca_ratio", "kept_ratio"]  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """What is held fixed while samplers are compared."""

    device: str
    kind: str
    split_name: str
    programs: Programs
    split: splits.SplitRows

    @property
    def test(self) -> Codes:
        return self.split.test[self.programs.rows.valid[self.split.test]]

    def sampled(self, sampler: str, rate: float, seed: int) -> Codes:
        """Rows of the training part that a sampler keeps."""
        rows = self.programs.rows.take(self.split.train)
        amount = sampling.SampleSize(rate, min_records=sampling.MIN_RECORDS)
        if sampler == "random":
            kept = sampling.uniform(rows, amount, seed)
        elif sampler == "flops":
            kept = sampling.by_flops(rows, amount, self.programs.flops, seed)
        else:
            vectors = self.programs.sequences.projected()[self.split.train]
            kept = sampling.diverse(rows, amount, vectors, seed)
        return self.split.train[kept]


@dataclass(frozen=True)
class Trained:
    """What a model scores the test part after training on some records, and what it cost."""

    setting: Setting
    model: str
    train: Codes
    seconds: float
    scores: Any

    def ranking(self, numbers: Codes) -> metrics.Ranking:
        """Of these test records, the best of each task being the best among them."""
        rows = self.setting.programs.rows
        scores = self.scores[np.searchsorted(self.setting.split.test, numbers)]
        return metrics.ranking(rows.labels[numbers], scores, rows.task[numbers])

    @property
    def kept(self) -> Codes:
        """Test records of tasks that are in the training part."""
        rows, test = self.setting.programs.rows, self.setting.test
        return test[np.isin(rows.task[test], rows.task[self.train])]


def train(setting: Setting, model: CostModel, inputs: list[Any], numbers: Codes) -> Trained:
    rows = setting.programs.rows
    given = recorded_programs.measured(inputs, rows, numbers)
    held = recorded_programs.measured(inputs, rows, setting.split.validation)
    started = time.process_time()
    model.fit(given.programs, given.labels, given.tasks, held)
    seconds = time.process_time() - started
    scores = model.predict([inputs[i] for i in setting.split.test])
    return Trained(setting, model.name, numbers, seconds, scores)


def row(trained: Trained, data: str, full: Trained) -> dict[str, Any]:
    setting = trained.setting
    found, best = trained.ranking(setting.test), full.ranking(setting.test)
    kept = trained.kept
    ratio = trained.ranking(kept).pca / full.ranking(kept).pca if len(kept) else None
    return {
        **head(setting, trained.model, data),
        "records": len(trained.train),
        "tasks": len(set(setting.programs.rows.task[trained.train].tolist())),
        "train_s": trained.seconds,
        "pca": found.pca, "top1": found.top1, "top5": found.top5,
        "failed": trained.ranking(setting.split.test).pca,
        "pca_ratio": found.pca / best.pca,
        "kept_ratio": ratio,
        "saved": 1 - len(trained.train) / len(full.train),
        "saved_time": 1 - trained.seconds / full.seconds,
    }  # fmt: skip


def head(setting: Setting, model: str, data: str) -> dict[str, Any]:
    return {"device": setting.device, "kind": setting.kind, "split": setting.split_name,
            "model": model, "data": data}  # fmt: skip


def random_row(setting: Setting) -> dict[str, Any]:
    """What a random ranking of the same test records is expected to reach."""
    rows, test = setting.programs.rows, setting.test
    found = metrics.random_ranking(rows.labels[test], rows.task[test])
    figures = {"pca": found.pca, "top1": found.top1, "top5": found.top5}
    return {**head(setting, "random", "-"), **figures}


def medians(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of several seeds; figures are medians, the range of the accuracy beside them."""
    found = dict(rows[0])
    for name, value in rows[0].items():
        if isinstance(value, int | float):
            values = [r[name] for r in rows if r[name] is not None]
            found[name] = median(values) if values else None
    ratios = [r["pca_ratio"] for r in rows]
    return {**found, "pca_ratio_from": min(ratios), "pca_ratio_to": max(ratios)}


def compare(
    setting: Setting, make: Callable[[], CostModel], seeds: int, samplers: list[str]
) -> Iterator[dict[str, Any]]:
    """The rows of one model: trained on everything, then on each sample."""
    inputs = setting.programs.programs(make().name)
    full = train(setting, make(), inputs, setting.split.train)
    yield row(full, "full", full)
    for sampler in samplers:
        yield medians(
            [
                row(train(setting, make(), inputs, kept), sampler, full)
                for seed in range(seeds)
                for kept in [setting.sampled(sampler, 1 - SAVED[setting.kind], seed)]
            ]
        )


def curve(
    setting: Setting, make: Callable[[], CostModel], rates: list[float], seeds: int
) -> Iterator[dict[str, Any]]:
    """Pairwise accuracy over sampling rate: median and range over seeds."""
    inputs = setting.programs.programs(make().name)
    for rate in rates:
        for sampler in SAMPLERS:
            parts = [setting.sampled(sampler, rate, seed) for seed in range(seeds)]
            runs = [train(setting, make(), inputs, part) for part in parts]
            found = [run.ranking(setting.test).pca for run in runs]
            yield {**head(setting, runs[0].model, sampler), "rate": rate,
                   "kept": median([len(p) for p in parts]) / len(setting.split.train),
                   "pca": median(found), "from": min(found), "to": max(found)}  # fmt: skip


def settings(options: argparse.Namespace) -> Iterator[Setting]:
    tables: dict[str, pa.Table] = {}
    for device in options.devices:
        table = recorded_programs.read(device)
        if table is None:
            print(f"skipped {device}: no logs in {DEVICES[device][1]} of the shared data")
            continue
        tables[device] = table
        programs, kind = Programs.of(table), DEVICES[device][0]
        if "within_task" in options.splits:
            split = splits.within_task(programs.rows)
            yield setting(device, kind, "within_task", programs, split, options.records)
        if "by_task" in options.splits:
            split = splits.by_task(programs.rows)
            yield setting(device, kind, "by_task", programs, split, options.records)
    if "by_target" in options.splits:
        yield from held_out(tables, options.records)


def held_out(tables: dict[str, pa.Table], most: int) -> Iterator[Setting]:
    for kind, device in HELD_OUT.items():
        of_kind = [name for name in tables if DEVICES[name][0] == kind]
        if device not in of_kind or len(of_kind) < 2:
            print(f"skipped by_target of the {kind}s: it takes {device} and another one")
            continue
        programs = Programs.of(pa.concat_tables([tables[name] for name in of_kind]))
        split = splits.by_target(programs.rows, device)
        yield setting(device, kind, "by_target", programs, split, most)


def setting(
    device: str, kind: str, name: str, programs: Programs, split: splits.SplitRows, most: int
) -> Setting:
    drawn, capped = programs.capped(split, most)
    before, after = (
        ", ".join(f"{len(numbers)} {part}" for part, numbers in s.parts().items())
        for s in (split, capped)
    )
    print(f"\n{device} {name}: records to {before}; drawn of them: {after}")
    return Setting(device, kind, name, drawn, capped)


def makers(options: argparse.Namespace) -> dict[str, Callable[[], CostModel]]:
    quick = options.quick
    return {
        "xgb": lambda: XGBModel(rounds=30 if quick else options.rounds),
        "lgbm": lambda: LGBMModel(rounds=30 if quick else options.rounds),
        "mlp": lambda: MLPModel(epochs=3 if quick else 50),
    }


def warm_up(make: dict[str, Callable[[], CostModel]]) -> None:
    """Import what models need: the first one trained must not pay for it."""
    for maker in make.values():
        maker().fit([np.zeros((1, 4), np.float32)] * 2, np.ones(2), ["task"] * 2)


def aim(name: str, value: float, bound: float) -> common.Check:
    return common.at_least(name, value, bound, "aim")


def checks(rows: list[dict[str, Any]]) -> list[common.Check]:
    """The aims, for each kind of device, split and sampler, over models and devices."""
    found = []
    sampled = [r for r in rows if r["data"] in SAMPLERS]
    groups = dict.fromkeys((r["kind"], r["split"], r["data"]) for r in sampled)
    for kind, split, data in groups:
        of = [r for r in sampled if (r["kind"], r["split"], r["data"]) == (kind, split, data)]
        name = f"{kind} {split} {data}"
        ratios = [r["pca_ratio"] for r in of]
        kept = [r["kept_ratio"] for r in of if r["kept_ratio"] is not None]
        time_saved = median([r["saved_time"] for r in of])
        found += [
            aim(f"{name}: records saved, least", min(r["saved"] for r in of), SAVED[kind]),
            aim(f"{name}: PCA / full, worst", min(ratios), LEAST_PCA),
            aim(f"{name}: PCA / full, median", median(ratios), LEAST_PCA),
            aim(f"{name}: training time saved, median", time_saved, SAVED_TIME[kind]),
            aim(f"{name}: training time saved, most", max(r["saved_time"] for r in of),
                SAVED_TIME[kind]),
        ]  # fmt: skip
        if kept:
            found.append(aim(f"{name}: PCA / full on tasks kept, worst", min(kept), LEAST_PCA))
    return found


def main(options: argparse.Namespace) -> int:
    common.need_data()
    started = time.time()
    if options.quick:
        options.records, options.seeds, options.rates = 1500, 1, [0.5]
    make = makers(options)
    warm_up(make)
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for setting in settings(options):
        new = [random_row(setting)]
        for name in options.models:
            new += compare(setting, make[name], options.seeds, options.samplers)
        common.table(new, COLUMNS)
        rows += new
        if options.curves:
            points = list(curve(setting, make[options.models[0]], options.rates, options.seeds))
            common.table(points, list(points[0]))
            curves += points
        sys.stdout.flush()
    figures = {"rows": rows, "curves": curves, "records": options.records, "seeds": options.seeds}
    return common.finish("sampling", started, figures, checks(rows), options.json)


if __name__ == "__main__":
    made = common.parser("Cost models of full and of sampled data, on real records.")
    made.add_argument("--devices", nargs="+", choices=DEVICES, default=list(DEVICES))
    made.add_argument("--models", nargs="*", choices=("xgb", "lgbm", "mlp"),
                      default=["xgb", "lgbm", "mlp"])  # fmt: skip
    made.add_argument("--splits", nargs="+", choices=SPLITS, default=list(SPLITS))
    made.add_argument("--samplers", nargs="*", choices=SAMPLERS, default=list(SAMPLERS))
    made.add_argument("--records", type=int, default=8_000, help="records to train on, at most")
    made.add_argument("--rounds", type=int, default=300, help="rounds of boosted trees, at most")
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--curves", action="store_true", help="accuracy over rate, the first model")
    made.add_argument("--rates", nargs="+", type=float,
                      default=[round(i / 10, 1) for i in range(1, 11)])  # fmt: skip
    common.run(main, made)
