"""Tensor intrinsics: are all programs right, and how near to the instruction's peak are products?

Right: each intrinsic, four shapes (one divides by nothing), random programs of the search's own
space, compared with NumPy: integers exactly, bfloat16 with whole numbers whose sums float32 holds.
What this processor cannot execute is run on an emulated board where `--board` names one
(`arm_board.py`), there against the plain program, else compiled only, and said to be: so are those
of tensor cores, by nvcc, where it is installed (`gpu_intrinsics.py`).

Fast, one thread: int8 and bfloat16 products of 512^3 and of BERT-base's shapes. The best of random
tensorised programs and of random plain ones (the same number of each, chosen before), ONNX
Runtime, PyTorch (oneDNN for bfloat16) and OpenVINO (`product_engines.py`), in turn within one run;
beside the peak of a loop of the instruction in C, with sums in registers. A processor with AMX has
rows for its tiles and for its vectors.

    .venv/bin/python benchmarks/intrinsics.py --json intrinsics.json [--board build/arm-board]
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import math
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import common
import gpu_intrinsics
from arm_board import opened
from product_engines import engines

#: Rows, columns in lanes of the intrinsic, depth; and what is taken off the columns.
SHAPES = ((64, 5, 64, 0), (49, 3, 192, 0), (1, 7, 512, 0), (37, 3, 30, 3))
PRODUCTS = {
    "512^3": (512, 512, 512),
    "BERT query": (128, 768, 768),
    "BERT up": (128, 3072, 768),
    "BERT down": (128, 768, 3072),
}
#: So many times the best of the others, the first run of a program is its last.
_HOPELESS = 4.0
_SUMS = 16
_PEAK = """
#include <immintrin.h>
void loop(long n, int *out) {{
  __m512i a = _mm512_set1_epi32(n), b = _mm512_set1_epi32(n + 1);
  __m512i {sums};
  for (long k = 0; k < n; k++) {{
    asm volatile("" : "+v"(a), "+v"(b));
    {body}
  }}
  *out = _mm512_reduce_add_epi32({total});
}}
"""
#: Four tiles of sums, two of data, two of weights, all full.
_TILE_PEAK = """
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
void loop(long n, int *out) {{
  __attribute__((aligned(64))) unsigned char shapes[64] = {{1}}, zeros[1024] = {{0}};
  for (int i = 0; i < 8; i++) {{ shapes[16 + 2 * i] = 64; shapes[48 + i] = 16; }}
  syscall(SYS_arch_prctl, 0x1023, 18);
  _tile_loadconfig(shapes);
  _tile_loadd(4, zeros, 64); _tile_loadd(5, zeros, 64);
  _tile_loadd(6, zeros, 64); _tile_loadd(7, zeros, 64);
  _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
  for (long k = 0; k < n; k++) {{
    {body}
  }}
  _tile_release();
  *out = 0;
}}
"""
_TILE_PAIRS = ((0, 4, 6), (1, 4, 7), (2, 5, 6), (3, 5, 7))


@dataclass(frozen=True)
class Loop:
    """A loop of an instruction: an expression of a sum `s`, or what is called of tiles; flags of
    the compiler; operations of one."""

    instruction: str
    flags: tuple[str, ...]
    operations: int
    tiles: bool = False

    def source(self) -> str:
        if self.tiles:
            return _TILE_PEAK.format(
                body=" ".join(f"{self.instruction}({c}, {a}, {b});" for c, a, b in _TILE_PAIRS)
            )
        names = [f"s{i}" for i in range(_SUMS)]
        total = names[0]
        for name in names[1:]:
            total = f"_mm512_add_epi32({total}, {name})"
        return _PEAK.format(
            sums=", ".join(f"{s} = _mm512_set1_epi32({i})" for i, s in enumerate(names)),
            body=" ".join(f"{s} = {self.instruction.format(s=s)};" for s in names),
            total=total,
        )

    @property
    def at_once(self) -> int:
        return len(_TILE_PAIRS) if self.tiles else _SUMS


_WIDE = ("-mavx512f", "-mavx512bw")
_TILES = ("-mamx-tile", "-mamx-int8", "-mamx-bf16")
#: By the beginning of the names of intrinsics.
_LOOPS = {
    "amx.uint8": Loop("_tile_dpbusd", _TILES, 2 * 16 * 16 * 64, tiles=True),
    "amx.bfloat16": Loop("_tile_dpbf16ps", _TILES, 2 * 16 * 16 * 32, tiles=True),
    "vnni": Loop("_mm512_dpbusd_epi32({s}, a, b)", (*_WIDE, "-mavx512vnni"), 2 * 64),
    "bf16": Loop(
        "(__m512i) _mm512_dpbf16_ps((__m512) {s}, (__m512bh) a, (__m512bh) b)",
        (*_WIDE, "-mavx512bf16"),
        2 * 32,
    ),
}
#: Types of data by precision.
_DATA = {"int8": "uint8", "bfloat16": "bfloat16"}


def program_of(shape: Sequence[int], intrinsic: Any) -> tuple[str, tuple[int, int]]:
    """A product with constant weights as a task, and the shape of its weights with padding."""
    from tunefleet.compiler.graph.padded_products import (
        OF_BFLOAT16,
        OF_BYTES,
        matmul,
        padded_weight,
    )
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.compiler.toolchain.bfloat16 import stored

    tvm = load_tvm()
    te = tvm.te
    rows, columns, depth = shape
    terms = OF_BYTES if intrinsic.accumulator == "int32" else OF_BFLOAT16
    weight = stored(intrinsic.weight)
    high, wide = padded_weight(np.zeros((depth, columns), weight), terms).shape
    a = te.placeholder((rows, depth), stored(intrinsic.data), "A")
    b = te.placeholder((int(high), int(wide)), weight, "B")
    function = te.create_prim_func([a, b, matmul(a, b, columns, terms)])
    function = function.with_attr("tirx.noalias", True).with_attr("global_symbol", "main")
    function = function.with_attr("layout_free_buffers", [1])
    program = str(tvm.ir.save_json(tvm.IRModule({"main": function})))
    return program, (int(high), int(wide))


def numbers(shape: tuple[int, int], dtype: str, rng: np.random.Generator) -> Any:
    if dtype == "bfloat16":
        whole = rng.integers(-8, 9, shape).astype("float32")
        return (whole.view("uint32") >> 16).astype("uint16")
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def value(array: Any, dtype: str) -> Any:
    if dtype == "bfloat16":
        return (array.astype("uint32") << 16).view("float32").astype("int64")
    return array.astype("int64")


def traces_of(program: str, target: Any, count: int, intrinsic: str) -> list[str]:
    """Random programs of the search's space by an intrinsic, or by none (""). Names of register
    tiles begin with their intrinsic's."""
    from tunefleet.compiler.space.opening import task_space
    from tunefleet.core.forms import intrinsic_of

    space = task_space(program, target).decisions
    drawn = space.traces(space.sample(16 * count, np.random.default_rng(0)))
    named = ((trace, intrinsic_of(trace)) for trace in drawn)
    begins = f"{intrinsic}." if intrinsic else "."
    return [trace for trace, name in named if f"{name}.".startswith(begins)][:count]


