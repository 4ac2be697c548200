from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def relax_names(mod: Any) -> list[str]:
    import tvm

    calls = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    return [str(c.op.name) for c in calls if isinstance(getattr(c, "op", None), tvm.ir.Op)]


def build(emit: Any, shape: tuple[int, ...] = (1, 4, 6, 6), dtype: str = "float32") -> Any:
    """A one-input Relax module from `emit(builder, x) -> output`."""
    from tunefleet.compiler.toolchain import load_tvm

    relax = load_tvm().relax
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(emit(builder, x))
        builder.emit_func_output(output)
    return builder.finalize()


def run(mod: Any, x: np.ndarray) -> np.ndarray:
    import tvm

    executable = tvm.relax.build(mod, tvm.target.Target({"kind": "llvm"}))
    machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy()


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def check(mod: Any, gone: set[str], shape: tuple[int, ...] = (1, 4, 6, 6)) -> None:
    """Simplifying removes the operators `gone` and changes no output."""
    from tunefleet.compiler.graph.simplify import simplify

    simplified = simplify(mod)
    x = array(*shape, seed=7)
    np.testing.assert_allclose(run(mod, x), run(simplified, x), rtol=1e-4, atol=1e-5)
    assert gone & set(relax_names(mod)) == gone
    assert not gone & set(relax_names(simplified))


def test_batch_norm_is_folded_into_the_convolution() -> None:
    from tvm import relax

    def emit(builder: Any, x: Any) -> Any:
        conv = builder.emit(relax.op.nn.conv2d(x, relax.const(array(8, 4, 3, 3)), padding=1))
        constants = [relax.const(np.abs(array(8, seed=s)) + 0.5) for s in range(4)]
        normed = builder.emit(relax.op.nn.batch_norm(conv, *constants, axis=1, training=False))
        return builder.emit(relax.TupleGetItem(normed, 0))

    check(build(emit), {"relax.nn.batch_norm"})


def test_a_scale_after_a_bias_is_folded_too() -> None:
    from tvm import relax

    def emit(builder: Any, x: Any) -> Any:
        conv = builder.emit(relax.op.nn.conv2d(x, relax.const(array(8, 4, 1, 1))))
        biased = builder.emit(relax.op.add(conv, relax.const(array(1, 8, 1, 1))))
        return builder.emit(relax.op.multiply(relax.const(array(8, 1, 1)), biased))

    check(build(emit), {"relax.multiply"})


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("shape", [(), (1, 6, 1, 1)])
def test_a_scale_is_folded_into_other_convolutions_too(rank: int, shape: tuple[int, ...]) -> None:
    from tvm import relax

    spatial = (3,) * rank

    def emit(builder: Any, x: Any) -> Any:
        factor = array(*shape, *([1] * (rank - 2) if shape else [])) + 1
        if rank == 3:
            conv = relax.op.nn.conv3d(x, relax.const(array(6, 4, *spatial)), padding=1)
        else:
            conv = relax.op.nn.conv2d_transpose(x, relax.const(array(4, 6, *spatial)), strides=2)
        return builder.emit(relax.op.multiply(builder.emit(conv), relax.const(factor)))

    size = (1, 4, *(5,) * rank)
    check(build(emit, size), {"relax.multiply"}, size)


def test_a_grouped_transposed_convolution_keeps_its_scale_outside() -> None:
    from tvm import relax

    from tunefleet.compiler.graph.simplify import simplify

    def emit(builder: Any, x: Any) -> Any:
        weight = relax.const(array(4, 3, 3, 3))
        conv = builder.emit(relax.op.nn.conv2d_transpose(x, weight, groups=2))
        return builder.emit(relax.op.multiply(conv, relax.const(array(1, 6, 1, 1))))

    assert "relax.multiply" in relax_names(simplify(build(emit)))


@pytest.mark.parametrize(("second", "left"), [([0, 3, 1, 2], 0), ([0, 2, 3, 1], 1)])
def test_transposes_in_a_row_are_joined(second: list[int], left: int) -> None:
    from tvm import relax

    from tunefleet.compiler.graph.simplify import simplify

    def emit(builder: Any, x: Any) -> Any:
        turned = builder.emit(relax.op.permute_dims(x, [0, 2, 3, 1]))
        back = builder.emit(relax.op.permute_dims(turned, second))
        return builder.emit(relax.op.exp(back))

    mod = build(emit, (1, 4, 5, 6))
    x = array(1, 4, 5, 6)
    np.testing.assert_allclose(run(mod, x), run(simplify(mod), x), rtol=1e-5)
    assert relax_names(simplify(mod)).count("relax.permute_dims") == left


