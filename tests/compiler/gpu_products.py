"""Products as tasks of a GPU, and random programs of them, for tests of tensor cores."""

from __future__ import annotations

import numpy as np
from tests.compiler.products import saved_program

from tunefleet.compiler.space.intrinsics import WARP_PRODUCTS
from tunefleet.compiler.space.opening import task_space
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.host import parse_target
from tunefleet.core.forms import intrinsic_of
from tunefleet.core.target import CudaTarget

tvm = load_tvm()
te = tvm.te


def gpu(arch):
    target = parse_target(f"cuda/{arch}")
    assert isinstance(target, CudaTarget)
    return target


GPU = gpu("sm_80")
HALF = next(i for i in WARP_PRODUCTS if i.name == "wmma_sync_16x16x16_f16f16f32")


def product_and_sum(rows, columns, depth, intrinsic):
    """A product by tensor cores, with weights as the intrinsic reads them, and one number added to
    each of its columns."""
    data, sums, transposed = intrinsic.data, intrinsic.accumulator, intrinsic.transposed
    a = te.placeholder((rows, depth), data, "A")
    b = te.placeholder((columns, depth) if transposed else (depth, columns), data, "B")
    more = te.placeholder((columns,), sums, "more")
    k = te.reduce_axis((0, depth), "k")

    def wide(value):
        return value if data == sums else value.astype(sums)

    def cell(i, j):
        return te.sum(wide(a[i, k]) * wide(b[j, k] if transposed else b[k, j]), axis=k)

    product = te.compute((rows, columns), cell, name="product")
    done = te.compute((rows, columns), lambda i, j: product[i, j] + more[j], name="done")
    return saved_program([a, b, more, done])


def small(shape, dtype, seed):
    """Whole numbers whose sums half floats hold."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def traces_by(program, name, count, seed=0):
    """Random programs of a task by an intrinsic, or by any where it is empty."""
    space = task_space(program, GPU).decisions
    traces = []
    for number in tensor_sketches(space):
        picks = space.sketches[number].sample(count, np.random.default_rng(seed))
        traces += space.traces(space.population(number, picks))
    return [trace for trace in traces if name in ("", intrinsic_of(trace))]


def tensor_sketches(space):
    return [
        number
        for number, sketch in enumerate(space.sketches)
        if any(instruction[0] == "Tensorize" for instruction in sketch.instructions)
    ]


def batched(rows, columns, depth, transposed):
    """A product of each of three pairs of matrices."""
    a = te.placeholder((3, rows, depth), "float16", "A")
    b = te.placeholder((3, columns, depth) if transposed else (3, depth, columns), "float16", "B")
    k = te.reduce_axis((0, depth), "k")

    def cell(n, i, j):
        other = b[n, j, k] if transposed else b[n, k, j]
        return te.sum(a[n, i, k].astype("float32") * other.astype("float32"), axis=k)

    product = te.compute((3, rows, columns), cell, name="product")
    return saved_program([a, b, product]), [
        small([int(d) for d in each.shape], "float16", seed) for seed, each in enumerate((a, b))
    ]