def checked(
    intrinsic: Any, form: Sequence[int], count: int, folder: str, board: Any
) -> dict[str, Any]:
    """How many of the programs of a shape are right, or compile where nothing executes them."""
    from tunefleet.compiler.code.build import build_candidate
    from tunefleet.compiler.space.intrinsics import least_target, runs_on
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.core.trial import Built
    from tunefleet.errors import SetupError

    rows, lanes, depth, less = form
    shape = (rows, lanes * intrinsic.lanes - less, depth)
    runs = runs_on(intrinsic, native_target(1))
    emulated = board is not None and board.describe().machine == intrinsic.machine
    target = least_target(intrinsic)
    program, padded = program_of(shape, intrinsic)
    traces = traces_of(program, target, count, intrinsic.name)
    row = {"intrinsic": intrinsic.name, "shape": "x".join(map(str, shape)), "programs": len(traces)}
    try:
        found = [build_candidate(program, target, "x", trace, folder) for trace in traces]
    except SetupError as missing:  # no compiler for another machine
        return row | {"programs": 0, "good": 0, "how": str(missing)}
    built = [each for each in found if isinstance(each, Built)]
    if runs:
        return row | {"how": "ran", "good": _right(built, intrinsic, shape, padded)}
    if emulated:
        return row | {"how": "emulated", "good": _alike(built, board, program, target, folder)}
    return row | {"how": "compiled only", "good": len(built)}