@pytest.mark.parametrize(("groups", "rank"), [(1, 2), (2, 2), (4, 2), (2, 3)])
def test_a_normalisation_of_groups_has_no_reshapes_and_no_transposes(
    groups: int, rank: int
) -> None:
    """As exporters write it: timm's test_efficientnet_gn, the decoders of diffusion models."""
    from tvm import relax

    from tunefleet.compiler.graph.layout import with_channels_last
    from tunefleet.compiler.graph.simplify import simplify

    name, ones, size = f"conv{rank}d", (1,) * rank, (1, 4, *(6,) * rank)
    conv = getattr(relax.op.nn, name)

    def emit(builder: Any, x: Any) -> Any:
        first = builder.emit(conv(x, relax.const(array(4, 4, *(3,) * rank)), padding=1))
        flat = builder.emit(relax.op.reshape(first, (1, groups, 4 * 6**rank // groups)))
        scale, bias = relax.const(array(groups) + 1), relax.const(array(groups))
        normal = builder.emit(relax.op.nn.instance_norm(flat, scale, bias, 1, [2], 1e-3))
        back = builder.emit(relax.op.reshape(normal, size))
        scaled = builder.emit(relax.op.multiply(back, relax.const(array(4, *ones, seed=1))))
        moved = builder.emit(relax.op.add(scaled, relax.const(array(1, 4, *ones, seed=2))))
        return builder.emit(conv(moved, relax.const(array(4, 4, *ones))))

    mod = build(emit, size)
    x = array(*size)
    simplified = simplify(mod)
    np.testing.assert_allclose(run(mod, x), run(simplified, x), rtol=1e-4, atol=1e-4)
    names = relax_names(simplify(with_channels_last(simplified)))
    assert not {"relax.reshape", "relax.multiply", "relax.add"} & set(names)
    assert names.index("relax.nn.group_norm") == names.index(f"relax.nn.{name}") + 1


def test_a_normalisation_of_other_groups_stays() -> None:
    from tvm import relax

    from tunefleet.compiler.graph.simplify import simplify

    def emit(builder: Any, x: Any) -> Any:
        flat = builder.emit(relax.op.reshape(x, (1, 3, 48)))  # of a channel and a third
        scale, bias = relax.const(array(3)), relax.const(array(3))
        normal = builder.emit(relax.op.nn.instance_norm(flat, scale, bias, 1, [2]))
        return builder.emit(relax.op.reshape(normal, (1, 4, 6, 6)))

    assert "relax.nn.instance_norm" in relax_names(simplify(build(emit)))


def test_a_convolution_used_twice_keeps_its_scale_outside() -> None:
    from tvm import relax

    from tunefleet.compiler.graph.simplify import simplify

    def emit(builder: Any, x: Any) -> Any:
        conv = builder.emit(relax.op.nn.conv2d(x, relax.const(array(4, 4, 1, 1))))
        scaled = builder.emit(relax.op.multiply(conv, relax.const(array(1, 4, 1, 1))))
        return builder.emit(relax.op.add(scaled, conv))

    mod = build(emit)
    x = array(1, 4, 6, 6)
    np.testing.assert_allclose(run(mod, x), run(simplify(mod), x), rtol=1e-5, atol=1e-6)
    assert relax_names(simplify(mod)).count("relax.nn.conv2d") == 1


def test_spatial_zero_padding_becomes_the_convolutions() -> None:
    from tvm import relax

    def emit(builder: Any, x: Any) -> Any:
        padded = builder.emit(relax.op.nn.pad(x, [0, 0, 0, 0, 1, 2, 2, 1]))
        return builder.emit(relax.op.nn.conv2d(padded, relax.const(array(8, 4, 3, 3)), strides=2))

    check(build(emit), {"relax.nn.pad"})


def test_padding_becomes_the_convolutions_in_nhwc_too() -> None:
    from tvm import relax

    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}

    def emit(builder: Any, x: Any) -> Any:
        padded = builder.emit(relax.op.nn.pad(x, [0, 0, 1, 2, 2, 1, 0, 0]))
        weight = relax.const(array(3, 3, 4, 8))
        return builder.emit(relax.op.nn.conv2d(padded, weight, strides=2, **layouts))

    check(build(emit, (1, 6, 6, 4)), {"relax.nn.pad"}, (1, 6, 6, 4))


def test_padding_of_channels_stays() -> None:
    from tvm import relax

    from tunefleet.compiler.graph.simplify import simplify

    def emit(builder: Any, x: Any) -> Any:
        padded = builder.emit(relax.op.nn.pad(x, [0, 0, 2, 2, 0, 0, 0, 0]))
        return builder.emit(relax.op.nn.conv2d(padded, relax.const(array(8, 8, 3, 3))))

    assert "relax.nn.pad" in relax_names(simplify(build(emit)))


def test_padding_with_a_value_stays() -> None:
    from tvm import relax

    from tunefleet.compiler.graph.simplify import simplify

    def emit(builder: Any, x: Any) -> Any:
        padded = builder.emit(relax.op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], pad_value=1.0))
        return builder.emit(relax.op.nn.conv2d(padded, relax.const(array(8, 4, 3, 3))))

    assert "relax.nn.pad" in relax_names(simplify(build(emit)))


