"""Which programs by tensor cores a task has on a GPU, and what is known of them before any is
built."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

from tests.compiler.gpu_products import (  # noqa: E402
    GPU,
    HALF,
    batched,
    gpu,
    product_and_sum,
    tensor_sketches,
    traces_by,
)
from tests.compiler.products import saved_program  # noqa: E402

from tunefleet.compiler.code.replay import completed, replay  # noqa: E402
from tunefleet.compiler.space.intrinsics import (  # noqa: E402
    WARP_PRODUCTS,
    has_intrinsics,
    warp_product_named,
    warp_products_of,
)
from tunefleet.compiler.space.opening import has_tensorised, task_space  # noqa: E402
from tunefleet.compiler.toolchain import load_tvm  # noqa: E402
from tunefleet.compiler.toolchain.programs import load_program  # noqa: E402
from tunefleet.core.forms import intrinsic_of  # noqa: E402
from tunefleet.errors import ForeignError  # noqa: E402
from tunefleet.features.words import compressed, parse, skeleton  # noqa: E402

tvm = load_tvm()
te = tvm.te


@pytest.mark.parametrize("transposed", [False, True])
def test_limits_say_which_programs_a_gpu_takes(transposed):
    program, _ = batched(512, 512, 512, transposed)
    space = task_space(program, GPU).decisions
    rng = np.random.default_rng(3)
    for number in tensor_sketches(space):
        sketch = space.sketches[number]
        hard = [x for x in sketch.limits if x.name in ("threads", "shared memory")]
        assert len(hard) == 2
        picks = replace(sketch, limits=()).sample(512, rng)
        takes = replace(sketch, limits=tuple(hard)).keeps(picks)
        assert 0 < takes.sum() < len(takes)
        some = np.concatenate([np.flatnonzero(takes)[:6], np.flatnonzero(~takes)[:6]])
        traces = space.traces(space.population(number, picks[some]))
        assert [_taken(program, trace) for trace in traces] == takes[some].tolist()


def _taken(program, trace, target=GPU):
    try:
        replay(load_program(program), target, trace)
    except ForeignError:
        return False
    return True


@pytest.mark.parametrize(
    "intrinsic", [i for i in WARP_PRODUCTS if i.rows == 16], ids=lambda i: i.name
)
def test_shared_memory_is_what_the_limit_says(intrinsic):
    """To the byte, as TVM counts what it has lowered."""
    program = product_and_sum(96, 96, 96, intrinsic)
    space = task_space(program, GPU).decisions
    for trace in traces_by(program, intrinsic.name, 3):
        read = space.read(trace)
        assert read is not None
        number = int(read.sketch[0])
        (limit,) = (x for x in space.sketches[number].limits if x.name == "shared memory")
        values = space.values(read, number)
        needed = int(np.sum([amount.of(values)[0] for amount in limit.amounts]))
        assert _taken(program, trace, replace(GPU, shared_memory_bytes=needed))
        assert not _taken(program, trace, replace(GPU, shared_memory_bytes=needed - 1))


def test_a_program_reads_as_itself():
    program = product_and_sum(96, 96, 96, HALF)
    space = task_space(program, GPU).decisions
    for trace in traces_by(program, HALF.name, 4):
        read, whole = space.read(trace), space.read(completed(program, GPU, trace))
        assert read is not None
        assert whole is not None
        assert [trace] == space.traces(read)
        assert read.keys() == whole.keys()


def test_what_is_sampled_and_bred_keeps_the_limits():
    space = task_space(product_and_sum(512, 512, 512, HALF), GPU).decisions
    rng = np.random.default_rng(1)
    parents = space.sample(256, rng)
    bred = space.mutate(space.cross(parents, space.sample(256, rng), rng), rng)
    for number in tensor_sketches(space):
        sketch = space.sketches[number]
        rows = bred.rows(number)
        assert len(rows)
        assert sketch.keeps(bred.picks[rows, : len(sketch.choices)].astype(np.int64)).all()


def test_both_kinds_of_programs_stand_side_by_side():
    program = product_and_sum(64, 64, 64, HALF)
    space = task_space(program, GPU).decisions
    assert 0 < len(tensor_sketches(space)) < len(space.sketches)
    assert has_tensorised(program, GPU)
    named = {intrinsic_of(json.dumps(s.instructions)) for s in space.sketches} - {""}
    assert {i.name for i in WARP_PRODUCTS if (i.data, i.accumulator, i.transposed) ==
            (HALF.data, HALF.accumulator, False)} == named  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "data"),
    [("sm_61", set()), ("sm_70", {"float16"}), ("sm_75", {"float16", "int8"}),
     ("sm_80", {"float16", "int8", "bfloat16"}), ("sm_120", {"float16", "int8", "bfloat16"})],
)  # fmt: skip
def test_a_gpu_has_what_its_architecture_has(arch, data):
    target = gpu(arch)
    assert data == {i.data for i in warp_products_of(target)}
    assert bool(data) == has_intrinsics(target)
    assert bool(data) == has_tensorised(product_and_sum(64, 64, 64, HALF), target)


def test_products_of_one_row_or_of_floats_have_no_such_program():
    floats = replace(HALF, data="float32")
    for program in (product_and_sum(1, 64, 64, HALF), product_and_sum(64, 64, 64, floats)):
        assert not has_tensorised(program, GPU)


def test_one_matrix_that_a_batch_shares_is_left_to_plain_programs():
    a, b = te.placeholder((32, 32), "float16", "A"), te.placeholder((3, 32, 32), "float16", "B")
    k = te.reduce_axis((0, 32), "k")

    def cell(n, i, j):
        return te.sum(a[i, k].astype("float32") * b[n, k, j].astype("float32"), axis=k)

    program = saved_program([a, b, te.compute((3, 32, 32), cell, name="product")])
    space = task_space(program, GPU).decisions
    assert space.sketches
    assert not tensor_sketches(space)


@pytest.mark.parametrize("intrinsic", WARP_PRODUCTS, ids=lambda i: i.name)
def test_features_see_the_shape_of_an_instruction(intrinsic):
    key, _ = parse(json.dumps(["Tensorize", ["l1"], [intrinsic.trace_name, True], []]))
    (word,) = skeleton((key,))[0].words
    shape = (intrinsic.rows, intrinsic.columns, intrinsic.depth)
    assert tuple(compressed(float(n)) for n in shape) == word.numbers[-3:]


def test_names_of_parts_are_no_products():
    assert warp_product_named(HALF.trace_name) is HALF
    with pytest.raises(KeyError):
        warp_product_named(HALF.store)
