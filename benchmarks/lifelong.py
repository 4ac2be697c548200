"""Devices learned one after the other: what a model still knows of each after every step.

Tables V and VI of UniCoMo (ICCD 2024) in kind, on the recorded logs of devices of four kinds of
instructions (CUDA, AVX2, AVX-512, NEON) and of two tuners. After every device the model ranks the
test records of all devices so far. Each way of learning goes through the same devices with the
same records:

none              goes on training, and nothing holds the weights
squared           selective synaptic plasticity, by squared gradients of each list (the paper's)
output, path      the same by MAS and by SI
replay            some programs of each earlier device among those of the new one, nothing held
squared + replay  both
together          all devices at once, which what is learned in turn is held against

Of each: the model, and its network alone (the model has trees of each device beside it, which
nothing that is learned later changes).

    .venv/bin/python benchmarks/lifelong.py --json out.json [--ways none squared ...] [--seeds 3]

Settings are chosen with `--on validation`, which ranks records that the test leaves alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import common
from recorded_devices import DEVICES, Fleet
from tunefleet.core.statistics import median
from tunefleet.costmodel import LabelledPrograms, UnifiedModel, metrics
from tunefleet.dataset.rows import Codes

SEQUENCE = ("2080ti", "icelake", "autotvm-3700x", "a100", "autotvm-a72", "autotvm-gtx1650", "v100")
NONE, TOGETHER, CHANCE = "none", "together", "chance"
WAYS = (NONE, "squared", "output", "path", "replay", "squared + replay")
MODEL, NETWORK = "model", "network alone"
COLUMNS = ["way", "of", "seed", "after", "ranked", "top1", "top5", "pca"]
#: What the first device may lose, what is aimed at, and how far behind `together` the mean of all.
MOST_LOSS, AIMED_LOSS, BEHIND = 0.03, 0.02, 0.02


@dataclass(frozen=True)
class Lesson:
    """The devices in turn, and what is held fixed."""

    fleet: Fleet
    devices: tuple[str, ...]
    options: argparse.Namespace

    def of_device(self, device: str) -> tuple[LabelledPrograms, LabelledPrograms]:
        part = self.fleet.parts[device]
        given, validation = (
            self.fleet.measured(UnifiedModel.name, numbers)
            for numbers in (part.train, part.validation)
        )
        return given, validation

    def ranked(self, device: str) -> Codes:
        """Valid records to rank."""
        numbers: Codes = getattr(self.fleet.parts[device], self.options.on)
        return numbers[self.fleet.records.rows.valid[numbers]]

    def rows(self, way: str, seed: int) -> Iterator[dict[str, Any]]:
        model: UnifiedModel | None = None
        for number, device in enumerate(self.devices):
            given, validation = self.of_device(device)
            if model is None:
                model = self.fresh(way, seed).learn(given, validation)
            else:
                model = model.learned_on(
                    given, validation, seed=seed, device=self.options.device,
                    epochs=self.options.epochs,
                )  # fmt: skip
            yield from self._known(model, way, seed, number)

    def together(self, seed: int) -> Iterator[dict[str, Any]]:
        parts = [self.of_device(device) for device in self.devices]
        given, validation = (_joined(list(side)) for side in zip(*parts, strict=True))
        model = self.fresh(NONE, seed).learn(given, validation)
        yield from self._known(model, TOGETHER, seed, len(self.devices) - 1)

    def fresh(self, way: str, seed: int) -> UnifiedModel:
        options, (method, *_) = self.options, way.split(" + ")
        held = method not in (NONE, "replay")
        return UnifiedModel(
            options.hidden,
            options.epochs,
            plasticity=method if held else "squared",
            strength=options.strength if held else 0.0,
            replay=options.replay if way.endswith("replay") else 0,
            seed=seed,
            device=options.device,
        )

    def _known(
        self, model: UnifiedModel, way: str, seed: int, number: int
    ) -> Iterator[dict[str, Any]]:
        for device in self.devices[: number + 1]:
            programs = self.fleet.programs(UnifiedModel.name, self.ranked(device))
            for of, scorer in ((MODEL, model), (NETWORK, model.network)):
                scores = scorer.predict(programs)
                head = {"way": way, "of": of, "seed": seed, "after": self.devices[number]}
                yield {**head, "ranked": device, **self._ranking(device, scores)}

    def _ranking(self, device: str, scores: Any) -> dict[str, float]:
        rows, numbers = self.fleet.records.rows, self.ranked(device)
        return asdict(metrics.ranking(rows.labels[numbers], scores, rows.task[numbers]))

    def chance(self) -> Iterator[dict[str, Any]]:
        rows = self.fleet.records.rows
        for device in self.devices:
            numbers = self.ranked(device)
            found = asdict(metrics.random_ranking(rows.labels[numbers], rows.task[numbers]))
            yield {"way": CHANCE, "of": "-", "seed": 0, "after": "-", "ranked": device, **found}


def _joined(parts: list[LabelledPrograms]) -> LabelledPrograms:
    return LabelledPrograms(
        [program for part in parts for program in part.programs],
        np.concatenate([part.labels for part in parts]),
        [task for part in parts for task in part.tasks],
        [device for part in parts for device in part.devices],
    )


def steps(rows: list[dict[str, Any]], devices: tuple[str, ...]) -> list[dict[str, Any]]:
    """Medians over seeds: a row for each way and what of it, the score on the first device after
    each step, then at the end that of all devices, and their mean."""
    found = []
    last = devices[-1]
    for way, of in dict.fromkeys((row["way"], row["of"]) for row in rows):
        own = [row for row in rows if (row["way"], row["of"]) == (way, of)]
        for score in ("top1", "top5"):
            first = {
                f"first after {device}": _median(own, score, after=device, ranked=devices[0])
                for device in devices
            }
            after = "-" if way == CHANCE else last
            end = {name: _median(own, score, after=after, ranked=name) for name in devices}
            known = [value for value in end.values() if value is not None]
            found.append({"way": way, "of": of, "score": score, **first,
                          **{f"{name} at the end": value for name, value in end.items()},
                          "mean": float(np.mean(known)) if known else None})  # fmt: skip
    return found


def _median(rows: list[dict[str, Any]], score: str, **which: str) -> float | None:
    values = [row[score] for row in rows if all(row[key] == is_ for key, is_ in which.items())]
    return median(values) if values else None


def checks(found: list[dict[str, Any]], devices: tuple[str, ...]) -> list[common.Check]:
    """Of the model, with the score that lost most or is furthest behind."""
    made: list[common.Check] = []
    of_model = [row for row in found if row["of"] == MODEL]
    together = {row["score"]: row["mean"] for row in of_model if row["way"] == TOGETHER}
    for way in dict.fromkeys(row["way"] for row in of_model if row["way"] != TOGETHER):
        for row in (row for row in of_model if row["way"] == way):
            first, last = (row[f"first after {name}"] for name in (devices[0], devices[-1]))
            name = f"{way}: {row['score']}"
            lost = f"{name} lost on the first"
            made.append(common.at_most(lost, first - last, MOST_LOSS, "condition"))
            made.append(common.at_most(lost, first - last, AIMED_LOSS, "aim"))
            if together:
                behind = together[row["score"]] - row["mean"]
                made.append(common.at_most(f"{name} mean behind {TOGETHER}", behind, BEHIND, "aim"))
    return made


def main(options: argparse.Namespace) -> int:
    common.need_data()
    started = time.time()
    if options.quick:
        options.records = options.test = 300
        options.epochs, options.seeds, options.hidden = 1, 1, 16
        options.devices, options.ways = options.devices[:3], ["squared + replay"]
    devices = tuple(options.devices)
    fleet = Fleet.of(devices, options.records, options.test)
    lesson = Lesson(fleet, devices, options)
    rows = list(lesson.chance())
    for seed in range(options.seeds):
        for way in [*options.ways, TOGETHER]:
            done = time.time()
            rows += lesson.together(seed) if way == TOGETHER else lesson.rows(way, seed)
            print(f"{way}, seed {seed}: {time.time() - done:.0f} s", flush=True)
    found = steps(rows, devices)
    _show(found, devices)
    said = {n: v for n, v in vars(options).items() if n not in ("json", "quick")}
    figures = {"rows": rows, "steps": found, "options": said}
    return common.finish("lifelong", started, figures, checks(found, devices), options.json)


def _show(found: list[dict[str, Any]], devices: tuple[str, ...]) -> None:
    head = ["way", "of", "score"]
    print(f"\n{devices[0]}, learned first, after each step")
    renamed = [{name.removeprefix("first after "): v for name, v in row.items()} for row in found]
    common.table([row for row in renamed if row["way"] not in (TOGETHER, CHANCE)],
                 [*head, *devices])  # fmt: skip
    print("\nall devices at the end")
    renamed = [{name.removesuffix(" at the end"): v for name, v in row.items()} for row in found]
    common.table(renamed, [*head, *devices, "mean"])


if __name__ == "__main__":
    made = common.parser("Devices learned one after the other, on real records.")
    made.add_argument("--devices", nargs="+", choices=DEVICES, default=list(SEQUENCE))
    made.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    made.add_argument("--records", type=int, default=3_000, help="of a device to learn, at most")
    made.add_argument("--test", type=int, default=3_000, help="records to rank, at most")
    made.add_argument("--epochs", type=int, default=20)
    made.add_argument("--hidden", type=int, default=64)
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--strength", type=float, default=UnifiedModel().strength)
    made.add_argument(
        "--replay", type=int, default=UnifiedModel().replay, help="programs of each device, kept"
    )
    made.add_argument("--on", choices=("test", "validation"), default="test", help="what is ranked")
    made.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    common.run(main, made)
