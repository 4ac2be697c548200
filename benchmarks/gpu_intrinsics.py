"""Tensor cores for `intrinsics.py`: do programs by them compile? Nothing here executes them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

#: Rows, columns, depth; the last two divide into no fragments.
SHAPES = ((512, 512, 512), (128, 3072, 768), (197, 768, 192), (49, 30, 75))
TARGET = "cuda/sm_80"


def rows(name: str, quick: bool) -> list[dict[str, Any]]:
    """A row for each shape that an intrinsic with `name` in its name fits; five programs of each,
    since nvcc takes a second for one."""
    from tunefleet.compiler.space.intrinsics import WARP_PRODUCTS
    from tunefleet.compiler.toolchain.nvcc import find_nvcc

    named = [each for each in WARP_PRODUCTS if name in each.name]
    if named and find_nvcc() is None:
        print("tensor cores are left out: no nvcc (pip install 'tunefleet[cuda]')\n")
        return []
    shapes, count = (SHAPES[:1], 1) if quick else (SHAPES, 5)
    made = [compiled(each, shape, count) for each in named for shape in shapes]
    return [row for row in made if row["programs"]]


def program_of(shape: Sequence[int], intrinsic: Any) -> str:
    """A product with weights as an intrinsic reads them, and a bias, as a task."""
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    te = tvm.te
    rows, columns, depth = shape
    numbers, sums, transposed = intrinsic.data, intrinsic.accumulator, intrinsic.transposed
    a = te.placeholder((rows, depth), numbers, "A")
    b = te.placeholder((columns, depth) if transposed else (depth, columns), numbers, "B")
    bias = te.placeholder((columns,), sums, "bias")
    k = te.reduce_axis((0, depth), "k")

    def wide(value: Any) -> Any:
        return value if numbers == sums else value.astype(sums)

    def cell(i: Any, j: Any) -> Any:
        return te.sum(wide(a[i, k]) * wide(b[j, k] if transposed else b[k, j]), axis=k)

    product = te.compute((rows, columns), cell, name="product")
    done = te.compute((rows, columns), lambda i, j: product[i, j] + bias[j], name="done")
    function = te.create_prim_func([a, b, bias, done]).with_attr("global_symbol", "main")
    return str(tvm.ir.save_json(tvm.IRModule({"main": function.with_attr("tirx.noalias", True)})))


def compiled(intrinsic: Any, shape: Sequence[int], count: int) -> dict[str, Any]:
    """How many random programs of a shape become machine code, how many TVM or nvcc refuses."""
    from tunefleet.compiler.code.build import lowered
    from tunefleet.compiler.code.device_code import device_sources
    from tunefleet.compiler.code.replay import replay
    from tunefleet.compiler.toolchain.host import parse_target
    from tunefleet.compiler.toolchain.nvcc import CudaError, compile_cubin
    from tunefleet.compiler.toolchain.programs import load_program

    target: Any = parse_target(TARGET)
    program = program_of(shape, intrinsic)
    traces = traces_of(program, target, intrinsic, count)
    rejected = refused = 0
    errors = []
    began = time.perf_counter()
    for trace in traces:
        try:
            module = lowered(replay(load_program(program), target, trace).mod, target)
        except Exception as error:  # what TVM makes of a program that it cannot compile
            rejected += 1
            errors.append(str(error).strip().splitlines()[-1][:200])
            continue
        try:
            for source in device_sources(module):
                compile_cubin(source, target.arch)
        except CudaError as error:
            refused += 1
            errors.append(str(error))
    return {
        "intrinsic": intrinsic.name,
        "shape": "x".join(map(str, shape)),
        "programs": len(traces),
        "good": len(traces) - rejected - refused,
        "rejected": rejected,
        "refused": refused,
        "errors": errors,
        "seconds": time.perf_counter() - began,
        "how": "compiled only",
    }


def traces_of(program: str, target: Any, intrinsic: Any, count: int) -> list[str]:
    """Random programs by one intrinsic; none where the shape wastes too much of it."""
    from tunefleet.compiler.space.opening import sketches_of
    from tunefleet.core.forms import intrinsic_of
    from tunefleet.core.ids import canonical_json
    from tunefleet.search.decisions import DecisionSpace

    own = [
        sketch
        for sketch in sketches_of(program, target)
        if intrinsic_of(canonical_json(sketch.instructions)) == intrinsic.name
    ]
    if not own:
        return []
    space = DecisionSpace.of(own)
    return space.traces(space.sample(count, np.random.default_rng(0)).distinct())
