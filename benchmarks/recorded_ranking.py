"""How well models rank the records of a device: its own, other devices' and a few of its own.

What the rows are is told in `transfer.py`, which asks for them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from recorded_devices import CPU, DEVICES, Fleet, evenly
from tunefleet.core.statistics import median
from tunefleet.costmodel import AttentionModel, MLPModel, UnifiedModel, XGBModel, metrics
from tunefleet.dataset.rows import Codes

Scores = Any

#: Records of a task among few.
_TOGETHER = 10
FEW = (50, 100, 200)
#: Fewer records of programs measured more than once say nothing of a device.
_ENOUGH_AGAIN = 1_000


def _models(kind: str, options: argparse.Namespace, seeds: Iterable[int]) -> list[Any]:
    """One for each seed of what knows chance."""
    if kind == "xgb":
        return [XGBModel(rounds=300)]
    make: dict[str, Callable[[int], Any]] = {
        "attention": lambda seed: AttentionModel(
            options.hidden,
            epochs=options.epochs,
            patience=options.patience,
            seed=seed,
            device=options.device,
        ),
        "mlp": lambda seed: MLPModel(epochs=50, seed=seed),
        "unified": lambda seed: UnifiedModel(
            options.hidden, options.epochs, seed=seed, device=options.device
        ),
    }
    return [make[kind](seed) for seed in seeds]


@dataclass(frozen=True)
class Bench:
    """A device that tests, and what is held fixed."""

    fleet: Fleet
    name: str
    options: argparse.Namespace

    @property
    def seeds(self) -> Iterable[int]:
        return range(self.options.seeds)

    @property
    def test(self) -> Codes:
        numbers = self.fleet.parts[self.name].test
        return numbers[self.fleet.records.rows.valid[numbers]]

    def scores(self, model: Any) -> Scores:
        return model.predict(self.fleet.programs(model.name, self.test))

    def row(
        self,
        data: str,
        model: str,
        records: int,
        runs: Sequence[Scores],
        seconds: float = 0.0,
        tests: Sequence[Codes] = (),
    ) -> dict[str, Any]:
        """Medians and ranges of runs that differ in their seed; CPU seconds of training one.
        `tests` are the records of each run where they are not `test`."""
        rows = self.fleet.records.rows
        found = [
            {**asdict(metrics.ranking(rows.labels[test], scores, rows.task[test])),
             "rmse": metrics.rmse(rows.labels[test], scores)}
            for test, scores in zip(tests or [self.test] * len(runs), runs, strict=True)
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
        physical = DEVICES[self.name].key
        others = [name for name in self.fleet.parts if DEVICES[name].key != physical]
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
        what one who knew them all could do. A draw a seed of as many as there are to test."""
        rows = self.fleet.records.rows
        of_device = np.isin(rows.task, rows.task[self.fleet.parts[self.name].test])
        count, total = np.bincount(rows.program), np.bincount(rows.program, rows.labels)
        several = np.flatnonzero(of_device & rows.valid & (count[rows.program] > 1))
        if len(several) < _ENOUGH_AGAIN:
            return
        runs, tests = [], []
        for seed in range(self.options.seeds):
            generator = np.random.default_rng(seed)
            size = min(self.options.test, len(several))
            drawn = np.sort(generator.choice(several, size, replace=False))
            program = rows.program[drawn]
            tests.append(drawn)
            runs.append((total[program] - rows.labels[drawn]) / (count[program] - 1))
        yield self.row("-", "measured again", len(several), runs, tests=tests)

    def train(self, kind: str, train: Codes, held: Codes) -> tuple[list[Any], float]:
        """Models of each seed and the CPU seconds of one."""
        given, validation = (self.fleet.measured(kind, n) for n in (train, held))
        models = _models(kind, self.options, self.seeds)
        started = time.process_time()
        for model in models:
            model.learn(given, validation)
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
            drawn = self._drawn(count, seed)
            if drawn is None:
                print(f"{data}: no task of this device has {_TOGETHER} records to learn from")
                return
            numbers, labels = drawn
            given = self.fleet.measured(model.name, numbers, labels)
            tuned = AttentionModel.load(model.save())
            tuned.device = model.device
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

    def _drawn(self, count: int, seed: int) -> tuple[Codes, Scores] | None:
        """A few records of the training part, whole groups of a task, and their labels."""
        rows, generator = self.fleet.records.rows, np.random.default_rng(seed)
        own = generator.permutation(self.fleet.parts[self.name].train)
        found: list[Codes] = []
        for task in generator.permutation(np.unique(rows.task[own])):
            of_task = own[rows.task[own] == task][:_TOGETHER]
            if len(of_task) == _TOGETHER and rows.valid[of_task].any():
                found.append(of_task)
        if not found:
            return None
        numbers = np.concatenate(found[: count // _TOGETHER])
        labels = np.concatenate(
            [rows.latency_s[n].min() / rows.latency_s[n] for n in np.split(numbers, range(
                _TOGETHER, len(numbers), _TOGETHER))]
        )  # fmt: skip
        return numbers, labels


@dataclass(frozen=True)
class Fixed(Bench):
    """Tests on these rows."""

    tests: Codes

    @property
    def test(self) -> Codes:
        return self.tests
