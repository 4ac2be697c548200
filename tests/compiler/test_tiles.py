"""Products by tiles in registers of their own: exact, whatever rows, windows and strides."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

from tests.compiler.products import (  # noqa: E402
    as_integers,
    drawn,
    matrix_product,
    result_of,
    saved_program,
    tensorised_traces,
)

from tunefleet.compiler.code.replay import scheduled  # noqa: E402
from tunefleet.compiler.graph.padded_products import convolution, matmul, padded_rows  # noqa: E402
from tunefleet.compiler.space.intrinsics import (  # noqa: E402
    TileIntrinsic,
    Tiles,
    intrinsic_named,
    intrinsics_of,
    tiles_called,
    tiles_named,
)
from tunefleet.compiler.space.opening import task_space  # noqa: E402
from tunefleet.compiler.toolchain import load_tvm  # noqa: E402
from tunefleet.compiler.toolchain.bfloat16 import BFLOAT16, stored, widened  # noqa: E402
from tunefleet.compiler.toolchain.host import native_target  # noqa: E402
from tunefleet.compiler.toolchain.programs import load_program  # noqa: E402
from tunefleet.core.forms import intrinsic_of, kind_of  # noqa: E402
from tunefleet.core.target import CpuTarget  # noqa: E402

tvm = load_tvm()
te = tvm.te


def _tiles(data="uint8"):
    found = [i for i in intrinsics_of(native_target(1)) if isinstance(i, TileIntrinsic)]
    fitting = [i for i in found if i.data == data]
    if not fitting:
        pytest.skip("this processor has no tiles, or its kernel does not give them")
    return fitting[0]


@pytest.mark.parametrize(
    ("data", "extent", "stride", "inputs", "named"),
    [
        ("uint8", 30, 1, 64, r"28x\d+x64"),
        ("int8", 16, 1, 96, r"\.apart1"),
        ("uint8", 29, 2, 24, r"\.step2\.apart2"),
        (BFLOAT16, 12, 1, 16, r"10x\d+x16"),
        ("uint8", 33, 2, 4, r"\.step2.*\.window3"),
        (BFLOAT16, 18, 1, 8, r"x8\..*window3"),
    ],
)
def test_convolutions_by_tiles_are_exact(data, extent, stride, inputs, named, tmp_path):
    """Rows of a picture and rows of several, stepped over or not, of fewer than a tile has."""
    intrinsic, outputs = _tiles(data), 48
    sums = intrinsic.accumulator
    pixels = (extent - 3) // stride + 1
    x = te.placeholder((1, extent, extent, inputs), stored(data), "data")
    w = te.placeholder((3, 3, inputs, outputs), stored(intrinsic.weight), "weight")
    ry, rx, rc = (te.reduce_axis((0, n)) for n in (3, 3, inputs))

    def pixel(n, i, j, o):
        left = x[n, i * stride + ry, j * stride + rx, rc]
        product = widened(left, data, sums) * widened(w[ry, rx, rc, o], intrinsic.weight, sums)
        return te.sum(product, axis=[ry, rx, rc])

    convolved = te.compute((1, pixels, pixels, outputs), pixel, name="conv2d_nhwc")
    done = te.compute(convolved.shape, lambda *i: convolved(*i) + tvm.tirx.const(1, sums), "done")
    program, target = saved_program([x, w, done]), native_target(2)
    picture = drawn((1, extent, extent, inputs), data, 0)
    weight = drawn((3, 3, inputs, outputs), intrinsic.weight, 1)
    windows: np.ndarray = np.lib.stride_tricks.sliding_window_view(
        as_integers(picture, data),
        (3, 3),
        (1, 2),  # type: ignore[call-overload]
    )
    windows = windows[:, ::stride, ::stride]
    expected = np.einsum("nyxcij,ijco->nyxo", windows, as_integers(weight, intrinsic.weight)) + 1
    traces = tensorised_traces(task_space(program, target), 32, intrinsic=intrinsic)
    as_named = [trace for trace in traces if re.search(named, intrinsic_of(trace))]
    assert as_named
    for trace in [*as_named[:1], *traces[:3]]:
        actual = result_of(program, target, trace, [picture, weight], tmp_path)
        np.testing.assert_array_equal(actual, expected)


def _narrow_picture():
    """A convolution of 7x7 pixels, whose rows lie one after the other with a border between."""
    attributes = SimpleNamespace(groups=1, strides=[1, 1], dilation=[1, 1])
    data = te.placeholder((1, 7, 7, 64), "uint8", "data")
    kernel = te.placeholder((3, 3, 64, 32), "int8", "weight")
    borders = [0, 0, 1, 1, 1, 1, 0, 0]
    sums = convolution(data, kernel, borders, 5, 30, attributes, tiles=True)
    return [data, kernel, te.compute(sums.shape, lambda *i: sums(*i) * 3, name="done")]


def _prime_rows():
    data = te.placeholder((2, 37, 64), "uint8", "data")
    kernel = te.placeholder((64, 32), "int8", "weight")
    product = matmul(data, kernel, 32, tiles=True)
    return [data, kernel, te.compute(product.shape, lambda *i: product(*i) * 3, name="done")]


@pytest.mark.parametrize("outputs", [_narrow_picture, _prime_rows])
def test_programs_by_tile_registers_are_drawn_as_often_as_others_of_a_designed_size(outputs):
    """On any machine: the programs are not built."""
    space = task_space(saved_program(outputs()), CpuTarget("sapphirerapids", 1)).decisions
    traces = space.traces(space.sample(400, np.random.default_rng(0)))
    kinds = [kind_of(trace) for trace in traces]
    assert {0, 2, 8} == set(kinds)
    sketches = [int(kind) for kind in space.forms]
    of_tiles = sketches.count(8) / (sketches.count(8) + sketches.count(2))
    assert kinds.count(8) / len(kinds) == pytest.approx(0.75 * of_tiles, abs=0.08)


def test_products_of_few_rows_have_no_tiles():
    intrinsic = _tiles()
    for rows, has_tiles in ((3, False), (13, True), (48, True)):
        space = task_space(matrix_product(rows, 64, 64, intrinsic), native_target(1))
        named = [json.dumps(sketch.instructions) for sketch in space.decisions.sketches]
        assert any('"tunefleet.amx.' in text for text in named) == has_tiles
        assert any('"tunefleet.vnni.' in text for text in named)


@pytest.mark.parametrize(
    "tiles",
    [
        Tiles("uint8", 2, 16, 2, 16, 64),
        Tiles("int8", 2, 7, 2, 8, 24, step=2, apart=2),
        Tiles(BFLOAT16, 1, 13, 6, 16, 32),
        Tiles("uint8", 4, 16, 1, 16, 4, step=2, window=7),
    ],
)
def test_a_register_tile_is_known_by_its_name(tiles):
    for part in ("", ".zero", ".store"):
        assert tiles_named(tiles.name + part) == (tiles, part)
    assert tiles_called(tiles.function("step")) == tiles
    assert intrinsic_named(tiles.trace_name) == tiles
    assert re.search(rf"@{re.escape(tiles.function('step'))}\(", tiles.llvm())


@pytest.mark.parametrize(
    "name", ["amx.uint8.32x32x64.0x2", "amx.uint8.48x48x64.3x3", "amx.uint8.33x32x64.2x2", "amx"]
)
def test_a_name_of_no_register_tile_is_none(name):
    assert tiles_named(name) is None


def test_registers_are_given_back_after_each_part_of_a_thread():
    intrinsic = _tiles()
    program, target = matrix_product(64, 64, 64, intrinsic), native_target(2)
    (trace,) = tensorised_traces(task_space(program, target), 1, intrinsic=intrinsic)
    text = str(scheduled(load_program(program), target, trace)["main"])
    loop = text[text.index("T.parallel") :]
    called = [loop.index(f'.{part}"') for part in ("begin", "zero", "step", "store", "end")]
    assert called == sorted(called)


@pytest.mark.parametrize(
    ("rows", "padded"), [(1, 1), (13, 13), (17, 18), (64, 64), (77, 77), (197, 208), (577, 592)]
)
def test_rows_that_divide_into_no_tiles_become_a_few_more(rows, padded):
    assert padded_rows(rows) == padded


def test_products_of_a_prime_number_of_rows_fill_tiles(tmp_path):
    intrinsic = _tiles()
    program, target = saved_program(_prime_rows()), native_target(2)
    x, w = drawn((2, 37, 64), "uint8", 0), drawn((64, 32), "int8", 1)
    traces = tensorised_traces(task_space(program, target), 3, intrinsic=intrinsic)
    assert len(traces) == 3
    for trace in traces:
        actual = result_of(program, target, trace, [x, w], tmp_path)
        np.testing.assert_array_equal(actual, x.astype("int64") @ w.astype("int64") * 3)


def test_convolutions_of_a_prime_width_fill_tiles(tmp_path):
    intrinsic = _tiles()

    class Attributes:
        groups, strides, dilation = 1, [2, 2], [1, 1]

    weight = drawn((3, 3, 32, 16), "int8", 1)
    data = te.placeholder((1, 9, 37, 32), "uint8", "data")
    kernel = te.placeholder(weight.shape, "int8", "weight")
    borders = [0, 0, 1, 1, 1, 1, 0, 0]
    sums = convolution(data, kernel, borders, 5, 16, Attributes, tiles=True)
    program, target = saved_program([data, kernel, sums]), native_target(1)
    assert [int(n) for n in sums.shape] == [1, 5, 19, 16]
    x = drawn((1, 9, 37, 32), "uint8", 0)
    bordered = np.pad(x.astype("int64"), [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=5)
    windows: np.ndarray = np.lib.stride_tricks.sliding_window_view(
        bordered,
        (3, 3),
        (1, 2),  # type: ignore[call-overload]
    )
    expected = np.einsum("nyxcij,ijco->nyxo", windows[:, ::2, ::2], weight.astype("int64"))
    traces = tensorised_traces(task_space(program, target), 3, intrinsic=intrinsic)
    assert len(traces) == 3
    for trace in traces:
        actual = result_of(program, target, trace, [x, weight], tmp_path)
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("shape", "window", "stride", "borders", "dilation"),
    [
        ((1, 7, 7, 64), 3, 1, (1, 1, 1, 1), 1),
        ((2, 7, 5, 32), 3, 1, (1, 1, 1, 1), 1),
        ((1, 7, 7, 62), 1, 1, (0, 0, 0, 0), 1),
        ((1, 14, 14, 64), 1, 2, (0, 0, 0, 0), 1),
        ((1, 8, 8, 64), 3, 1, (0, 0, 0, 0), 1),
        ((1, 6, 6, 32), 2, 1, (0, 1, 0, 1), 1),
        ((1, 6, 6, 32), 2, 1, (1, 0, 1, 0), 1),
        ((1, 6, 6, 32), 3, 1, (2, 2, 2, 2), 2),
    ],
)
def test_tiles_of_narrow_pictures_are_of_several_rows(
    shape, window, stride, borders, dilation, tmp_path
):
    """With borders between the rows of the picture, without, and with channels that are padded."""
    intrinsic = _tiles()

    steps = {"strides": [stride, stride], "dilation": [dilation, dilation]}
    attributes = SimpleNamespace(groups=1, **steps)

    channels = shape[-1]
    weight = drawn((window, window, channels + -channels % 4, 32), "int8", 1)
    weight[:, :, channels:] = 0
    data = te.placeholder(shape, "uint8", "data")
    kernel = te.placeholder(weight.shape, "int8", "weight")
    top, bottom, left, right = borders
    widths = [0, 0, *borders, 0, -channels % 4]
    sums = convolution(data, kernel, widths, 5, 30, attributes, tiles=True)
    done = te.compute(sums.shape, lambda *i: sums(*i) * 3, name="done")
    program, target = saved_program([data, kernel, done]), native_target(2)
    x = drawn(shape, "uint8", 0)
    edges = [(0, 0), (top, bottom), (left, right), (0, 0)]
    bordered = np.pad(x.astype("int64"), edges, constant_values=5)
    far = (window - 1) * dilation + 1
    windows: np.ndarray = np.lib.stride_tricks.sliding_window_view(
        bordered,
        (far, far),
        (1, 2),  # type: ignore[call-overload]
    )
    windows = windows[:, ::stride, ::stride, :, ::dilation, ::dilation]
    whole = np.einsum("nyxcij,ijco->nyxo", windows, weight[:, :, :channels].astype("int64"))
    traces = tensorised_traces(task_space(program, target), 4, intrinsic=intrinsic)
    assert len(traces) == 4
    for trace in traces:
        rows = int(intrinsic_of(trace).split(".")[2].split("x")[0])
        assert rows > whole.shape[2]
        actual = result_of(program, target, trace, [x, weight], tmp_path)
        np.testing.assert_array_equal(actual, 3 * whole[..., :30])
