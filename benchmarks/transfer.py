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

    .venv/bin/python benchmarks/transfer.py --json out.json [--part unseen|by_task|rmse]
        [--devices ...]

A run adds its devices to those that the file has. `--part unseen` has the unified model beside XGB
and attention, on devices of both tuners at once (`recorded_unseen.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

import common
import recorded_unseen
from recorded_devices import ANSOR, DEVICES, Fleet, evenly
from recorded_ranking import Bench, Fixed
from tunefleet.costmodel import AttentionModel, LabelledPrograms, LGBMModel, XGBModel, metrics
from tunefleet.learning.training import DEVICES as TRAINED_ON

COLUMNS = ["device", "data", "model", "records", "top1", "top1_range", "top5", "top5_range", "pca",
           "rmse", "train_s"]  # fmt: skip
#: Aims: native top-1 and top-5; of an unseen device top-5, and how far below native XGB's.
NATIVE, UNSEEN_TOP5, BEHIND = (0.92, 0.97), 0.90, 0.03
#: Sets on which a random ranking scores least.
DISCRIMINATING = ("2080ti", "a72", "autotvm-")
#: The attention model as it is used: the epoch that ranks best, calibrated.
CALIBRATED = "attention, calibrated"


def devices(options: argparse.Namespace) -> tuple[dict[str, Any], list[common.Check]]:
    rows: list[dict[str, Any]] = []
    if options.json and options.json.exists():
        known = json.loads(options.json.read_text(encoding="utf-8"))["figures"]["rows"]
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


def unseen(options: argparse.Namespace) -> tuple[dict[str, Any], list[common.Check]]:
    """Every device by what is known of all others of its kind, on draws as many as seeds."""
    rows: list[dict[str, Any]] = []
    for draw in range(options.seeds):
        fleet = Fleet.of(
            list(DEVICES), max(options.records, options.sources), options.test, seed=draw
        )
        print(f"read {len(fleet.records.rows):,} records of {', '.join(fleet.parts)}")
        for name in options.devices:
            new = list(recorded_unseen.Unseen(fleet, name, options, draw).rows())
            common.table(new, COLUMNS)
            sys.stdout.flush()
            rows += new
            _write(options, {"rows": rows})
    common.table(recorded_unseen.over_draws(rows), COLUMNS)
    return {"rows": rows}, recorded_unseen.checks(rows)


def _write(options: argparse.Namespace, figures: dict[str, Any]) -> None:
    if options.json:
        options.json.write_text(
            json.dumps({"benchmark": "transfer", "figures": figures}), encoding="utf-8"
        )


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
        bench = Fixed(fleet, "2080ti", options, tests)
        data = f"trained on {trained}"
        new = [bench.random(), *bench.compared(data, train, held, ("xgb", "mlp", "attention"))]
        common.table(new, COLUMNS)
        by_model = {row["model"]: row for row in new[::-1]}
        best = max(by_model[other]["top1"] for other in ("xgb", "mlp"))
        ahead = by_model["attention"]["top1"] - best
        compared.append(aim(f"{data}: attention top1 less the best other's", ahead, 0.05))
        found += new
    return {"rows": found}, compared


def rmse(options: argparse.Namespace) -> tuple[dict[str, Any], list[common.Check]]:
    """Error and accuracy over training: epochs of attention, rounds of trees; and the error of
    measuring again. Where an epoch is watched, its scores are not calibrated yet."""
    fleet = Fleet.of(["2080ti"], options.records, options.test)
    part = fleet.parts["2080ti"]
    of = {"train": part.train, "test": part.test}
    curves: list[dict[str, Any]] = []
    given = fleet.measured("attention", part.train)
    for name in of:
        seen = fleet.measured("attention", of[name])
        model = AttentionModel(
            epochs=options.epochs, patience=options.epochs, device=options.device
        )
        # What it is watched on decides which epoch is kept, and calibrates: neither is used here.
        model.fit(given.programs, given.labels, given.tasks, seen)
        curves += [
            {"model": "attention", "part": name, "step": step + 1, **asdict(epoch)}
            for step, epoch in enumerate(model.history)
        ]
    kept = fleet.measured("attention", part.validation)
    whole = AttentionModel(epochs=options.epochs, patience=options.epochs, device=options.device)
    whole.fit(given.programs, given.labels, given.tasks, kept)
    curves += [
        {"model": CALIBRATED, "part": name, "step": options.epochs,
         **_errors(fleet.measured("attention", numbers), whole)}
        for name, numbers in of.items()
    ]  # fmt: skip
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
    common.table(shown, ["model", "part", "step", "rmse", "rmse of order", "pca"])
    ends = {(c["model"], c["part"]): c["rmse"] for c in curves}
    compared = [
        common.at_most(f"RMSE on {name} over {kind}'s", ends[CALIBRATED, name] / ends[kind, name],
                       0.5, "aim")
        for name in of
        for kind in trees
    ]  # fmt: skip
    again = list(Bench(fleet, "2080ti", options).again())
    common.table(again, COLUMNS)
    return {"curves": curves, "rows": again}, compared


def _errors(seen: LabelledPrograms, model: Any) -> dict[str, float]:
    scores = model.predict(seen.programs)
    tasks = np.unique(seen.tasks, return_inverse=True)[1]
    return {"pca": metrics.ranking(seen.labels, scores, tasks).pca,
            "rmse": metrics.rmse(seen.labels, scores),
            "rmse of order": _rmse_of_order(seen.labels, scores, tasks)}  # fmt: skip


def _rmse_of_order(labels: np.ndarray, scores: np.ndarray, tasks: np.ndarray) -> float:
    """What programs in a wrong order leave: the error of the best rising function of each task's
    scores, which only who knows the labels can tell."""
    best = np.empty(len(labels))
    for task in range(tasks.max() + 1):
        order = np.flatnonzero(tasks == task)
        order = order[np.argsort(scores[order], kind="stable")]
        best[order] = isotonic_regression(labels[order]).x
    return metrics.rmse(labels, best)


#: Options that decide figures.
_SAID = ("records", "sources", "test", "epochs", "patience", "hidden", "seeds", "device")
PARTS = {"devices": devices, "unseen": unseen, "by_task": by_task, "rmse": rmse}


def main(options: argparse.Namespace) -> int:
    common.need_data()
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
    made.add_argument("--zero-shot", action="store_true", help="unseen: XGB and unified without "
                      "records of the device, and nothing else")  # fmt: skip
    made.add_argument(
        "--records", type=int, default=20_000, help="of a device to train on, at most"
    )
    made.add_argument("--sources", type=int, default=6_000, help="of other devices, together")
    made.add_argument("--test", type=int, default=4_000, help="records to test on, at most")
    made.add_argument("--epochs", type=int, default=50)
    made.add_argument("--patience", type=int, default=30)
    made.add_argument("--hidden", type=int, default=128)
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--device", choices=TRAINED_ON, default="cpu", help="where attention learns")
    common.run(main, made)