def test_clip_becomes_operators_that_have_layout_inference() -> None:
    from tvm import relax

    check(build(lambda b, x: b.emit(relax.op.clip(x, 0, 1))), {"relax.clip"})


@pytest.mark.parametrize(
    ("low", "high", "left"),
    [
        (0.0, float("inf"), ["relax.maximum"]),
        (float("-inf"), 6.0, ["relax.minimum"]),
        (float("-inf"), float("inf"), []),
    ],
)
def test_infinite_bounds_of_a_clip_are_no_operators(
    low: float, high: float, left: list[str]
) -> None:
    from tvm import relax

    from tunefleet.compiler.graph.simplify import simplify

    def emit(builder: Any, x: Any) -> Any:
        return builder.emit(relax.op.exp(builder.emit(relax.op.clip(x, low, high))))

    assert [*left, "relax.exp"] == relax_names(simplify(build(emit)))


def test_reshapes_around_a_linear_layer_are_removed() -> None:
    from tvm import relax

    def emit(builder: Any, x: Any) -> Any:
        flat = builder.emit(relax.op.reshape(x, (6, 8)))
        product = builder.emit(relax.op.matmul(flat, relax.const(array(8, 5))))
        biased = builder.emit(relax.op.add(relax.const(array(5)), product))
        return builder.emit(relax.op.reshape(biased, (2, 3, 5)))

    check(build(emit, (2, 3, 8)), {"relax.reshape"}, (2, 3, 8))


def test_a_reshape_to_another_shape_stays() -> None:
    from tvm import relax

    from tunefleet.compiler.graph.simplify import simplify

    def emit(builder: Any, x: Any) -> Any:
        flat = builder.emit(relax.op.reshape(x, (6, 8)))
        product = builder.emit(relax.op.matmul(flat, relax.const(array(8, 6))))
        return builder.emit(relax.op.reshape(product, (3, 2, 6)))

    mod = build(emit, (2, 3, 8))
    x = array(2, 3, 8)
    np.testing.assert_allclose(run(mod, x), run(simplify(mod), x), rtol=1e-5, atol=1e-6)


def test_constants_are_folded() -> None:
    from tvm import relax

    def emit(builder: Any, x: Any) -> Any:
        turned = builder.emit(relax.op.permute_dims(relax.const(array(6, 4, 6, 1))))
        product = builder.emit(relax.op.multiply(turned, relax.const(2.0, "float32")))
        return builder.emit(relax.op.add(x, product))

    check(build(emit, (1, 6, 4, 6)), {"relax.permute_dims", "relax.multiply"}, (1, 6, 4, 6))


def test_prepared_network_has_no_transposes_between_convolutions(tiny: Any) -> None:
    names = [t.task.name for t in tiny.tasks]
    assert sum("transpose" in n for n in names) <= 2  # the input's and the classifier's


def test_elementwise_operators_are_fused(tiny: Any) -> None:
    names = [t.task.name for t in tiny.tasks]
    assert "conv2d+add+relu" in names
    assert not {"add", "relu", "maximum", "minimum"} & set(names)


def test_a_split_into_one_part_is_what_it_splits(target: Any) -> None:
    from tvm import relax

    from tunefleet.compiler.frontends.relax_ import tidy
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import to_tvm

    def emit(builder: Any, x: Any) -> Any:
        scaled = builder.emit(relax.op.nn.conv2d(x, relax.const(array(3, 2, 1, 1))))
        return builder.emit(relax.op.split(scaled, 1, 1))

    x = array(1, 2, 4, 4)
    mod = build(emit, (1, 2, 4, 4))
    np.testing.assert_allclose(run(prepare(tidy(mod), to_tvm(target)), x), run(mod, x), rtol=1e-5)
