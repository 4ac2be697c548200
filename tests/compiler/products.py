"""Products as tasks, and what programs of them compute, for tests of tensor instructions."""

from __future__ import annotations

import numpy as np

from tunefleet.compiler.code.build import build_candidate
from tunefleet.compiler.code.packing import arguments_of
from tunefleet.compiler.space.tensorised import CpuTensorised
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.bfloat16 import BFLOAT16, stored, widened
from tunefleet.core.forms import intrinsic_of
from tunefleet.core.trial import Built

tvm = load_tvm()
te = tvm.te


def saved_program(outputs, weight=1):
    function = te.create_prim_func(outputs).with_attr("tirx.noalias", True)
    function = function.with_attr("layout_free_buffers", [weight])
    return tvm.ir.save_json(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))


def matrix_product(rows, columns, depth, intrinsic):
    data, weight, sums = intrinsic.data, intrinsic.weight, intrinsic.accumulator
    a = te.placeholder((rows, depth), stored(data), "A")
    b = te.placeholder((depth, columns), stored(weight), "B")
    k = te.reduce_axis((0, depth), "k")

    def cell(i, j):
        return te.sum(widened(a[i, k], data, sums) * widened(b[k, j], weight, sums), axis=k)

    product = te.compute((rows, columns), cell, name="product")
    done = te.compute((rows, columns), lambda i, j: product[i, j] + tvm.tirx.const(1, sums))
    return saved_program([a, b, done])


def drawn(shape, dtype, seed):
    generator = np.random.default_rng(seed)
    if dtype == BFLOAT16:  # whole numbers, whose sums float32 holds
        return (generator.integers(-8, 9, shape).astype("float32").view("uint32") >> 16).astype(
            "uint16"
        )
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def as_integers(array, dtype):
    if dtype == BFLOAT16:
        return (array.astype("uint32") << 16).view("float32").astype("int64")
    return array.astype("int64")


def tensorised_traces(space, count, seed=0, intrinsic=None):
    """Random programs by tensor intrinsics, or by one: names of register tiles begin with it."""
    population = space.decisions.sample(16 * count, np.random.default_rng(seed))
    family = CpuTensorised()
    named = [t for t in space.decisions.traces(population) if family.made(t)]
    if intrinsic is not None:
        named = [t for t in named if f"{intrinsic_of(t)}.".startswith(f"{intrinsic.name}.")]
    return named[:count]


def result_of(program, target, trace, arrays, tmp_path):
    built = build_candidate(program, target, "x", trace, str(tmp_path))
    assert isinstance(built, Built)
    shape, dtype = built.args[-1]
    result = tvm.runtime.tensor(np.zeros(shape, dtype))
    tensors = [tvm.runtime.tensor(array) for array in arguments_of(built, arrays)]
    tvm.runtime.load_module(built.path)["main"](*tensors, result)
    return result.numpy()
