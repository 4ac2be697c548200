"""Products by tensor intrinsics: every program gives the very sums, whatever it is tiled like."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

from tunefleet.compiler.code.build import build_candidate, build_checked  # noqa: E402
from tunefleet.compiler.code.loop_nests import statements_of  # noqa: E402
from tunefleet.compiler.code.replay import replay, scheduled  # noqa: E402
from tunefleet.compiler.graph.padded_products import (  # noqa: E402
    convolution,
    matmul,
    padded_rows,
    padded_weight,
)
from tunefleet.compiler.space import intrinsics  # noqa: E402
from tunefleet.compiler.space.intrinsics import (  # noqa: E402
    INTRINSICS,
    TileIntrinsic,
    Tiles,
    VectorIntrinsic,
    intrinsic_named,
    intrinsics_of,
    least_target,
    runs_on,
    tiles_called,
    tiles_named,
)
from tunefleet.compiler.space.opening import task_space  # noqa: E402
from tunefleet.compiler.space.products import product_of  # noqa: E402
from tunefleet.compiler.space.tensorised import CpuTensorised  # noqa: E402
from tunefleet.compiler.toolchain import load_tvm  # noqa: E402
from tunefleet.compiler.toolchain.bfloat16 import BFLOAT16, stored, widened  # noqa: E402
from tunefleet.compiler.toolchain.host import is_foreign, native_target, parse_target  # noqa: E402
from tunefleet.compiler.toolchain.programs import load_program  # noqa: E402
from tunefleet.core.forms import intrinsic_of  # noqa: E402
from tunefleet.core.precision import INT8  # noqa: E402
from tunefleet.core.trial import Built  # noqa: E402
from tunefleet.errors import InternalError  # noqa: E402

tvm = load_tvm()
te = tvm.te


def _program(outputs, weight=1):
    function = te.create_prim_func(outputs).with_attr("tirx.noalias", True)
    function = function.with_attr("layout_free_buffers", [weight])
    return tvm.ir.save_json(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))


def _product(rows, columns, depth, intrinsic):
    data, weight, sums = intrinsic.data, intrinsic.weight, intrinsic.accumulator
    a = te.placeholder((rows, depth), stored(data), "A")
    b = te.placeholder((depth, columns), stored(weight), "B")
    k = te.reduce_axis((0, depth), "k")

    def cell(i, j):
        return te.sum(widened(a[i, k], data, sums) * widened(b[k, j], weight, sums), axis=k)

    product = te.compute((rows, columns), cell, name="product")
    done = te.compute((rows, columns), lambda i, j: product[i, j] + tvm.tirx.const(1, sums))
    return _program([a, b, done])


def _numbers(shape, dtype, seed):
    generator = np.random.default_rng(seed)
    if dtype == BFLOAT16:  # whole numbers, whose sums float32 holds
        return (generator.integers(-8, 9, shape).astype("float32").view("uint32") >> 16).astype(
            "uint16"
        )
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def _values(array, dtype):
    if dtype == BFLOAT16:
        return (array.astype("uint32") << 16).view("float32").astype("int64")
    return array.astype("int64")


def _tensorised(space, count, seed=0, intrinsic=None):
    """Random programs by tensor intrinsics, or by one: names of register tiles begin with it."""
    population = space.decisions.sample(16 * count, np.random.default_rng(seed))
    family = CpuTensorised()
    named = [t for t in space.decisions.traces(population) if family.made(t)]
    if intrinsic is not None:
        named = [t for t in named if f"{intrinsic_of(t)}.".startswith(f"{intrinsic.name}.")]
    return named[:count]


def _run(program, target, trace, arrays, tmp_path):
    built = build_checked(program, target, "x", trace, str(tmp_path))
    assert isinstance(built, Built)
    shape, dtype = built.args[-1]
    result = tvm.runtime.tensor(np.zeros(shape, dtype))
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.runtime.load_module(built.path)["main"](*tensors, result)
    return result.numpy()


@pytest.mark.parametrize("intrinsic", INTRINSICS, ids=lambda i: i.name)
def test_products_are_exact(intrinsic, tmp_path):
    here = native_target(1)
    if not runs_on(intrinsic, here):
        pytest.skip(f"this processor has not all of {', '.join(intrinsic.features)}")
    # The features of the intrinsic alone: of wider ones the search would take the widest.
    target = least_target(intrinsic)
    columns = 3 * intrinsic.lanes
    program = _product(12, columns, 16, intrinsic)
    traces = _tensorised(task_space(program, target), 3, intrinsic=intrinsic)
    assert len(traces) == 3
    a = _numbers((12, 16), intrinsic.data, 0)
    b = _numbers((16, columns), intrinsic.weight, 1)
    expected = _values(a, intrinsic.data) @ _values(b, intrinsic.weight) + 1
    for trace in traces:
        np.testing.assert_array_equal(_run(program, target, trace, [a, b], tmp_path), expected)


@pytest.mark.parametrize("intrinsic", INTRINSICS, ids=lambda i: i.name)
def test_every_intrinsic_compiles_wherever_it_is_built(intrinsic, tmp_path):
    target = least_target(intrinsic)
    if is_foreign(target) and shutil.which(f"{intrinsic.machine}-linux-gnu-gcc") is None:
        pytest.skip(f"no gcc-{intrinsic.machine}-linux-gnu")
    program = _product(4, intrinsic.lanes, 8, intrinsic)
    (trace,) = _tensorised(task_space(program, target), 1, intrinsic=intrinsic)
    built = build_candidate(program, target, "x", trace, str(tmp_path))
    assert isinstance(built, Built)
    lanes, depth = intrinsic.lanes, intrinsic.depth
    packed: tuple[int, ...] = (1, 8 // depth, lanes, depth)
    if isinstance(intrinsic, TileIntrinsic):  # one tile of all steps
        packed = (1, 1, 1, 8 // intrinsic.word, lanes, intrinsic.word)
    assert built.args[1] == (packed, stored(intrinsic.weight))


@pytest.mark.parametrize("intrinsic", INTRINSICS, ids=lambda i: i.name)
def test_features_tell_every_instruction_from_plain_products(intrinsic):
    target = least_target(intrinsic)
    program = _product(4, intrinsic.lanes, 8, intrinsic)
    (trace,) = _tensorised(task_space(program, target), 1, intrinsic=intrinsic)
    found = statements_of(replay(load_program(program), target, trace).mod)
    of_it, *stores = [s for s in found if s.compute.instruction]
    assert of_it.compute.instruction_lanes >= intrinsic.lanes
    assert len(stores) == isinstance(intrinsic, TileIntrinsic)
    # A data vector, and the weights of all lanes.
    depth, lanes = intrinsic.depth, intrinsic.lanes
    loaded = {4 * 8, lanes * 8} if stores else {depth, lanes * depth}
    assert loaded <= {load.lanes for load in of_it.loads}


def test_code_that_tvm_does_not_take_is_our_bug(tmp_path, monkeypatch):
    """Not a failure of each candidate that needs it."""
    program, target = _product(4, 16, 8, _native()), native_target(1)
    (trace,) = _tensorised(task_space(program, target), 1)
    broken = replace(_native(), implementation=lambda intrinsic: "no code")
    monkeypatch.setitem(intrinsics._BY_NAME, broken.trace_name, broken)
    intrinsics.make_known.cache_clear()
    try:
        with pytest.raises(InternalError):
            build_candidate(program, target, "x", trace, str(tmp_path))
    finally:
        monkeypatch.undo()
        intrinsics.make_known.cache_clear()


def _native(data="uint8"):
    """The best one with a vector of data, of this processor."""
    known = [i for i in intrinsics_of(native_target(1)) if isinstance(i, VectorIntrinsic)]
    fitting = [i for i in known if i.data == data]
    if not fitting:
        pytest.skip("this processor has no intrinsic of such products")
    return fitting[0]


@pytest.mark.parametrize(("inputs", "outputs", "stride"), [(8, 16, 1), (3, 24, 2), (4, 21, 1)])
def test_convolutions_are_exact_and_pad_their_channels(inputs, outputs, stride, tmp_path):
    _native()

    class Attributes:
        groups, strides, dilation = 1, [stride, stride], [1, 1]

    weight = _numbers((3, 3, inputs, outputs), "int8", 1)
    padded = padded_weight(weight)
    data = te.placeholder((1, 9, 9, inputs), "uint8", "data")
    kernel = te.placeholder(padded.shape, "int8", "weight")
    widths = [0, 0, 1, 1, 1, 1, 0, padded.shape[2] - inputs]
    sums = convolution(data, kernel, widths, 5, outputs, Attributes)
    done = te.compute(sums.shape, lambda *i: sums(*i) * 2, name="done")
    program = _program([data, kernel, done])
    target = native_target(1)
    x = _numbers((1, 9, 9, inputs), "uint8", 0)
    bordered = np.pad(x.astype("int64"), [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=5)
    windows: np.ndarray = np.lib.stride_tricks.sliding_window_view(
        bordered,
        (3, 3),
        (1, 2),  # type: ignore[call-overload]
    )
    windows = windows[:, ::stride, ::stride]
    expected = np.einsum("nyxcij,ijco->nyxo", windows, weight.astype("int64")) * 2
    traces = _tensorised(task_space(program, target), 3)
    assert traces
    for trace in traces:
        actual = _run(program, target, trace, [x, padded], tmp_path)
        np.testing.assert_array_equal(actual, expected)


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
    program, target = _program([x, w, done]), native_target(2)
    picture = _numbers((1, extent, extent, inputs), data, 0)
    weight = _numbers((3, 3, inputs, outputs), intrinsic.weight, 1)
    windows: np.ndarray = np.lib.stride_tricks.sliding_window_view(
        _values(picture, data),
        (3, 3),
        (1, 2),  # type: ignore[call-overload]
    )
    windows = windows[:, ::stride, ::stride]
    expected = np.einsum("nyxcij,ijco->nyxo", windows, _values(weight, intrinsic.weight)) + 1
    traces = _tensorised(task_space(program, target), 4, intrinsic=intrinsic)
    assert len(traces) == 4
    assert any(re.search(named, intrinsic_of(trace)) for trace in traces)
    for trace in traces:
        actual = _run(program, target, trace, [picture, weight], tmp_path)
        np.testing.assert_array_equal(actual, expected)


def test_products_of_few_rows_have_no_tiles():
    intrinsic = _tiles()
    for rows, has_tiles in ((3, False), (13, True), (48, True)):
        space = task_space(_product(rows, 64, 64, intrinsic), native_target(1))
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
    program, target = _product(64, 64, 64, intrinsic), native_target(2)
    (trace,) = _tensorised(task_space(program, target), 1, intrinsic=intrinsic)
    text = str(scheduled(load_program(program), target, trace)["main"])
    loop = text[text.index("T.parallel") :]
    called = [loop.index(f'.{part}"') for part in ("begin", "zero", "step", "store", "end")]
    assert called == sorted(called)


def test_a_product_pads_its_depth_and_columns(tmp_path):
    _native()
    weight = _numbers((30, 21), "int8", 1)
    padded = padded_weight(weight)
    data = te.placeholder((5, 30), "uint8", "data")
    kernel = te.placeholder(padded.shape, "int8", "weight")
    program = _program([data, kernel, matmul(data, kernel, 21)])
    x = _numbers((5, 30), "uint8", 0)
    target = native_target(1)
    for trace in _tensorised(task_space(program, target), 2):
        actual = _run(program, target, trace, [x, padded], tmp_path)
        np.testing.assert_array_equal(actual, x.astype("int64") @ weight.astype("int64"))


@pytest.mark.parametrize(
    ("rows", "padded"), [(1, 1), (13, 13), (17, 18), (64, 64), (77, 77), (197, 208), (577, 592)]
)
def test_rows_that_divide_into_no_tiles_become_a_few_more(rows, padded):
    assert padded_rows(rows) == padded


def test_products_of_a_prime_number_of_rows_fill_tiles(tmp_path):
    intrinsic = _tiles()
    data = te.placeholder((2, 37, 64), "uint8", "data")
    kernel = te.placeholder((64, 32), "int8", "weight")
    product = matmul(data, kernel, 32)
    done = te.compute(product.shape, lambda *i: product(*i) * 3, name="done")
    program, target = _program([data, kernel, done]), native_target(2)
    x, w = _numbers((2, 37, 64), "uint8", 0), _numbers((64, 32), "int8", 1)
    traces = _tensorised(task_space(program, target), 3, intrinsic=intrinsic)
    assert len(traces) == 3
    for trace in traces:
        actual = _run(program, target, trace, [x, w], tmp_path)
        np.testing.assert_array_equal(actual, x.astype("int64") @ w.astype("int64") * 3)


def test_convolutions_of_a_prime_width_fill_tiles(tmp_path):
    intrinsic = _tiles()

    class Attributes:
        groups, strides, dilation = 1, [2, 2], [1, 1]

    weight = _numbers((3, 3, 32, 16), "int8", 1)
    data = te.placeholder((1, 9, 37, 32), "uint8", "data")
    kernel = te.placeholder(weight.shape, "int8", "weight")
    sums = convolution(data, kernel, [0, 0, 1, 1, 1, 1, 0, 0], 5, 16, Attributes)
    program, target = _program([data, kernel, sums]), native_target(1)
    assert [int(n) for n in sums.shape] == [1, 5, 19, 16]
    x = _numbers((1, 9, 37, 32), "uint8", 0)
    bordered = np.pad(x.astype("int64"), [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=5)
    windows: np.ndarray = np.lib.stride_tricks.sliding_window_view(
        bordered,
        (3, 3),
        (1, 2),  # type: ignore[call-overload]
    )
    expected = np.einsum("nyxcij,ijco->nyxo", windows[:, ::2, ::2], weight.astype("int64"))
    traces = _tensorised(task_space(program, target), 3, intrinsic=intrinsic)
    assert len(traces) == 3
    for trace in traces:
        actual = _run(program, target, trace, [x, weight], tmp_path)
        np.testing.assert_array_equal(actual, expected)


def test_weights_that_are_no_constants_are_packed_when_it_runs(tmp_path):
    intrinsic = _native()
    program = _product(8, 2 * intrinsic.lanes, 16, intrinsic)
    function = tvm.ir.load_json(program)["main"].without_attr("layout_free_buffers")
    program = tvm.ir.save_json(tvm.IRModule({"main": function}))
    target = native_target(1)
    a = _numbers((8, 16), intrinsic.data, 0)
    b = _numbers((16, 2 * intrinsic.lanes), "int8", 1)
    (trace,) = _tensorised(task_space(program, target), 1)
    built = build_candidate(program, target, "x", trace, str(tmp_path))
    assert isinstance(built, Built)
    assert built.args[1][0] == b.shape
    actual = _run(program, target, trace, [a, b], tmp_path)
    np.testing.assert_array_equal(actual, a.astype("int64") @ b.astype("int64") + 1)


def test_sums_stay_in_registers():
    intrinsic = _native()
    space = task_space(_product(64, 16 * intrinsic.lanes, 64, intrinsic), native_target(1))
    for sketch in space.decisions.sketches:
        if intrinsic.trace_name not in json.dumps(sketch.instructions):
            continue
        picks = sketch.sample(64, np.random.default_rng(0))
        rows, columns, _ = sketch.values(picks)
        assert (rows[:, 2] * columns[:, 2] + columns[:, 2] < intrinsic.registers).all()


def test_both_forms_stand_side_by_side():
    intrinsic = _native()
    space = task_space(_product(64, 4 * intrinsic.lanes, 64, intrinsic), native_target(1))
    named = [json.dumps(s.instructions) for s in space.decisions.sketches]
    tensorised = [intrinsic.trace_name in text for text in named]
    assert any(tensorised)
    assert not all(tensorised)
    assert intrinsic_named(intrinsic.trace_name) is intrinsic


def test_what_is_no_product_has_no_such_program():
    a = te.placeholder((8, 16), "float32", "A")
    total = te.reduce_axis((0, 16), "k")
    sums = te.compute((8,), lambda i: te.sum(a[i, total], axis=total))
    twice = te.compute((8, 16), lambda i, j: a[i, j] + a[i, j])
    for output in (sums, twice):
        module = tvm.ir.load_json(_program([a, output], weight=0))
        assert product_of(module["main"], tvm.s_tir.Schedule(module)) is None


@pytest.mark.parametrize("after", ["swish", "sum", "residual"])
def test_what_follows_may_read_more_than_the_product_and_more_than_once(after, tmp_path):
    intrinsic = _native()
    columns = 2 * intrinsic.lanes
    a, b = te.placeholder((8, 16), "uint8", "A"), te.placeholder((16, columns), "int8", "B")
    k = te.reduce_axis((0, 16), "k")

    def cell(i, j):
        return te.sum(a[i, k].astype("int32") * b[k, j].astype("int32"), axis=k)

    product = te.compute((8, columns), cell, name="product")
    real = te.compute((8, columns), lambda i, j: product[i, j].astype("float32"), name="real")
    other = te.compute(
        (8, columns),
        lambda i, j: tvm.tirx.max(real[i, j], tvm.tirx.const(0, "float32")),
        name="other",
    )
    if after == "swish":
        done = te.compute((8, columns), lambda i, j: real[i, j] * other[i, j], name="done")
    else:
        done = te.compute((8, columns), lambda i, j: product[i, j] + other[i, j], name="done")
    c = te.placeholder((8, columns), "uint8", "C")
    if after == "residual":
        wide = te.compute((8, columns), lambda i, j: c[i, j].astype("float32"), name="wide")
        twice = te.compute((8, columns), lambda i, j: wide[i, j] * 2.0, name="twice")
        done = te.compute((8, columns), lambda i, j: real[i, j] + twice[i, j], name="done")
    inputs = [a, b, c] if after == "residual" else [a, b]
    program, target = _program([*inputs, done]), native_target(1)
    x, w = _numbers((8, 16), "uint8", 0), _numbers((16, columns), "int8", 1)
    r = _numbers((8, columns), "uint8", 2)
    sums = x.astype("int64") @ w.astype("int64")
    larger = np.maximum(sums, 0)
    expected = {"swish": sums * larger, "sum": sums + larger, "residual": sums + 2.0 * r}[after]
    given = [x, w, r][: len(inputs)]
    traces = _tensorised(task_space(program, target), 2)
    assert traces
    for trace in traces:
        actual = _run(program, target, trace, given, tmp_path)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_what_a_product_scales_is_not_computed_in_its_tiles(tmp_path):
    """Squeeze and excitation: the chain on the few is done once, the large picture by itself."""
    intrinsic = _native()
    columns, pixels = 2 * intrinsic.lanes, 256
    a, b = te.placeholder((1, 16), "uint8", "A"), te.placeholder((16, columns), "int8", "B")
    c = te.placeholder((pixels, columns), "uint8", "C")
    k = te.reduce_axis((0, 16), "k")

    def cell(i, j):
        return te.sum(a[i, k].astype("int32") * b[k, j].astype("int32"), axis=k)

    product = te.compute((1, columns), cell, name="product")
    half = te.compute((1, columns), lambda i, j: product[i, j] * 3, name="half")
    gate = te.compute((1, columns), lambda i, j: half[i, j] - product[i, j], name="gate")
    wide = te.compute((pixels, columns), lambda i, j: c[i, j].astype("int32"), name="wide")
    done = te.compute((pixels, columns), lambda i, j: wide[i, j] * gate[0, j] + 1, name="done")
    program, target = _program([a, b, c, done]), native_target(1)
    x, w = _numbers((1, 16), "uint8", 0), _numbers((16, columns), "int8", 1)
    picture = _numbers((pixels, columns), "uint8", 2)
    expected = picture.astype("int64") * (2 * (x.astype("int64") @ w.astype("int64"))) + 1
    traces = _tensorised(task_space(program, target), 2)
    assert traces
    for trace in traces:
        replayed = tvm.s_tir.Schedule(tvm.ir.load_json(program))
        tvm.s_tir.schedule.Trace.apply_json_to_schedule(json.loads(trace), replayed)
        kept = {block.name_hint for block in _blocks(replayed)}
        assert {"gate", "done"} <= kept
        assert not {"half", "wide"} & kept
        np.testing.assert_array_equal(
            _run(program, target, trace, [x, w, picture], tmp_path), expected
        )


def _blocks(schedule):
    return [schedule.get(block) for block in schedule.get_child_blocks(schedule.get_sblock("root"))]


def test_a_product_of_which_two_results_are_wanted_has_no_such_program():
    intrinsic = _native()
    columns = intrinsic.lanes
    a, b = te.placeholder((8, 16), "uint8", "A"), te.placeholder((16, columns), "int8", "B")
    k = te.reduce_axis((0, 16), "k")

    def cell(i, j):
        return te.sum(a[i, k].astype("int32") * b[k, j].astype("int32"), axis=k)

    product = te.compute((8, columns), cell, name="product")
    more = te.compute((8, columns), lambda i, j: product[i, j] + 1, name="more")
    less = te.compute((8, columns), lambda i, j: product[i, j] - 1, name="less")
    space = task_space(_program([a, b, more, less]), native_target(1))
    assert not any("tunefleet." in json.dumps(s.instructions) for s in space.decisions.sketches)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("znver4", ""),
        ("haswell", "little faster"),
        ("nehalem", "no instruction"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", ""),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", "little faster"),
    ],
)
def test_what_to_expect_of_bytes_is_said(target, words):
    remarks = intrinsics.remark_on(parse_target(target, 1).cpu, INT8)
    assert all(words in remark for remark in remarks)
    assert bool(words) == bool(remarks)
