"""Float32 products in register tiles: the sums are right, whatever the rows divide into."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

from tests.compiler.products import result_of, saved_program  # noqa: E402

from tunefleet.compiler.code.packing import without_packing  # noqa: E402
from tunefleet.compiler.code.replay import scheduled  # noqa: E402
from tunefleet.compiler.graph.legalize import _by_phase  # noqa: E402
from tunefleet.compiler.nests.encoding import TaskBehaviours  # noqa: E402
from tunefleet.compiler.space.opening import task_space  # noqa: E402
from tunefleet.compiler.space.padded_rows import form_of  # noqa: E402
from tunefleet.compiler.space.registers import Registers, tiles_of  # noqa: E402
from tunefleet.compiler.toolchain import load_tvm  # noqa: E402
from tunefleet.compiler.toolchain.host import native_target  # noqa: E402
from tunefleet.compiler.toolchain.programs import load_program  # noqa: E402
from tunefleet.core.forms import kind_of, tile_height, tile_of  # noqa: E402
from tunefleet.core.target import CpuTarget  # noqa: E402
from tunefleet.errors import ForeignError  # noqa: E402

tvm = load_tvm()
te, topi = tvm.te, tvm.topi

AVX2, AVX512 = Registers(16, 8), Registers(32, 16)


def matrix_product(rows, columns=32, depth=24):
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), "k")
    return [
        a,
        b,
        te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product"),
    ]


def with_heads(rows, heads=2, size=16):
    """A product whose result has its heads first, as in attention."""
    a, b, product = matrix_product(rows, heads * size)
    shape = (heads, rows, size)
    return [a, b, te.compute(shape, lambda h, i, d: product[i, h * size + d] + 1.0, name="heads")]


def batched(rows, columns=32, depth=8, batch=3):
    a, b = te.placeholder((batch, rows, depth)), te.placeholder((batch, depth, columns))
    k = te.reduce_axis((0, depth), "k")
    product = te.compute(
        (batch, rows, columns),
        lambda n, i, j: te.sum(a[n, i, k] * b[n, k, j], axis=k),
        name="product",
    )
    return [a, b, te.compute((batch, rows, columns), lambda *i: product[i] * 2.0, name="scaled")]


def convolution(size, stride, window, columns=32):
    a = te.placeholder((1, size, size, 8), name="A")
    b = te.placeholder((window, window, 8, columns), name="B")
    sums = topi.nn.conv2d_nhwc(a, b, stride, window // 2, 1)
    return [a, b, topi.nn.relu(sums)]


def with_bias(rows, columns):
    """A product with a bias and a residual."""
    a, b, product = matrix_product(rows, columns)
    bias, before = te.placeholder((columns,), name="C"), te.placeholder((rows, columns), name="D")
    sums = te.compute(product.shape, lambda i, j: product[i, j] + bias[j], name="biased")
    clipped = topi.nn.relu(sums)
    result = te.compute(product.shape, lambda i, j: clipped[i, j] + before[i, j], name="residual")
    return [a, b, bias, before, result]


def grouped(size, inputs=4, outputs=16, groups=2):
    a = te.placeholder((1, size, size, groups * inputs), name="A")
    b = te.placeholder((3, 3, inputs, groups * outputs), name="B")
    ry, rx = te.reduce_axis((0, 3), "ry"), te.reduce_axis((0, 3), "rx")
    rc = te.reduce_axis((0, inputs), "rc")

    def pixel(n, y, x, o):
        return te.sum(
            a[n, y + ry, x + rx, o // outputs * inputs + rc] * b[ry, rx, rc, o], axis=[ry, rx, rc]
        )

    shape = (1, size - 2, size - 2, groups * outputs)
    return [a, b, topi.nn.relu(te.compute(shape, pixel, name="group_conv2d_nhwc"))]


def depthwise(size, stride, window, padding):
    a = te.placeholder((1, size, size, 32), name="A")
    b = te.placeholder((window, window, 1, 32), name="B")
    border = [0, padding, padding, 0]
    data = topi.nn.pad(a, border, name="pad_temp") if padding else a
    ry, rx = te.reduce_axis((0, window), "ry"), te.reduce_axis((0, window), "rx")
    rc = te.reduce_axis((0, 1), "rc")
    out = (size + 2 * padding - window) // stride + 1

    def pixel(n, y, x, c):
        read = data[n, y * stride + ry, x * stride + rx, c + rc]
        return te.sum(read * b[ry, rx, rc, c], axis=[ry, rx, rc])

    return [a, b, topi.nn.relu(te.compute((1, out, out, 32), pixel, name="depthwise"))]


def transposed(size=4, channels=8, outputs=32, stride=2, padding=1):
    """A transposed convolution by the phases of its result, and what follows it."""
    data = te.placeholder((1, size, size, channels), name="A")
    phases = te.placeholder((stride, stride, 2, 2, channels, outputs), name="B")
    sums = _by_phase(data, phases, (stride * size, stride * size), [padding, padding])
    return [data, phases, topi.nn.relu(sums)]


def untiled(module):
    """What the program computes without a schedule."""
    return tvm.tirx.build(module, target="llvm")


def traces_of(space, count, seed=0):
    population = space.decisions.sample(16 * count, np.random.default_rng(seed))
    return [t for t in space.decisions.traces(population) if kind_of(t) > 1][:count]


@pytest.mark.parametrize(
    "outputs",
    [
        matrix_product(13),
        matrix_product(49),
        with_heads(13),
        batched(7),
        convolution(7, 1, 3),
        convolution(9, 2, 3),
        convolution(5, 1, 1),
        grouped(7),
        depthwise(7, 1, 3, 1),
        depthwise(9, 2, 5, 2),
        depthwise(8, 1, 3, 0),
        transposed(),
        transposed(7),
        matrix_product(13, 29),
        with_bias(13, 29),
        with_bias(12, 116),
        batched(7, 37),
        convolution(7, 1, 3, 18),
        convolution(9, 2, 1, 58),
    ],
    ids=[
        "rows",
        "pixels",
        "heads",
        "batch",
        "window",
        "stride",
        "pointwise",
        "groups",
        "depthwise",
        "depthwise stride",
        "depthwise without border",
        "transposed",
        "transposed with a last tile",
        "columns",
        "columns with a bias",
        "columns with short vectors",
        "columns with a batch",
        "columns with a window",
        "columns with a stride",
    ],
)
def test_the_sums_are_those_of_the_task(outputs, tmp_path):
    program, target = saved_program(outputs), native_target(1)
    random = np.random.default_rng(0)
    arrays = [
        random.standard_normal([int(n) for n in tensor.shape]).astype("float32")
        for tensor in outputs[:-1]
    ]
    expected = np.zeros([int(n) for n in outputs[-1].shape], "float32")
    tensors = [tvm.runtime.tensor(each) for each in (*arrays, expected)]
    untiled(load_program(program))["main"](*tensors)
    traces = traces_of(task_space(program, target), 4)
    assert len(traces) == 4
    for trace in traces:
        found = result_of(program, target, trace, arrays, tmp_path)
        np.testing.assert_allclose(found, tensors[-1].numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("stride", "padding"), [(2, 0), (2, 1), (2, 3), (3, 1), (3, 2)])
def test_every_program_of_a_transposed_convolution_is_right(stride, padding, tmp_path):
    outputs = transposed(stride=stride, padding=padding)
    program, target = saved_program(outputs), native_target(2)
    random = np.random.default_rng(0)
    shapes = [[int(n) for n in tensor.shape] for tensor in outputs]
    *arrays, result = [random.standard_normal(shape).astype("float32") for shape in shapes]
    tensors = [tvm.runtime.tensor(each) for each in (*arrays, result)]
    untiled(load_program(program))["main"](*tensors)
    space = task_space(program, target).decisions
    traces = list(space.traces(space.sample(24, random)))
    assert len({kind_of(trace) > 1 for trace in traces}) == 2
    for trace in traces:
        found = result_of(program, target, trace, arrays, tmp_path)
        np.testing.assert_allclose(found, tensors[-1].numpy(), rtol=1e-5, atol=1e-5)


def test_rows_are_padded_to_the_tiles_and_the_last_one_is_repeated():
    program = saved_program(matrix_product(13))
    (trace,) = traces_of(task_space(program, CpuTarget("znver3", 1)), 1)
    padded = form_of(load_program(program), trace)
    height = tile_height(trace)
    assert height > 1
    assert f"({-(-13 // height) * height}, 32)" in str(padded)
    assert 13 % height == 0 or "T.min(v_r, 12)" in str(padded)


def test_vectors_overlap_where_they_do_not_divide_the_columns():
    program = saved_program(with_bias(24, 58))
    (trace,) = traces_of(task_space(program, CpuTarget("znver3", 1)), 1)
    assert tile_of(trace)[1] == 8
    padded = form_of(load_program(program), trace)
    assert "T.min(v_j // 8 * 8, 50) + v_j % 8" in str(padded)
    packed = without_packing(scheduled(load_program(program), CpuTarget("znver3", 1), trace))
    weights = [int(extent) for extent in packed["main"].params[1].shape]
    assert math.prod(weights) == 24 * 64
    fewer = load_program(saved_program(with_bias(24, 7)))
    with pytest.raises(ForeignError):
        form_of(fewer, trace)


def test_vectors_that_overlap_are_wide_and_no_wider_than_the_columns():
    neon = Registers(32, 4)
    found = [r.covering(c) for r in (AVX512, AVX2, neon) for c in (58, 12, 24, 7)]
    assert found == [(16, 8), (8,), (), (), (8,), (8,), (), (), (4,), (), (), (4,)]


@pytest.mark.parametrize("outputs", [with_heads(13, 3, 7), transposed(7, outputs=9)])
def test_columns_do_not_overlap_where_they_are_rearranged(outputs):
    space = task_space(saved_program(outputs), CpuTarget("znver3", 1)).decisions
    population = space.sample(64, np.random.default_rng(0))
    assert not any(tile_of(trace)[1] for trace in space.traces(population))


def test_a_trace_fits_a_task_with_other_rows():
    first, second = (
        task_space(saved_program(matrix_product(rows)), CpuTarget("znver3", 1)).decisions
        for rows in (60, 66)
    )
    trace = next(t for t in traces_of(task_space(saved_program(matrix_product(60)),
                 CpuTarget("znver3", 1)), 8) if tile_height(t) == 6)  # fmt: skip
    assert first.read(trace) is not None
    adapted = second.adapt(trace)
    assert len(adapted)
    assert any(tile_height(t) for t in second.traces(adapted))


@pytest.mark.parametrize("registers", [AVX2, AVX512])
@pytest.mark.parametrize("rows", [49, 77, 197, 261, 1500])
def test_tiles_fill_the_registers(registers, rows):
    for tile in tiles_of(registers.count, rows, 384 // registers.lanes):
        assert 8 <= tile.sums <= registers.count - 4
        padded = -(-rows // tile.height) * tile.height
        assert padded <= 1.08 * rows


@pytest.mark.parametrize(("rows", "columns"), [(49, 7), (1, 64), (1, 58)])
def test_without_vectors_of_columns_or_several_rows_there_are_no_tiles(rows, columns):
    space = task_space(saved_program(matrix_product(rows, columns)), CpuTarget("znver3", 1))
    population = space.decisions.sample(64, np.random.default_rng(0))
    assert not any(map(tile_height, space.decisions.traces(population)))


def test_behaviours_are_known_without_building():
    program, target = saved_program(matrix_product(49)), CpuTarget("znver3", 1)
    space = task_space(program, target).decisions
    population = space.sample(16, np.random.default_rng(0))
    encoded = TaskBehaviours(program, target).encode(population, np.zeros(32, np.float32))
    assert all(each is not None for each in encoded)
