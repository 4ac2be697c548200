"""Fixed kernels: one that tells whether the machine is as fast as a moment ago, others that tell
how fast it can be at all, at computing and at reading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tunefleet.compiler.code.build import compile_module
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.target import Target
from tunefleet.core.trial import Built, Failure
from tunefleet.errors import SetupError

tvm = load_tvm()

_REFERENCE_SIZE = 384
REPEATS = 30

#: Register tiles (rows, columns) tried for the peak: AVX2's 16 and AVX-512's 32 registers.
_PEAK_TILES = ((6, 16), (4, 24), (12, 32), (8, 48))
_PEAK_DEPTH = 256
_PEAK_TILES_PER_THREAD = 64

#: What a kernel that reads sums in registers: vectors, numbers of each.
_SUMS = (8, 16)
#: Bytes that each thread reads at least in one run, to take longer than threads need to start.
_LEAST_READ = 8 * 2**20


def reference_kernel(target: Target, directory: str) -> Built:
    """A blocked float32 matmul on every thread of the target."""
    return built_kernel(_matmul(), target, "reference", directory)


def peak_kernels(target: Target, directory: str) -> Iterator[tuple[float, Built]]:
    """Register-blocked kernels whose data stay in L1, each with its floating-point operations."""
    for rows, columns in _PEAK_TILES:
        tiles = target.threads * _PEAK_TILES_PER_THREAD
        module = _tile_products(tiles, rows, columns)
        flops = 2.0 * tiles * rows * columns * _PEAK_DEPTH
        yield flops, built_kernel(module, target, f"peak-{rows}x{columns}", directory)


def reading_kernel(target: Target, directory: str, size: int) -> tuple[int, Built]:
    """A kernel whose threads read `size` bytes together, each its own part over and over, and the
    bytes that one run of it reads."""
    vectors, lanes = _SUMS
    step = vectors * lanes * 4
    steps = max(1, size // target.threads // step)
    times = max(1, _LEAST_READ // (steps * step))
    module = _sums(target.threads, times, steps)
    return target.threads * times * steps * step, built_kernel(
        module, target, f"read-{size}", directory
    )


def built_kernel(module: Any, target: Target, name: str, directory: str) -> Built:
    """A kernel of ours, compiled. Raises SetupError."""
    built = compile_module(module, target, name, directory)
    if isinstance(built, Failure):
        raise SetupError(f"cannot compile the {name} kernel: {built.text}", cure="tunefleet doctor")
    return built


def _matmul() -> Any:
    te, n = tvm.te, _REFERENCE_SIZE
    a = te.placeholder((n, n), name="a")
    b = te.placeholder((n, n), name="b")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([a, b, c]))
    block = schedule.get_sblock("c")
    i, j, depth = schedule.get_loops(block)
    rows, row = schedule.split(i, [None, 4])
    columns, column = schedule.split(j, [None, 16])
    schedule.reorder(rows, columns, depth, row, column)
    schedule.parallel(rows)
    schedule.vectorize(column)
    schedule.unroll(row)
    schedule.decompose_reduction(block, depth)
    return schedule.mod


def _tile_products(tiles: int, rows: int, columns: int) -> Any:
    """c[t] += a^T b over `_PEAK_DEPTH`, the same a and b for each tile t."""
    te = tvm.te
    a = te.placeholder((_PEAK_DEPTH, rows), name="a")
    b = te.placeholder((_PEAK_DEPTH, columns), name="b")
    k = te.reduce_axis((0, _PEAK_DEPTH), name="k")
    c = te.compute(
        (tiles, rows, columns), lambda t, i, j: te.sum(a[k, i] * b[k, j], axis=k), name="c"
    )
    schedule = tvm.s_tir.Schedule(te.create_prim_func([a, b, c]))
    block = schedule.get_sblock("c")
    local = schedule.cache_write(block, 0, "local")
    tile, i, j, depth = schedule.get_loops(block)
    schedule.reorder(tile, depth, i, j)
    schedule.reverse_compute_at(local, tile)
    schedule.parallel(tile)
    schedule.vectorize(j)
    schedule.unroll(i)
    init = schedule.decompose_reduction(block, depth)
    schedule.vectorize(schedule.get_loops(init)[-1])
    schedule.unroll(schedule.get_loops(init)[-2])
    schedule.vectorize(schedule.get_loops(local)[-1])
    schedule.unroll(schedule.get_loops(local)[-2])
    return schedule.mod


def _sums(threads: int, times: int, steps: int) -> Any:
    """c[t] = the sum over the steps of a[t], all of it `times` times."""
    te, (vectors, lanes) = tvm.te, _SUMS
    a = te.placeholder((threads, steps, vectors, lanes), name="a")
    again = te.reduce_axis((0, times), name="again")
    k = te.reduce_axis((0, steps), name="k")
    c = te.compute(
        (threads, vectors, lanes), lambda t, i, j: te.sum(a[t, k, i, j], axis=[again, k]), name="c"
    )
    schedule = tvm.s_tir.Schedule(te.create_prim_func([a, c]))
    block = schedule.get_sblock("c")
    local = schedule.cache_write(block, 0, "local")
    thread, i, j, repeat, step = schedule.get_loops(block)
    schedule.reorder(thread, repeat, step, i, j)
    schedule.reverse_compute_at(local, thread)
    schedule.parallel(thread)
    schedule.vectorize(j)
    schedule.unroll(i)
    init = schedule.decompose_reduction(block, repeat)
    schedule.vectorize(schedule.get_loops(init)[-1])
    schedule.unroll(schedule.get_loops(init)[-2])
    schedule.vectorize(schedule.get_loops(local)[-1])
    schedule.unroll(schedule.get_loops(local)[-2])
    return schedule.mod
