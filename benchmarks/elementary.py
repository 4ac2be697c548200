"""exp, erf and what is made of them: code by TVM alone and by tunefleet, in turn.

Each side builds in a process of its own; one process measures, one thread, arrays of 64 Ki numbers
(they stay in the second-level cache). `off` is the largest error on the numbers, in units in the
last place of float32. Numbers are drawn as tunefleet draws what it measures with (normal) and as
MetaSchedule does (uniform from 1 to 10).

    .venv/bin/python benchmarks/elementary.py --json elementary.json
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

import common
from searching import keep_tvm_as_it_is

SIZE = 1 << 16
FUNCTIONS = ("exp", "erf", "tanh", "sigmoid", "x**3", "gelu")
DRAWN = ("normal", "uniform 1-10")
SIDES = ("TVM alone", "tunefleet")


def built(name: str, folder: str) -> str:
    """A shared library that maps an array by a function."""
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.compiler.toolchain.host import native_target, to_tvm

    tvm = load_tvm()
    from tvm import te, tirx

    made = {
        "x**3": lambda x: tirx.power(x, 3.0),
        "gelu": lambda x: 0.5 * x * (1.0 + tirx.erf(x * 0.5**0.5)),
    }
    function: Any = made.get(name) or getattr(tirx, name)
    given = te.placeholder((SIZE,), name="given")
    out = te.compute((SIZE,), lambda i: function(given[i]), name="out")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([given, out]))
    (loop,) = schedule.get_loops(schedule.get_sblock("out"))
    schedule.vectorize(schedule.split(loop, [None, 16])[1])
    path = f"{folder}/{FUNCTIONS.index(name)}-{os.getpid()}.so"
    tvm.tirx.build(schedule.mod, target=to_tvm(native_target())).export_library(path)
    return path


def exact(name: str, x: Any) -> Any:
    from math import erf

    erfs = np.vectorize(erf)
    found: dict[str, Any] = {
        "exp": np.exp, "erf": erfs, "tanh": np.tanh, "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
        "x**3": lambda v: v**3, "gelu": lambda v: 0.5 * v * (1 + erfs(v * 0.5**0.5)),
    }  # fmt: skip
    return found[name](x.astype(np.float64))


def main(options: argparse.Namespace) -> int:
    from tunefleet.artifacts.runtime import set_threads
    from tunefleet.compiler.toolchain import load_tvm

    started = time.time()
    set_threads(1)
    tvm = load_tvm()
    rounds = 3 if options.quick else 15
    rng = np.random.default_rng(0)
    numbers = {
        "normal": rng.standard_normal(SIZE).astype(np.float32),
        "uniform 1-10": rng.uniform(1, 10, SIZE).astype(np.float32),
    }
    rows = []
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1, spawn, initializer=keep_tvm_as_it_is) as alone,
        ProcessPoolExecutor(1, spawn) as ours,
    ):
        for name in FUNCTIONS:
            code = [
                tvm.runtime.load_module(pool.submit(built, name, folder).result())
                for pool in (alone, ours)
            ]
            for drawn in DRAWN:
                given = tvm.runtime.tensor(numbers[drawn])
                out = tvm.runtime.tensor(np.zeros(SIZE, np.float32))
                seconds: list[list[float]] = [[], []]
                for _ in range(rounds):
                    for side, library in enumerate(code):
                        timed = library.time_evaluator("main", tvm.cpu(), number=20)
                        seconds[side].append(float(timed(given, out).results[0]) / SIZE)
                row: dict[str, Any] = {"function": name, "numbers": drawn}
                expected = exact(name, numbers[drawn])
                last = np.spacing(np.abs(expected).astype(np.float32))
                for side, library in enumerate(code):
                    library["main"](given, out)
                    row[f"{SIDES[side]}, ns"] = 1e9 * float(np.median(seconds[side]))
                    off = np.abs(out.numpy() - expected) / last
                    row[f"{SIDES[side]}, off"] = float(off.max())
                ratios = [a / b for a, b in zip(*seconds, strict=True)]
                row["quicker"] = float(np.median(ratios))
                row["from"], row["to"] = min(ratios), max(ratios)
                rows.append(row)
    common.table(rows, list(rows[0]))
    return common.finish("elementary", started, {"rows": rows}, [], options.json)


if __name__ == "__main__":
    common.run(main, common.parser("Elementary functions by TVM alone and by tunefleet."))
