"""What the loops of scheduled programs do, as their lowered form tells."""

from __future__ import annotations

from typing import Any

import pytest

from tunefleet.features.behaviours import Compute, Loop, Run

pytestmark = pytest.mark.tvm


def _matmul(rows: int, columns: int, steps: int) -> Any:
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    te = tvm.te
    a, b = te.placeholder((rows, steps), name="a"), te.placeholder((steps, columns), name="b")
    k = te.reduce_axis((0, steps), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], k), "c")
    return tvm.s_tir.Schedule(tvm.IRModule({"main": te.create_prim_func([a, b, c])}))


def test_a_product_is_its_first_step_and_the_others() -> None:
    from tunefleet.compiler.code.loop_nests import statements_of

    schedule = _matmul(8, 16, 4)
    block = schedule.get_sblock("c", func_name="main")
    i, j, k = schedule.get_loops(block)
    schedule.reorder(i, k, j)
    schedule.parallel(i)
    schedule.vectorize(j)
    schedule.decompose_reduction(block, k)
    zero, update = statements_of(schedule.mod)
    assert zero.loops == (Loop(8, Run.PARALLEL), Loop(16, Run.VECTORIZED))
    assert (zero.loads, zero.compute) == ((), Compute())
    assert update.loops == (Loop(8, Run.PARALLEL), Loop(4), Loop(16, Run.VECTORIZED))
    assert update.compute == Compute(additions=1, products=1)
    strides = [[move.stride for move in load.moves] for load in update.loads]
    assert strides == [[16, 0, 1], [4, 1, 0], [0, 16, 1]]
    assert all(access.argument for access in (*update.loads, update.store))
    assert update.store.buffer_elements == 128


def test_a_fused_loop_sees_the_places_that_it_sees() -> None:
    from tunefleet.compiler.code.loop_nests import statements_of

    schedule = _matmul(8, 16, 4)
    block = schedule.get_sblock("c", func_name="main")
    i, j, _ = schedule.get_loops(block)
    schedule.fuse(i, j)
    (*_, update) = statements_of(schedule.mod)
    data = next(load for load in update.loads if load.buffer_elements == 32)
    # A row for 16 of its steps, then the next one.
    assert [(move.stride, move.places) for move in data.moves] == [(0, 8), (1, 4)]


def test_a_program_of_a_gpu_has_bound_loops_and_memory_on_the_chip() -> None:
    from tunefleet.compiler.code.loop_nests import statements_of

    schedule = _matmul(8, 16, 4)
    block = schedule.get_sblock("c", func_name="main")
    i, j, _ = schedule.get_loops(block)
    schedule.bind(i, "blockIdx.x")
    schedule.bind(j, "threadIdx.x")
    fetched = schedule.cache_read(block, 0, "shared")
    schedule.compute_at(fetched, i)
    fetch, *_, update = statements_of(schedule.mod)
    assert fetch.store.on_chip
    assert not fetch.loads[0].on_chip
    assert update.loops[:2] == (Loop(8, Run.BOUND), Loop(16, Run.BOUND))
    assert [load.on_chip for load in update.loads].count(True) == 1


def test_virtual_threads_are_loops_too() -> None:
    from tunefleet.compiler.code.loop_nests import statements_of

    schedule = _matmul(8, 16, 4)
    i, j, _ = schedule.get_loops(schedule.get_sblock("c", func_name="main"))
    virtual, thread = schedule.split(j, [4, 4])
    for loop, axis in ((i, "blockIdx.x"), (virtual, "vthread.x"), (thread, "threadIdx.x")):
        schedule.bind(loop, axis)
    *_, update = statements_of(schedule.mod)
    bound = [Loop(extent, Run.BOUND) for extent in (8, 4, 4)]
    assert update.loops == (*bound, Loop(4))
    assert [move.stride for move in update.store.moves] == [16, 4, 1, 0]


def test_operations_are_counted_by_kind() -> None:
    from tunefleet.compiler.code.loop_nests import statements_of
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    te, tirx = tvm.te, tvm.tirx
    x = te.placeholder((8,), "float32", "x")
    y = te.compute(
        (8,), lambda i: tirx.if_then_else(i < 4, tirx.exp(x[i]) / 3.0, 0.0).astype("int32")
    )
    module = tvm.IRModule({"main": te.create_prim_func([x, y])})
    (statement,) = statements_of(module)
    assert statement.compute == Compute(divisions=1, comparisons=1, functions=1, casts=1)
    assert [move.stride for move in statement.loads[0].moves] == [1]
