"""How fast a search learns what its cost model says of a population of programs.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/prediction.py --json out.json

Populations of a 3x3 convolution, on one core. Attention on primitives: decisions become rows
(`features/tilings.py`), rows scores; no program is built. The same by the shipped model, which is
narrower, and of whole rows: as models score programs that come from anywhere. Trees on stores: each
program is replayed and lowered to see its stores, for fewer programs, as that takes a thousand
times as long. Times are CPU seconds, the sides in turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import common

POPULATION = 2048
COLUMNS = ["side", "stage", "programs", "ms", "least_ms", "most_ms", "per_second"]


def main(options: argparse.Namespace) -> int:
    started = time.time()
    rounds = 2 if options.quick else options.rounds
    stages: dict[tuple[str, str], tuple[int, list[float]]] = {}
    attention, lowering = _Attention(), _Lowering(options.lowered)
    others = (_Shipped(), _WholeRows(), lowering)
    for number in range(rounds + 1):
        for side in (attention, *others):
            for stage, count, seconds in side.round(np.random.default_rng(number)):
                stages.setdefault((side.name, stage), (count, []))[1].append(seconds)
    # The first round is warm-up.
    rows = [_row(side, stage, count, times[1:]) for (side, stage), (count, times) in stages.items()]
    common.table(rows, COLUMNS)
    rates = {row["side"]: row["per_second"] for row in rows if row["stage"] == "all"}
    best = max(POPULATION / min(times) for (side, stage), (_, times) in stages.items()
               if (side, stage) == (attention.name, "all"))  # fmt: skip
    print(f"\n{attention.shape}; best round {best:.0f} candidates/s")
    checks = [
        common.at_least("attention, candidates per second per core, features included",
                        rates[attention.name], 20_000, "condition"),
        common.at_least("times trees on lowered stores",
                        rates[attention.name] / rates[lowering.name], 20, "aim"),
    ]  # fmt: skip
    return common.finish("prediction", started, {"rows": rows}, checks, options.json)


def _row(side: str, stage: str, count: int, times: list[float]) -> dict[str, Any]:
    median = statistics.median(times)
    return {"side": side, "stage": stage, "programs": count, "ms": 1e3 * median,
            "least_ms": 1e3 * min(times), "most_ms": 1e3 * max(times),
            "per_second": count / median}  # fmt: skip


class _Side:
    """A convolution with its space."""

    name: str

    def __init__(self) -> None:
        import tvm

        from trial_throughput import tasks
        from tunefleet.compiler.space.opening import sketches_of
        from tunefleet.compiler.toolchain.host import native_target
        from tunefleet.search.decisions import DecisionSpace

        self.target = native_target(1)
        self.program = tvm.ir.save_json(tasks()["conv3x3"])
        self.space = DecisionSpace.of(sketches_of(self.program, self.target))


class _Attention(_Side):
    """The default model, of one epoch: what it costs depends on its shape alone."""

    name = "attention on primitives"

    def __init__(self) -> None:
        super().__init__()
        from tunefleet.costmodel import AttentionModel, CostModel
        from tunefleet.features.context import TaskContext, device_numbers, numbers
        from tunefleet.features.tilings import Encoder

        self.context = numbers(
            TaskContext(((1, 56, 56, 64), (3, 3, 64, 64), (1, 56, 56, 64)), 2.3e8, "conv2d"),
            device_numbers(peak_gflops=100, bandwidth_gb_s=20, used_units=1, units=2),
        )
        self.encoders = [
            Encoder(sketch.instructions, sketch.positions, [c.options for c in sketch.choices])
            for sketch in self.space.sketches
        ]
        rng = np.random.default_rng(0)
        rows = self._rows(self.space.sample(512, rng))
        labels, tasks = rng.random(len(rows)), ["t"] * len(rows)
        self.model: CostModel = AttentionModel(epochs=1).fit(rows, labels, tasks)
        self.shape = f"rows of a program by sketch: {sorted({len(program) for program in rows})}"

    def _rows(self, population: Any) -> list[Any]:
        return [
            program
            for number, picks in self._picks(population)
            for program in self.encoders[number].rows(picks, self.context)
        ]

    def _picks(self, population: Any) -> list[tuple[int, Any]]:
        found = []
        for number, sketch in enumerate(self.space.sketches):
            picks = population.picks[population.rows(number), : len(sketch.choices)]
            found.append((number, picks.astype(np.int64)))
        return [(number, picks) for number, picks in found if len(picks)]

    def round(self, rng: np.random.Generator) -> list[tuple[str, int, float]]:
        population = self.space.sample(POPULATION, rng)
        # Tables of this round's own: the model keeps what it has embedded of those it knows.
        tokens = [encoder.tokens.copy() for encoder in self.encoders]
        features, features_s = timed(
            lambda: [
                (tokens[number], *self.encoders[number].programs(picks, self.context))
                for number, picks in self._picks(population)
            ]
        )
        _, predict_s = timed(lambda: [self._predict(*given) for given in features])
        return [
            ("features", POPULATION, features_s),
            ("scores", POPULATION, predict_s),
            ("all", POPULATION, features_s + predict_s),
        ]

    def _predict(self, tokens: Any, first: Any, numbers: Any) -> Any:
        own = np.arange(len(first))[:, None]
        local = np.concatenate([own, len(first) + numbers], axis=1)
        return self.model.predict_distinct([first, tokens], local)


class _Shipped(_Attention):
    name = "shipped model on primitives"

    def __init__(self) -> None:
        super().__init__()
        from tunefleet.core.settings import SHIPPED_MODEL
        from tunefleet.costmodel.registry import registry_of

        (self.model,) = registry_of(None).get(SHIPPED_MODEL).load()


class _WholeRows(_Attention):
    name = "attention on whole rows"

    def round(self, rng: np.random.Generator) -> list[tuple[str, int, float]]:
        population = self.space.sample(POPULATION, rng)
        rows, features_s = timed(lambda: self._rows(population))
        _, predict_s = timed(lambda: self.model.predict(rows))
        return [
            ("features", POPULATION, features_s),
            ("scores", POPULATION, predict_s),
            ("all", POPULATION, features_s + predict_s),
        ]


class _Lowering(_Side):
    name = "trees on stores"

    def __init__(self, programs: int) -> None:
        super().__init__()
        from tunefleet.compiler.space.spaces import tune_contexts
        from tunefleet.compiler.toolchain.programs import load_program
        from tunefleet.costmodel import XGBModel

        *_, self.context = tune_contexts(load_program(self.program), self.target)
        self.count = programs
        rng = np.random.default_rng(0)
        known = self._features(self._replayed(self.space.sample(programs, rng)))
        self.model = XGBModel().fit(known, rng.random(len(known)), ["t"] * len(known))

    def _replayed(self, population: Any) -> list[Any]:
        from tunefleet.compiler.code.replay import replay
        from tunefleet.compiler.toolchain.programs import load_program

        module = load_program(self.program)
        return [replay(module, self.target, trace) for trace in self.space.traces(population)]

    def _features(self, schedules: list[Any]) -> Any:
        from tvm.s_tir import meta_schedule as ms

        from tunefleet.features.per_store import extract

        info = ms.arg_info.ArgInfo.from_entry_func(schedules[0].mod, remove_preproc=True)
        candidates = [ms.search_strategy.MeasureCandidate(s, info) for s in schedules]
        return extract(self.context, candidates)

    def round(self, rng: np.random.Generator) -> list[tuple[str, int, float]]:
        population = self.space.sample(self.count, rng)
        schedules, replay_s = timed(lambda: self._replayed(population))
        features, lower_s = timed(lambda: self._features(schedules))
        _, predict_s = timed(lambda: self.model.predict(features))
        return [
            ("replay", self.count, replay_s),
            ("features", len(schedules), lower_s),
            ("scores", len(schedules), predict_s),
            ("all", self.count, replay_s + lower_s + predict_s),
        ]


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and its CPU seconds."""
    started = time.process_time()
    found = work()
    return found, time.process_time() - started


if __name__ == "__main__":
    parser = common.parser(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--lowered", type=int, default=64, help="programs lowered each round")
    common.run(main, parser)
