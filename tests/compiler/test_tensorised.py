"""Products by tensor intrinsics: every program gives the very sums, whatever it is tiled like."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

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

from tunefleet.compiler.code.build import build_candidate  # noqa: E402
from tunefleet.compiler.code.loop_nests import statements_of  # noqa: E402
from tunefleet.compiler.code.replay import replay  # noqa: E402
from tunefleet.compiler.graph.padded_products import (  # noqa: E402
    convolution,
    matmul,
    padded_weight,
)
from tunefleet.compiler.space import intrinsics  # noqa: E402
from tunefleet.compiler.space.intrinsics import (  # noqa: E402
    INTRINSICS,
    TileIntrinsic,
    VectorIntrinsic,
    intrinsic_named,
    intrinsics_of,
    least_target,
    runs_on,
)
from tunefleet.compiler.space.opening import task_space  # noqa: E402
from tunefleet.compiler.space.padded_rows import form_of  # noqa: E402
from tunefleet.compiler.space.products import product_of  # noqa: E402
from tunefleet.compiler.toolchain import load_tvm  # noqa: E402
from tunefleet.compiler.toolchain.bfloat16 import BFLOAT16, stored  # noqa: E402
from tunefleet.compiler.toolchain.host import is_foreign, native_target, parse_target  # noqa: E402
from tunefleet.compiler.toolchain.programs import load_program  # noqa: E402
from tunefleet.core.forms import REGISTER_TILE, tile_of  # noqa: E402
from tunefleet.core.precision import INT8  # noqa: E402
from tunefleet.core.trial import Built  # noqa: E402
from tunefleet.errors import InternalError  # noqa: E402

tvm = load_tvm()
te = tvm.te


@pytest.mark.parametrize("intrinsic", INTRINSICS, ids=lambda i: i.name)
def test_products_are_exact(intrinsic, tmp_path):
    here = native_target(1)
    if not runs_on(intrinsic, here):
        pytest.skip(f"this processor has not all of {', '.join(intrinsic.features)}")
    # The features of the intrinsic alone: of wider ones the search would take the widest.
    target = least_target(intrinsic)
    columns = 3 * intrinsic.lanes
    program = matrix_product(12, columns, 16, intrinsic)
    traces = tensorised_traces(task_space(program, target), 3, intrinsic=intrinsic)
    assert len(traces) == 3
    a = drawn((12, 16), intrinsic.data, 0)
    b = drawn((16, columns), intrinsic.weight, 1)
    expected = as_integers(a, intrinsic.data) @ as_integers(b, intrinsic.weight) + 1
    for trace in traces:
        np.testing.assert_array_equal(result_of(program, target, trace, [a, b], tmp_path), expected)


@pytest.mark.parametrize("intrinsic", INTRINSICS, ids=lambda i: i.name)
def test_every_intrinsic_compiles_wherever_it_is_built(intrinsic, tmp_path):
    target = least_target(intrinsic)
    if is_foreign(target) and shutil.which(f"{intrinsic.machine}-linux-gnu-gcc") is None:
        pytest.skip(f"no gcc-{intrinsic.machine}-linux-gnu")
    program = matrix_product(4, intrinsic.lanes, 8, intrinsic)
    (trace,) = tensorised_traces(task_space(program, target), 1, intrinsic=intrinsic)
    built = build_candidate(program, target, "x", trace, str(tmp_path))
    assert isinstance(built, Built)
    lanes, depth = intrinsic.lanes, intrinsic.depth
    packed: tuple[int, ...] = (1, 8 // depth, 1, lanes, depth)
    if isinstance(intrinsic, TileIntrinsic):  # one tile of all steps
        packed = (1, 1, 1, 8 // intrinsic.word, lanes, intrinsic.word)
    assert built.args[1] == (packed, stored(intrinsic.weight))


@pytest.mark.parametrize("intrinsic", INTRINSICS, ids=lambda i: i.name)
def test_features_tell_every_instruction_from_plain_products(intrinsic):
    target = least_target(intrinsic)
    program = matrix_product(4, intrinsic.lanes, 8, intrinsic)
    (trace,) = tensorised_traces(task_space(program, target), 1, intrinsic=intrinsic)
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
    program, target = matrix_product(4, 16, 8, _native()), native_target(1)
    (trace,) = tensorised_traces(task_space(program, target), 1)
    broken = replace(_native(), update=lambda *_: "no code")
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

    weight = drawn((3, 3, inputs, outputs), "int8", 1)
    padded = padded_weight(weight)
    data = te.placeholder((1, 9, 9, inputs), "uint8", "data")
    kernel = te.placeholder(padded.shape, "int8", "weight")
    widths = [0, 0, 1, 1, 1, 1, 0, padded.shape[2] - inputs]
    sums = convolution(data, kernel, widths, 5, outputs, Attributes)
    done = te.compute(sums.shape, lambda *i: sums(*i) * 2, name="done")
    program = saved_program([data, kernel, done])
    target = native_target(1)
    x = drawn((1, 9, 9, inputs), "uint8", 0)
    bordered = np.pad(x.astype("int64"), [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=5)
    windows: np.ndarray = np.lib.stride_tricks.sliding_window_view(
        bordered,
        (3, 3),
        (1, 2),  # type: ignore[call-overload]
    )
    windows = windows[:, ::stride, ::stride]
    expected = np.einsum("nyxcij,ijco->nyxo", windows, weight.astype("int64")) * 2
    traces = tensorised_traces(task_space(program, target), 3)
    assert traces
    for trace in traces:
        actual = result_of(program, target, trace, [x, padded], tmp_path)
        np.testing.assert_array_equal(actual, expected)


def test_a_product_pads_its_depth_and_columns(tmp_path):
    _native()
    weight = drawn((30, 21), "int8", 1)
    padded = padded_weight(weight)
    data = te.placeholder((5, 30), "uint8", "data")
    kernel = te.placeholder(padded.shape, "int8", "weight")
    program = saved_program([data, kernel, matmul(data, kernel, 21)])
    x = drawn((5, 30), "uint8", 0)
    target = native_target(1)
    for trace in tensorised_traces(task_space(program, target), 2):
        actual = result_of(program, target, trace, [x, padded], tmp_path)
        np.testing.assert_array_equal(actual, x.astype("int64") @ weight.astype("int64"))


def test_weights_that_are_no_constants_are_packed_when_it_runs(tmp_path):
    intrinsic = _native()
    program = matrix_product(8, 2 * intrinsic.lanes, 16, intrinsic)
    function = tvm.ir.load_json(program)["main"].without_attr("layout_free_buffers")
    program = tvm.ir.save_json(tvm.IRModule({"main": function}))
    target = native_target(1)
    a = drawn((8, 16), intrinsic.data, 0)
    b = drawn((16, 2 * intrinsic.lanes), "int8", 1)
    (trace,) = tensorised_traces(task_space(program, target), 1)
    built = build_candidate(program, target, "x", trace, str(tmp_path))
    assert isinstance(built, Built)
    assert built.args[1][0] == b.shape
    actual = result_of(program, target, trace, [a, b], tmp_path)
    np.testing.assert_array_equal(actual, a.astype("int64") @ b.astype("int64") + 1)


@pytest.mark.parametrize("rows", [1, 3, 49])
@pytest.mark.parametrize("data", ["uint8", BFLOAT16])
def test_rows_of_any_number_are_exact(rows, data, tmp_path):
    intrinsic, target = _native(data), native_target(1)
    program = matrix_product(rows, 2 * intrinsic.lanes, 16, intrinsic)
    a = drawn((rows, 16), data, 0)
    b = drawn((16, 2 * intrinsic.lanes), intrinsic.weight, 1)
    expected = as_integers(a, data) @ as_integers(b, intrinsic.weight) + 1
    for trace in tensorised_traces(task_space(program, target), 2):
        np.testing.assert_array_equal(result_of(program, target, trace, [a, b], tmp_path), expected)


@pytest.mark.parametrize("data", ["uint8", BFLOAT16])
def test_vectors_overlap_where_only_short_ones_divide_the_columns(data, tmp_path):
    intrinsic, target = _native(data), native_target(1)
    columns = 2 * intrinsic.lanes + 4
    program = matrix_product(13, columns, 16, intrinsic)
    a, b = drawn((13, 16), data, 0), drawn((16, columns), intrinsic.weight, 1)
    expected = as_integers(a, data) @ as_integers(b, intrinsic.weight) + 1
    traces = tensorised_traces(task_space(program, target), 12)
    overlapping = [trace for trace in traces if tile_of(trace)[1]]
    narrower = [i for i in intrinsics_of(target) if i.data == data and i.lanes < intrinsic.lanes]
    assert overlapping
    assert (len(overlapping) < len(traces)) == bool(narrower)
    for trace in overlapping[:3]:
        np.testing.assert_array_equal(result_of(program, target, trace, [a, b], tmp_path), expected)


def test_sums_stay_in_registers():
    intrinsic = _native()
    space = task_space(matrix_product(64, 16 * intrinsic.lanes, 64, intrinsic), native_target(1))
    spare = []
    for trace in tensorised_traces(space, 16, intrinsic=intrinsic):
        (tile,) = (i[1][1] for i in json.loads(trace)[0] if i[2] == [REGISTER_TILE])
        rows, vectors = tile[0], tile[1] // intrinsic.lanes
        spare.append(intrinsic.registers - rows * vectors - vectors)
    assert min(spare) >= 1


def test_both_forms_stand_side_by_side():
    intrinsic = _native()
    space = task_space(matrix_product(64, 4 * intrinsic.lanes, 64, intrinsic), native_target(1))
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
        module = tvm.ir.load_json(saved_program([a, output], weight=0))
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
    program, target = saved_program([*inputs, done]), native_target(1)
    x, w = drawn((8, 16), "uint8", 0), drawn((16, columns), "int8", 1)
    r = drawn((8, columns), "uint8", 2)
    sums = x.astype("int64") @ w.astype("int64")
    larger = np.maximum(sums, 0)
    expected = {"swish": sums * larger, "sum": sums + larger, "residual": sums + 2.0 * r}[after]
    given = [x, w, r][: len(inputs)]
    traces = tensorised_traces(task_space(program, target), 2)
    assert traces
    for trace in traces:
        actual = result_of(program, target, trace, given, tmp_path)
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
    program, target = saved_program([a, b, c, done]), native_target(1)
    x, w = drawn((1, 16), "uint8", 0), drawn((16, columns), "int8", 1)
    picture = drawn((pixels, columns), "uint8", 2)
    expected = picture.astype("int64") * (2 * (x.astype("int64") @ w.astype("int64"))) + 1
    traces = tensorised_traces(task_space(program, target), 2)
    assert traces
    for trace in traces:
        replayed = tvm.s_tir.Schedule(form_of(tvm.ir.load_json(program), trace))
        tvm.s_tir.schedule.Trace.apply_json_to_schedule(json.loads(trace), replayed)
        kept = {block.name_hint for block in _blocks(replayed)}
        assert {"gate", "done"} <= kept
        assert not {"half", "wide"} & kept
        np.testing.assert_array_equal(
            result_of(program, target, trace, [x, w, picture], tmp_path), expected
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
    space = task_space(saved_program([a, b, more, less]), native_target(1))
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
