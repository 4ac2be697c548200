"""Compute definitions of our own compute what TVM's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.test_graph import array, build, run

pytestmark = pytest.mark.tvm


def _deconvolution(kernel: int, layouts: bool, **settings: Any) -> Any:
    from tvm import relax

    groups = settings.get("groups", 1)
    weight = array(4, 6 // groups, kernel, kernel)

    def emit(builder: Any, x: Any) -> Any:
        if not layouts:
            return builder.emit(relax.op.nn.conv2d_transpose(x, relax.const(weight), **settings))
        x = builder.emit(relax.op.permute_dims(x, [0, 2, 3, 1]))
        output = relax.op.nn.conv2d_transpose(
            x,
            relax.const(weight.transpose(2, 3, 0, 1)),
            data_layout="NHWC",
            kernel_layout="HWIO",
            **settings,
        )
        return builder.emit(relax.op.permute_dims(builder.emit(output), [0, 3, 1, 2]))

    return build(emit, (2, 4, 5, 7))


@pytest.mark.parametrize(
    ("kernel", "settings"),
    [
        (4, {"strides": 2, "padding": 1}),
        (3, {"strides": 2, "padding": 1, "output_padding": 1}),
        (3, {"strides": 4, "output_padding": 1}),
        (3, {"padding": 1}),
        (3, {"strides": 2, "padding": 1}),  # an output that is no multiple of the stride
        (4, {"strides": 2, "padding": 1, "groups": 2}),
        (3, {"dilation": 2}),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value,
)
def test_a_transposed_convolution_computes_what_tvms_does(
    kernel: int, settings: dict[str, int]
) -> None:
    from tunefleet.compiler.graph.legalize import legalize

    x = array(2, 4, 5, 7, seed=1)
    expected = run(_deconvolution(kernel, layouts=False, **settings), x)
    actual = run(legalize()(_deconvolution(kernel, layouts=True, **settings)), x)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["divide", "floor_divide", "mod", "floor_mod"])
def test_an_integer_divided_by_zero_ends_no_process(name: str) -> None:
    from tvm import relax

    from tunefleet.compiler.graph.legalize import legalize

    def emit(builder: Any, x: Any) -> Any:
        divisor = builder.emit(relax.op.minimum(x, relax.const(3, "int32")))
        return builder.emit(getattr(relax.op, name)(relax.const(7, "int32"), divisor))

    x = np.array([2, 0, -2, 5], "int32")
    found = run(legalize()(build(emit, (4,), "int32")), x)
    quotients = {"divide": [3, 7, -3, 2], "floor_divide": [3, 7, -4, 2]}
    rests = {"mod": [1, 0, 1, 1], "floor_mod": [1, 0, -1, 1]}
    assert (quotients | rests)[name] == found.tolist()


def test_other_layouts_are_left_to_tvms_definition() -> None:
    from tunefleet.compiler.graph.legalize import legalize

    mod = _deconvolution(4, layouts=False, strides=2, padding=1)
    x = array(2, 4, 5, 7, seed=1)
    np.testing.assert_allclose(run(legalize()(mod), x), run(mod, x), rtol=1e-4, atol=1e-5)


def test_no_work_is_spent_on_the_zeros_between_pixels() -> None:
    import tvm

    from tunefleet.compiler.graph.legalize import legalize

    mod = legalize()(_deconvolution(4, layouts=True, strides=2, padding=1))
    flops = tvm.s_tir.analysis.estimate_tir_flops(tvm.IRModule({"main": mod["deconv2d"]}))
    pixels, channels, taps = 2 * 5 * 7, 4 * 6, 4 * 4
    assert 2 * pixels * channels * taps == flops


def _through_the_pipeline(emit: Any, x: np.ndarray, target: Any) -> list[np.ndarray]:
    """Outputs as of a network that is delivered: prepared, plainly scheduled, compiled."""
    from tunefleet.compiler.code.executable import compile_network, run_compiled
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import to_tvm

    mod = build(emit, x.shape, str(x.dtype))
    return run_compiled(compile_network(prepare(mod, to_tvm(target)), target, {}), [x])


@pytest.mark.parametrize("axis", [0, 2])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16"])
def test_the_first_of_equal_elements_come_first(
    axis: int, largest: bool, dtype: str, target: Any
) -> None:
    from tvm import relax

    x = np.random.default_rng(0).integers(-5, 5, (40, 3, 50)).astype(dtype)

    def emit(builder: Any, x: Any) -> Any:
        return builder.emit(relax.op.topk(x, 7, axis, "both", largest, "int64"))

    values, indices = _through_the_pipeline(emit, x, target)
    order = np.argsort(-x.astype("float64") if largest else x, axis, kind="stable")
    wanted = np.take(order, range(7), axis)
    np.testing.assert_array_equal(wanted, indices)
    np.testing.assert_array_equal(np.take_along_axis(x, wanted, axis), values)


@pytest.mark.parametrize("descending", [True, False])
def test_what_is_not_a_number_is_sorted_as_the_greatest(descending: bool, target: Any) -> None:
    from tvm import relax

    x = np.array([[3, np.nan, -np.inf, 1, np.inf, np.nan, 0]], "float32")

    def emit(builder: Any, x: Any) -> Any:
        found = builder.emit(relax.op.argsort(x, 1, descending, "int32"))
        values = builder.emit(relax.op.sort(x, 1, descending))
        return builder.emit(relax.Tuple([found, values]))

    indices, values = _through_the_pipeline(emit, x, target)
    order = [1, 5, 4, 0, 3, 6, 2] if descending else [2, 6, 3, 0, 4, 1, 5]
    np.testing.assert_array_equal([order], indices)
    np.testing.assert_array_equal(x[:, order], values)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("exclusive", [True, False])
def test_sums_and_products_up_to_each_element(axis: int, exclusive: bool, target: Any) -> None:
    from tvm import relax

    x = array(3, 5, 7, seed=1)

    def emit(builder: Any, x: Any) -> Any:
        scans = [f(x, axis, exclusive=exclusive) for f in (relax.op.cumsum, relax.op.cumprod)]
        return builder.emit(relax.Tuple([builder.emit(scan) for scan in scans]))

    scans: tuple[Any, ...] = (np.cumsum, np.cumprod)
    for found, scan, start in zip(
        _through_the_pipeline(emit, x, target), scans, (0, 1), strict=True
    ):
        wanted = scan(x, axis)
        if exclusive:
            first = np.full_like(np.take(x, [0], axis), start)
            wanted = np.concatenate([first, np.delete(wanted, -1, axis)], axis)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_programs_that_tvm_writes_as_loops_are_scheduled_and_compiled(target: Any) -> None:
    from tvm import relax

    x = array(4, 3, seed=1)
    places = relax.const(np.array([[1, 0, 2]]))

    def emit(builder: Any, x: Any) -> Any:
        added = relax.op.strided_slice(x, [0], [0], [1])
        return builder.emit(relax.op.scatter_elements(x, places, builder.emit(added), 0, "add"))

    wanted = x.copy()
    wanted[[1, 0, 2], [0, 1, 2]] += x[0]
    np.testing.assert_allclose(_through_the_pipeline(emit, x, target)[0], wanted, rtol=1e-6)


@pytest.mark.parametrize(("axes", "keep"), [(None, False), ([1], True), ([0, -1], False)])
def test_extremes_of_infinities_are_infinite(axes: Any, keep: bool, target: Any) -> None:
    from tvm import relax

    x = array(3, 4, 5, seed=1)
    x[1] = -np.inf
    x[2, :, 1] = np.inf

    def emit(builder: Any, x: Any) -> Any:
        found = [builder.emit(f(x, axes, keep)) for f in (relax.op.max, relax.op.min)]
        negative = builder.emit(relax.op.max(builder.emit(relax.op.negative(x)), axes, keep))
        return builder.emit(relax.Tuple([*found, negative]))

    places = None if axes is None else tuple(axes)
    wanted = [f(x, places, keepdims=keep) for f in (np.max, np.min)]
    wanted.append((-x).max(places, keepdims=keep))
    for found, each in zip(_through_the_pipeline(emit, x, target), wanted, strict=True):
        np.testing.assert_array_equal(found, each)


def test_truths_are_compared(target: Any) -> None:
    from tvm import relax

    x = array(3, 8, seed=1)

    def emit(builder: Any, x: Any) -> Any:
        zero, one = (relax.const(v, "float32") for v in (0.0, 0.5))
        a, b = builder.emit(relax.op.greater(x, zero)), builder.emit(relax.op.less(x, one))
        found = [builder.emit(f(a, b)) for f in (relax.op.equal, relax.op.not_equal)]
        return builder.emit(relax.Tuple(found))

    same, other = _through_the_pipeline(emit, x, target)
    np.testing.assert_array_equal((x > 0) == (x < 0.5), same)
    np.testing.assert_array_equal((x > 0) != (x < 0.5), other)


def test_an_extreme_is_searched_like_any_reduction(target: Any) -> None:
    from tvm import relax

    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.graph.tasks import extract_tasks
    from tunefleet.compiler.space.spaces import sketches_of
    from tunefleet.compiler.toolchain.host import to_tvm

    mod = build(lambda builder, x: builder.emit(relax.op.max(x, [2, 3])), (1, 64, 56, 56))
    (task,) = extract_tasks(prepare(mod, to_tvm(target)), target)
    assert sketches_of(task.task.program, target)


def test_a_transposed_convolution_of_volumes_is_lowered_behind_one_with_channels_last() -> None:
    import tvm
    from tvm import relax

    from tunefleet.compiler.graph.pipeline import prepare

    first, second = array(4, 2, 3, 3, 3), array(4, 3, 2, 2, 2, seed=1)

    def emit(builder: Any, x: Any) -> Any:
        x = builder.emit(relax.op.nn.conv3d(x, relax.const(first), padding=1))
        weight = relax.const(second)
        return builder.emit(relax.op.nn.conv3d_transpose(x, weight, strides=(2, 2, 2)))

    x = array(1, 2, 3, 4, 5)
    module = build(emit, x.shape)
    expected = run(module, x)
    actual = run(prepare(module, tvm.target.Target("llvm")), x)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
