"""What reading weights ahead gains: random programs of products in register tiles, with prefetches
of the next panel and without, in turn.

As in a network, weights are cold: so many copies of them are read in turn that the caches of a core
hold none. Hot is with the same copy again and again. Ratios are of the fastest program of either
side, and the median of those programs that are within a fifth of the fastest.

    .venv/bin/python benchmarks/prefetches.py [--avx2] --json prefetches.json
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any
from unittest import mock

import avx2_only
import common
import register_tiles

_OPERATORS = (
    "49 rows", "77 rows", "197 rows", "257 rows", "261 rows", "1,500 rows", "1x1 on 7x7",
    "1x1 on 14x14", "3x3 stride 2", "255 columns",
)  # fmt: skip
_COPIES_BYTES, _ROUNDS, _TURN_S = 32 << 20, 4, 0.03
_CLOSE = 1.2
_APPLIED = "tunefleet.compiler.code.build.with_prefetches"


def calls_of(built: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The program with cold weights, and with hot ones."""
    import numpy as np

    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape, dtype in built.args]
    place = built.packings[0].argument
    function = tvm.runtime.load_module(built.path)["main"]
    count = max(2, _COPIES_BYTES // arrays[place].nbytes)
    given = [tvm.runtime.tensor(array) for array in arrays]
    copies = [tvm.runtime.tensor(arrays[place]) for _ in range(count)]
    turns = cycle([[*given[:place], copy, *given[place + 1 :]] for copy in copies])
    return lambda: function(*next(turns)), partial(function, *given)


def typical_s(run: Callable[[], Any]) -> float:
    """The tenth percentile of the calls of a turn, in seconds."""
    times = []
    end = time.perf_counter() + _TURN_S
    while time.perf_counter() < end:
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return sorted(times)[len(times) // 10]


def row_of(name: str, target: Any, count: int) -> dict[str, Any]:
    import numpy as np

    from tunefleet.compiler.code.build import build_candidate
    from tunefleet.compiler.space.opening import task_space
    from tunefleet.core.forms import WINOGRAD, is_winograd, kind_of
    from tunefleet.core.trial import Built

    module, data = register_tiles.network_of(name)
    programs = []
    with tempfile.TemporaryDirectory() as folder:
        task = register_tiles.task_of(module, data, target, Path(folder))
        space = task_space(task.program, target).decisions
        drawn = space.sample(64 * count, np.random.default_rng(0)).distinct()
        traces = [t for t in space.traces(drawn) if kind_of(t) > WINOGRAD and not is_winograd(t)]
        for number, trace in enumerate(traces[:count]):
            build = partial(build_candidate, task.program, target)
            ahead = build(f"ahead{number}", trace, folder)
            with mock.patch(_APPLIED, lambda module, _: module):
                plain = build(f"plain{number}", trace, folder)
            assert isinstance(ahead, Built), ahead
            assert isinstance(plain, Built), plain
            runs = [run for each in (ahead, plain) for run in calls_of(each)]
            rounds = [[typical_s(run) for run in runs] for _ in range(_ROUNDS)]
            programs.append([min(times) for times in zip(*rounds, strict=True)])
    best = [min(times) for times in zip(*programs, strict=True)]
    close = [p for p in programs if min(p[0], p[2]) <= _CLOSE * min(best[0], best[2])]
    return {
        "operator": name,
        "us": best[0] * 1e6,
        "cold": best[0] / best[2],
        "hot": best[1] / best[3],
        "cold, median": median(p[0] / p[2] for p in close),
    }


def main(options: argparse.Namespace) -> int:
    started = time.time()
    os.environ["TVM_NUM_THREADS"] = str(options.threads)
    from tunefleet.compiler.toolchain.host import native_target, parse_target

    named = parse_target(avx2_only.TARGET, options.threads)
    target = named if options.avx2 else native_target(options.threads)
    rows = []
    for name in _OPERATORS[:1] if options.quick else _OPERATORS:
        rows.append(row_of(name, target, 2 if options.quick else options.programs))
        print(rows[-1], flush=True)
    common.table(rows, list(rows[0]))
    mean = geometric_mean(row["cold"] for row in rows)
    checks = [common.at_most("cold weights: with prefetches over without", mean, 1.0, "condition")]
    return common.finish("prefetches", started, {"rows": rows}, checks, options.json)


if __name__ == "__main__":
    made = common.parser("What reading weights ahead gains, by class of shape.")
    made.add_argument("--avx2", action="store_true", help="programs with AVX2 alone")
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--programs", type=int, default=24, help="random ones of each operator")
    common.run(main, made)