def _right(built: Sequence[Any], intrinsic: Any, shape: Sequence[int], padded: Any) -> int:
    """Programs whose results are NumPy's."""
    from tunefleet.compiler.code.packing import arguments_of
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    rows, columns, depth = shape
    rng = np.random.default_rng(1)
    a = numbers((rows, depth), intrinsic.data, rng)
    b = numbers((depth, columns), intrinsic.weight, rng)
    full = np.zeros(padded, b.dtype)
    full[:depth, :columns] = b
    expected = value(a, intrinsic.data) @ value(b, intrinsic.weight)
    good = 0
    for each in built:
        result = tvm.runtime.tensor(np.zeros((rows, columns), intrinsic.accumulator))
        arguments = map(tvm.runtime.tensor, arguments_of(each, [a, full]))
        tvm.runtime.load_module(each.path)["main"](*arguments, result)
        good += bool(np.array_equal(result.numpy().astype("int64"), expected))
    return good


def _alike(built: Sequence[Any], board: Any, program: str, target: Any, folder: str) -> int:
    """Programs whose results on the board are those of the plain program there."""
    from tunefleet.compiler.code.build import build_default

    plain = build_default(program, target, "plain", folder)
    return sum(not board.verify(plain, each, 1).difference for each in built)


def peak(name: str, folder: str, seconds: float) -> float | None:
    """10^9 operations in a second of a loop of the instruction; None where there is no compiler."""
    found = _LOOPS[name]
    source, library = Path(folder, f"{name}.c"), Path(folder, f"{name}.so")
    source.write_text(found.source(), encoding="utf-8")
    command = ["cc", "-O2", *found.flags, "-shared", "-fPIC", "-o", str(library), str(source)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    loop = ctypes.CDLL(str(library)).loop
    loop.argtypes = [ctypes.c_long, ctypes.POINTER(ctypes.c_int)]
    count, out, best = 200_000, ctypes.c_int(), 0.0
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        loop(count, ctypes.byref(out))
        done = found.at_once * count * found.operations
        best = max(best, done / (time.perf_counter() - began) / 1e9)
    return best


def seconds_of(run: Callable[[], Any], repeats: int) -> float:
    """The fastest of some runs: what disturbs a shared machine only adds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def best_of(program: str, target: Any, traces: Sequence[str], folder: str) -> Callable[[], Any]:
    """A call of the fastest of some programs."""
    from tunefleet.compiler.code.build import build_candidate
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    runs = []
    for trace in traces:
        built = build_candidate(program, target, "x", trace, folder)
        path = getattr(built, "path", None)
        if path is not None:
            main = tvm.runtime.load_module(path)["main"]
            arguments = [tvm.runtime.tensor(np.ones(s, d)) for s, d in getattr(built, "args", ())]
            runs.append((lambda main=main, arguments=arguments: main(*arguments)))
    best, least = runs[0], math.inf
    for run in runs:
        # Random plain programs take up to seconds: the hopeless run once.
        seconds = seconds_of(run, 1)
        if seconds < _HOPELESS * least:
            seconds = min(seconds, seconds_of(run, 4))
        if seconds < least:
            best, least = run, seconds
    return best


def fast(kind: str, name: str, quick: bool, folder: str) -> list[dict[str, Any]]:
    """10^9 operations in a second of each way, in turn: the median of rounds. A row for each kind
    of intrinsic that this processor has."""
    from tunefleet.compiler.space.intrinsics import intrinsics_of
    from tunefleet.compiler.toolchain.host import native_target

    target, shape = native_target(1), PRODUCTS[name]
    known = [i for i in intrinsics_of(target) if i.data == _DATA[kind]]
    firsts = {type(i): i for i in reversed(known)}
    if not firsts:
        return [{"kind": kind, "product": name, "intrinsic": "none here"}]
    program, _ = program_of(shape, known[0])
    count = 8 if quick else 64
    ways = {
        each: best_of(program, target, traces_of(program, target, count, each), folder)
        for each in ("", *(i.name for i in firsts.values()))
    } | engines(kind, shape)
    rounds: dict[str, list[float]] = {each: [] for each in ways}
    for _ in range(3 if quick else 15):
        for each, run in ways.items():
            run()
            rounds[each].append(2 * math.prod(shape) / seconds_of(run, 10) / 1e9)
    found = {each: statistics.median(values) for each, values in rounds.items()}
    names = [i.name for i in firsts.values()]
    row = {"kind": kind, "product": name, "plain": found[""]}
    row |= {each: value for each, value in found.items() if each not in (*names, "")}
    return [row | {"intrinsic": each, "tensorised": found[each]} for each in names]


def main(options: argparse.Namespace) -> int:
    os.environ["OMP_NUM_THREADS"] = "1"
    from tunefleet.artifacts.runtime import set_threads
    from tunefleet.compiler.space.intrinsics import INTRINSICS

    set_threads(1)
    started = time.time()
    count = 3 if options.quick else 20
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        board = stack.enter_context(opened(options.board, 1)) if options.board else None
        named = [each for each in INTRINSICS if options.name in each.name]
        forms = SHAPES[::3] if options.quick else SHAPES  # an even one, and the one with a rest
        rows = [checked(i, form, count, folder, board) for i in named for form in forms]
        of_gpus = gpu_intrinsics.rows(options.name, options.quick)
        rows += of_gpus
        common.table(rows, ["intrinsic", "shape", "programs", "good", "how"])
        print()
        products = list(PRODUCTS)[:1] if options.quick else list(PRODUCTS)
        speeds = []
        for kind in () if options.name else _DATA:
            for name in products:
                for row in fast(kind, name, options.quick, folder):
                    loop = next((n for n in _LOOPS if row["intrinsic"].startswith(n)), None)
                    if loop is not None:
                        row["peak"] = peak(loop, folder, 0.2 if options.quick else 2.0)
                        row["share"] = row["tensorised"] / row["peak"] if row["peak"] else None
                    speeds.append(row)
        ours = ["kind", "product", "intrinsic", "tensorised", "plain"]
        if speeds:
            engines_here = ["ONNX Runtime", "PyTorch", "OpenVINO"]
            common.table(speeds, [*ours, *engines_here, "peak", "share"])
    wrong = sum(row["programs"] - row["good"] for row in rows)
    checks = [
        common.at_most(
            "programs that are wrong or do not compile", wrong, 0, "condition", any_size=True
        ),
        common.at_least(
            "programs in all",
            sum(row["programs"] for row in rows),
            len(named) + len({row["intrinsic"] for row in of_gpus}),
            "condition",
        ),
    ]
    for row in speeds:
        if row["kind"] == "int8" and row.get("share") and row["intrinsic"].startswith("vnni"):
            name = f"share of the VNNI peak, {row['product']}"
            checks.append(common.at_least(name, row["share"], 0.75, "condition"))
            checks.append(common.at_least(name, row["share"], 0.90, "aim"))
    figures = {"programs": rows, "products": speeds}
    return common.finish("intrinsics", started, figures, checks, options.json)


if __name__ == "__main__":
    made = common.parser("Tensor intrinsics: right, and how fast.")
    made.add_argument(
        "--name", default="", help="only intrinsics with this in their names, unmeasured"
    )
    made.add_argument("--board", type=Path, metavar="DIR", help="of `make arm-board`")
    common.run(main, made)
