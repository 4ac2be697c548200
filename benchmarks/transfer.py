"""Cost models of devices and tasks that they have not seen: real records, attention beside XGB.

Table 10 and Figures 2 and 3 of Verma et al., Applied Sciences 14(2):513, 2024, on other data
(`recorded_devices.py`). Every row of a device is tested on the same valid records of it, which are
of its tasks but of no program that trains.

measured again
               no model, but a program's other measurements: what the noise of a log leaves to know
native         trained on records of the device
zero-shot      trained on the other devices that write programs of the same format: those of the
               same kind ("gpu", "cpu"), of a CPU also those of either ("all")
few-shot N     N records of the device beside: 10 of each of N / 10 tasks, labels relative to the
               best among them, since nobody would know a better one. `fine-tuned` goes on training
               the zero-shot model; `residual` adds XGB of what its predictions lack; `alone` is XGB
               of those records only
ensemble       the mean of the scores of all seeds

    .venv/bin/python benchmarks/transfer.py --json out.json [--part by_task|rmse] [--devices ...]

A run adds its devices to those that the file has.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import common
from recorded_devices import ANSOR, CPU, DEVICES, Fleet, evenly
from tunefleet.core.statistics import median
from tunefleet.costmodel import AttentionModel, LGBMModel, Measured, MLPModel, XGBModel, metrics
from tunefleet.dataset.rows import Codes

Scores = Any

#: Records of a task among few.
_TOGETHER = 10
FEW = (50, 100, 200)
#: Fewer records of programs measured more than once say nothing of a device.
_ENOUGH_AGAIN = 1_000
COLUMNS = ["device", "data", "model", "records", "top1", "top1_range", "top5", "top5_range", "pca",
           "rmse", "train_s"]  # fmt: skip
#: Aims: native top-1 and top-5; of an unseen device top-5, and how far below native XGB's.
NATIVE, UNSEEN_TOP5, BEHIND = (0.92, 0.97), 0.90, 0.03
#: Sets on which a random ranking scores least.
DISCRIMINATING = ("2080ti", "a72", "autotvm-")


def _models(kind: str, options: argparse.Namespace) -> list[Any]:
    """One for each seed of what knows chance."""
    if kind == "xgb":
        return [XGBModel(rounds=300)]
    make = {
        "attention": lambda seed: AttentionModel(
            options.hidden, epochs=options.epochs, patience=options.patience, seed=seed
        ),
        "mlp": lambda seed: MLPModel(epochs=50, seed=seed),
    }
    return [make[kind](seed) for seed in range(options.seeds)]


@dataclass(frozen=True)
class Bench:
    """A device that tests, and what is held fixed."""

    fleet: Fleet
    name: str
    options: argparse.Namespace

    @property
    def test(self) -> Codes:
        numbers = self.fleet.parts[self.name].test
        return numbers[self.fleet.records.rows.valid[numbers]]

    def scores(self, model: Any) -> Scores:
        return model.predict(self.fleet.programs(model.name, self.test))

    def row(
        self, data: str, model: str, records: int, runs: Sequence[Scores], seconds: float = 0.0
    ) -> dict[str, Any]:
        """Medians and ranges of runs that differ in their seed; CPU seconds of training one."""
        return self._row(data, model, records, [(self.test, run) for run in runs], seconds)

    def _row(
        self,
        data: str,
        model: str,
        records: int,
        runs: Sequence[tuple[Codes, Scores]],
        seconds: float = 0.0,
    ) -> dict[str, Any]:
        """Of scores and the records that they are of."""
        rows = self.fleet.records.rows
        found = [
            {**asdict(metrics.ranking(rows.labels[test], scores, rows.task[test])),
             "rmse": metrics.rmse(rows.labels[test], scores)}
            for test, scores in runs
        ]  # fmt: skip
        head = {"device": self.name, "data": data, "model": model, "records": records}
        values = {name: [each[name] for each in found] for name in found[0]}
        return {
            **head,
            **{name: median(of) for name, of in values.items()},
            **{f"{name}_range": f"{min(of):.3f}-{max(of):.3f}" for name, of in values.items()},
            "train_s": seconds,
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        yield self.random()
        yield from self.again()
        part, generator = self.fleet.parts[self.name], np.random.default_rng(0)
        own = evenly(part.train, self.fleet.records.rows.task, self.options.records, generator)
        yield from self.compared("native", own, part.validation)
        if self.options.native:
            return
        kind = DEVICES[self.name].kind
        others = [name for name in self.fleet.parts if name != self.name]
        alike = [name for name in others if DEVICES[name].kind == kind]
        for label, sources in {kind: alike, "all": others}.items():
            if sources and (label == kind or kind == CPU or not alike):
                yield from self._from(label, sources)

    def random(self) -> dict[str, Any]:
        rows, test = self.fleet.records.rows, self.test
        chance = asdict(metrics.random_ranking(rows.labels[test], rows.task[test]))
        return {"device": self.name, "data": "-", "model": "random", **chance}

    def again(self) -> Iterator[dict[str, Any]]:
        """Programs that were measured more than once, ranked by their other measurements: about
        what one who knew them all could do. Three draws of as many as there are to test."""
        rows = self.fleet.records.rows
        of_device = np.isin(rows.task, rows.task[self.fleet.parts[self.name].test])
        count, total = np.bincount(rows.program), np.bincount(rows.program, rows.labels)
        several = np.flatnonzero(of_device & rows.valid & (count[rows.program] > 1))
        if len(several) < _ENOUGH_AGAIN:
            return
        runs = []
        for seed in range(3):
            generator = np.random.default_rng(seed)
            size = min(self.options.test, len(several))
            drawn = np.sort(generator.choice(several, size, replace=False))
            program = rows.program[drawn]
            runs.append((drawn, (total[program] - rows.labels[drawn]) / (count[program] - 1)))
        yield self._row("-", "measured again", len(several), runs)

    def train(self, kind: str, train: Codes, held: Codes) -> tuple[list[Any], float]:
        """Models of each seed and the CPU seconds of one."""
        given, validation = (self.fleet.measured(kind, n) for n in (train, held))
        models = _models(kind, self.options)
        started = time.process_time()
        for model in models:
            model.fit(given.programs, given.labels, given.tasks, validation)
        return models, (time.process_time() - started) / len(models)

    def compared(
        self, data: str, train: Codes, held: Codes, kinds: Sequence[str] = ("xgb", "attention")
    ) -> Iterator[dict[str, Any]]:
        for kind in kinds:
            models, seconds = self.train(kind, train, held)
            yield from self.of_seeds(data, models, len(train), seconds)

    def of_seeds(
        self, data: str, models: Sequence[Any], records: int, seconds: float
    ) -> Iterator[dict[str, Any]]:
        runs = [self.scores(model) for model in models]
        yield self.row(data, models[0].name, records, runs, seconds)
        if len(runs) > 1:
            mean = [np.mean(runs, axis=0)]
            yield self.row(data, f"{models[0].name} ensemble", records, mean, seconds)

    def _from(self, label: str, sources: Sequence[str]) -> Iterator[dict[str, Any]]:
        rows, generator = self.fleet.records.rows, np.random.default_rng(0)

        def drawn(part: str, most: int) -> Codes:
            each = [getattr(self.fleet.parts[name], part) for name in sources]
            shares = [evenly(n, rows.task, most // len(each), generator) for n in each]
            return np.sort(np.concatenate(shares))

        train = drawn("train", self.options.sources)
        held = drawn("validation", self.options.sources // 4)
        trees, seconds = self.train("xgb", train, held)
        yield from self.of_seeds(f"zero-shot {label}", trees, len(train), seconds)
        models, seconds = self.train("attention", train, held)
        yield from self.of_seeds(f"zero-shot {label}", models, len(train), seconds)
        known = [self.scores(model) for model in models]
        for count in FEW:
            yield from self._few(f"few-shot {count} {label}", models, known, count)

    def _few(
        self, data: str, models: Sequence[AttentionModel], known: Sequence[Scores], count: int
    ) -> Iterator[dict[str, Any]]:
        runs: dict[str, list[Scores]] = {"fine-tuned": [], "residual": [], "alone": []}
        for seed, (model, scores) in enumerate(zip(models, known, strict=True)):
            numbers, labels = self._drawn(count, seed)
            given = self.fleet.measured(model.name, numbers, labels)
            tuned = AttentionModel.load(model.save())
            tuned.partial_fit(
                given.programs, given.labels, given.tasks, epochs=30, learning_rate=5e-4
            )
            runs["fine-tuned"].append(self.scores(tuned))
            flat = self.fleet.measured("xgb", numbers, labels)
            missing = labels - model.predict(given.programs)
            # Its loss weighs records by their label, which must not be negative.
            local = XGBModel().fit(flat.programs, 1.0 + missing, flat.tasks)
            runs["residual"].append(scores + self.scores(local) - 1.0)
            runs["alone"].append(
                self.scores(XGBModel().fit(flat.programs, flat.labels, flat.tasks))
            )
        for name, found in runs.items():
            yield self.row(data, name, count, found)

    def _drawn(self, count: int, seed: int) -> tuple[Codes, Scores]:
        """A few records of the training part, whole groups of a task, and their labels."""
        rows, generator = self.fleet.records.rows, np.random.default_rng(seed)
        own = generator.permutation(self.fleet.parts[self.name].train)
        found: list[Codes] = []
        for task in generator.permutation(np.unique(rows.task[own])):
            of_task = own[rows.task[own] == task][:_TOGETHER]
            if len(of_task) == _TOGETHER and rows.valid[of_task].any():
                found.append(of_task)
        numbers = np.concatenate(found[: count // _TOGETHER])
        labels = np.concatenate(
            [rows.latency_s[n].min() / rows.latency_s[n] for n in np.split(numbers, range(
                _TOGETHER, len(numbers), _TOGETHER))]
        )  # fmt: skip
        return numbers, labels


def devices(options: argparse.Namespace) -> tuple[dict[str, Any], list[common.Check]]:
    rows: list[dict[str, Any]] = []
    if options.json and options.json.exists():
        known = json.loads(options.json.read_text())["figures"]["rows"]
        rows = [row for row in known if row["device"] not in options.devices]
    fleet: Fleet | None = None
    for name in options.devices:
        family = [n for n, device in DEVICES.items() if device.family == DEVICES[name].family]
        family = [name] if options.native else family
        if fleet is None or name not in fleet.parts:
            fleet = Fleet.of(family, max(options.records, options.sources), options.test)
            print(f"read {len(fleet.records.rows):,} records of {', '.join(fleet.parts)}")
        new = []
        for row in Bench(fleet, name, options).rows():
            common.table([row], COLUMNS)
            sys.stdout.flush()
            new.append(row)
        print()
        common.table(new, COLUMNS)
        rows += new
        _write(options, {"rows": rows})
    return {"rows": rows}, checks(rows)


def _write(options: argparse.Namespace, figures: dict[str, Any]) -> None:
    if options.json:
        options.json.write_text(json.dumps({"benchmark": "transfer", "figures": figures}))


def aim(name: str, value: float, bound: float) -> common.Check:
    return common.at_least(name, value, bound, "aim")


def checks(rows: list[dict[str, Any]]) -> list[common.Check]:
    found = []
    for device in dict.fromkeys(row["device"] for row in rows):
        own = [row for row in rows if row["device"] == device]
        native = {row["model"]: row for row in own if row["data"] == "native"}
        if device.startswith(DISCRIMINATING):
            found += [
                aim(f"{device}: attention native {name}", native["attention"][name], bound)
                for name, bound in zip(("top1", "top5"), NATIVE, strict=True)
            ]
        for row in own:
            if row["data"].startswith("zero-shot") and row["model"] == "attention":
                name = f"{device}: {row['data']}"
                top5 = row["top5"]
                found += [
                    aim(f"{name} top5", top5, UNSEEN_TOP5),
                    aim(f"{name} top5 less native XGB's", top5 - native["xgb"]["top5"], -BEHIND),
                ]
    return found


def by_task(options: argparse.Namespace) -> tuple[dict[str, Any], list[common.Check]]:
    """One network's tasks of the 2080 Ti train, the other's test."""
    fleet = Fleet.of(["2080ti"], 10**9, 10**9)
    rows, part = fleet.records.rows, fleet.parts["2080ti"]
    is_bert = np.array(["bert-B1" in name for name in rows.source.names])[rows.source.codes]
    found, compared = [], []
    for trained, mine in (("BERT", is_bert), ("ResNet-50", ~is_bert)):
        generator = np.random.default_rng(0)
        tests = np.concatenate([part.train, part.validation, part.test])
        tests = tests[~mine[tests] & rows.valid[tests]]
        tests = np.sort(generator.choice(tests, min(options.test, len(tests)), replace=False))
        held = evenly(part.validation[mine[part.validation]], rows.task, 1500, generator)
        train = evenly(part.train[mine[part.train]], rows.task, options.records, generator)
        bench = _Fixed(fleet, "2080ti", options, tests)
        data = f"trained on {trained}"
        new = [bench.random(), *bench.compared(data, train, held, ("xgb", "mlp", "attention"))]
        common.table(new, COLUMNS)
        by_model = {row["model"]: row for row in new[::-1]}
        best = max(by_model[other]["top1"] for other in ("xgb", "mlp"))
        ahead = by_model["attention"]["top1"] - best
        compared.append(aim(f"{data}: attention top1 less the best other's", ahead, 0.05))
        found += new
    return {"rows": found}, compared


@dataclass(frozen=True)
class _Fixed(Bench):
    """Tests on these rows."""

    tests: Codes

    @property
    def test(self) -> Codes:
        return self.tests


def rmse(options: argparse.Namespace) -> tuple[dict[str, Any], list[common.Check]]:
    """Error and accuracy over training: epochs of attention, rounds of trees; and the error of
    measuring again."""
    fleet = Fleet.of(["2080ti"], options.records, options.test)
    part = fleet.parts["2080ti"]
    of = {"train": part.train, "test": part.test}
    curves: list[dict[str, Any]] = []
    for name in of:
        given, seen = (fleet.measured("attention", n) for n in (part.train, of[name]))
        model = AttentionModel(epochs=options.epochs, patience=options.epochs)
        # What it is watched on decides which epoch is kept, and nothing else: none is kept here.
        model.fit(given.programs, given.labels, given.tasks, seen)
        curves += [
            {"model": "attention", "part": name, "step": step + 1, **asdict(epoch)}
            for step, epoch in enumerate(model.history)
        ]
    trees: dict[str, Callable[[int], Any]] = {
        "xgb": lambda rounds: XGBModel(rounds=rounds),
        "lgbm": lambda rounds: LGBMModel(rounds=rounds),
    }
    for kind, make in trees.items():
        given = fleet.measured(kind, part.train)
        for rounds in (10, 30, 100, 200, 300):
            model = make(rounds).fit(given.programs, given.labels, given.tasks)
            curves += [
                {"model": kind, "part": name, "step": rounds,
                 **_errors(fleet.measured(kind, numbers), model)}
                for name, numbers in of.items()
            ]  # fmt: skip
    shown = [c for c in curves if c["model"] != "attention" or c["step"] % 5 == 0]
    common.table(shown, ["model", "part", "step", "rmse", "pca"])
    ends = {(c["model"], c["part"]): c["rmse"] for c in curves}
    compared = [
        common.at_most(f"RMSE on {name} over {kind}'s", ends["attention", name] / ends[kind, name],
                       0.5, "aim")
        for name in of
        for kind in trees
    ]  # fmt: skip
    again = list(Bench(fleet, "2080ti", options).again())
    common.table(again, COLUMNS)
    return {"curves": curves, "rows": again}, compared


def _errors(seen: Measured, model: Any) -> dict[str, float]:
    scores = model.predict(seen.programs)
    tasks = np.unique(seen.tasks, return_inverse=True)[1]
    return {"pca": metrics.ranking(seen.labels, scores, tasks).pca,
            "rmse": metrics.rmse(seen.labels, scores)}  # fmt: skip


#: Options that decide figures.
_SAID = ("records", "sources", "test", "epochs", "patience", "hidden", "seeds")
PARTS = {"devices": devices, "by_task": by_task, "rmse": rmse}


def main(options: argparse.Namespace) -> int:
    started = time.time()
    if options.quick:
        options.records = options.sources = 400
        options.test, options.epochs, options.seeds = 400, 2, 1
    figures, compared = PARTS[options.part](options)
    said = {name: getattr(options, name) for name in _SAID}
    return common.finish("transfer", started, {**figures, **said}, compared, options.json)


if __name__ == "__main__":
    made = common.parser("Cost models of devices and tasks they have not seen, on real records.")
    made.add_argument("--part", choices=PARTS, default="devices")
    usual = [name for name, device in DEVICES.items() if device.family == ANSOR]
    made.add_argument("--devices", nargs="+", choices=DEVICES, default=usual)
    made.add_argument("--native", action="store_true", help="models of the device itself only")
    made.add_argument(
        "--records", type=int, default=20_000, help="of a device to train on, at most"
    )
    made.add_argument("--sources", type=int, default=6_000, help="of other devices, together")
    made.add_argument("--test", type=int, default=4_000, help="records to test on, at most")
    made.add_argument("--epochs", type=int, default=50)
    made.add_argument("--patience", type=int, default=30)
    made.add_argument("--hidden", type=int, default=128)
    made.add_argument("--seeds", type=int, default=3)
    common.run(main, made)
