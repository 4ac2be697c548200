"""Products in bfloat16: rounded to the nearest number, summed in float32, asked for by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

torch = pytest.importorskip("torch")

from tests.fleet.jobs import SETTINGS  # noqa: E402

from tunefleet import BenchmarkContext, Session  # noqa: E402
from tunefleet.compiler.graph.narrow_products import with_narrow_products  # noqa: E402
from tunefleet.compiler.toolchain import load_tvm  # noqa: E402
from tunefleet.compiler.toolchain.bfloat16 import rounded, rounded_array  # noqa: E402
from tunefleet.compiler.toolchain.host import native_target  # noqa: E402
from tunefleet.compiler.toolchain.programs import load_program  # noqa: E402
from tunefleet.core.importing import ImportOptions  # noqa: E402
from tunefleet.core.precision import BF16, FLOAT32  # noqa: E402
from tunefleet.devices.measuring import difference  # noqa: E402
from tunefleet.devices.runners import random_array  # noqa: E402
from tunefleet.errors import InputError  # noqa: E402
from tunefleet.runs.request import source_of  # noqa: E402
from tunefleet.stages.importing import import_network  # noqa: E402

tvm = load_tvm()
relax, te = tvm.relax, tvm.te
ArgInfo = tvm.s_tir.meta_schedule.arg_info.ArgInfo


def in_bfloat16(mod: object) -> object:
    """For a processor."""
    return with_narrow_products(mod, BF16, gpu=False, tiles=False)


def _numbers() -> np.ndarray:
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 2**32, 4096, dtype=np.uint64).astype(np.uint32)
    halves = (np.arange(4096, dtype=np.uint32) << 16) + 0x8000  # between two numbers
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 1e-45], np.float32)
    return np.concatenate([bits.view(np.float32), halves.view(np.float32), special])


def test_numbers_are_rounded_as_pytorch_does() -> None:
    values = _numbers()
    expected = torch.from_numpy(values).bfloat16().view(torch.uint16).numpy()
    none = np.isnan(values)
    assert np.array_equal(rounded_array(values)[~none], expected[~none])
    assert np.isnan((rounded_array(values)[none].astype(np.uint32) << 16).view(np.float32)).all()


def test_programs_round_as_arrays_are() -> None:
    values = _numbers()
    x = te.placeholder(values.shape, "float32", "x")
    program = te.create_prim_func([x, te.compute(values.shape, lambda i: rounded(x[i]))])
    built = tvm.compile(tvm.IRModule({"main": program}), target="llvm")
    found = tvm.runtime.tensor(np.zeros(values.shape, np.uint16))
    built["main"](tvm.runtime.tensor(values), found)
    assert np.array_equal(found.numpy(), rounded_array(values))


def _network(weight: np.ndarray, groups: int = 1) -> object:
    """A convolution (NHWC) whose input a product of matrices reads too."""
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((1, 6, 6, 5 * groups), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            made = builder.emit(
                relax.op.nn.conv2d(
                    data, relax.const(weight), padding=1, groups=groups,
                    data_layout="NHWC", kernel_layout="HWIO",
                )
            )  # fmt: skip
            result = builder.emit_output(made)
        builder.emit_func_output(result)
    return builder.get()


def _run(mod: object, x: np.ndarray) -> np.ndarray:
    built = relax.build(relax.transform.LegalizeOps()(mod), "llvm")
    machine = relax.VirtualMachine(built, tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy()


def test_a_convolution_sums_products_of_what_was_rounded() -> None:
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((3, 3, 5, 9)).astype("float32")
    x = generator.standard_normal((1, 6, 6, 5)).astype("float32")
    made = in_bfloat16(_network(weight))
    near = [
        (rounded_array(a).astype(np.uint32) << 16).view(np.float32).reshape(a.shape)
        for a in (weight, x)
    ]
    expected = _run(_network(near[0]), near[1])
    np.testing.assert_allclose(_run(made, x), expected, rtol=1e-5, atol=1e-5)
    assert not np.allclose(_run(made, x), _run(_network(weight), x), rtol=1e-5, atol=1e-5)


def test_outputs_that_products_read_too_are_not_rounded() -> None:
    """Several of them, as transformers have."""
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((4, 16), "float32"))
    weights = [relax.const(np.ones((16, 16), "float32")) for _ in range(2)]
    with builder.function("main", [data]):
        with builder.dataflow():
            first = builder.emit(relax.op.matmul(data, weights[0]))
            second = builder.emit(relax.op.matmul(first, weights[1]))
            result = builder.emit_output(relax.Tuple([first, second]))
        builder.emit_func_output(result)
    x = np.random.default_rng(0).standard_normal((4, 16)).astype("float32")
    made = in_bfloat16(builder.get())
    built = relax.build(relax.transform.LegalizeOps()(made), "llvm")
    found = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x))
    near = (rounded_array(x).astype(np.uint32) << 16).view(np.float32)
    expected = near @ np.ones((16, 16), "float32")
    np.testing.assert_allclose(found[0].numpy(), expected, rtol=1e-5, atol=1e-5)
    rounding = (rounded_array(expected).astype(np.uint32) << 16).view(np.float32)
    assert not np.allclose(found[0].numpy(), rounding, rtol=1e-5, atol=1e-5)


def test_normalised_sums_that_are_handed_on_are_not_rounded() -> None:
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((4, 16), "float32"))
    scale, shift = (relax.const(np.full(16, value, "float32")) for value in (1.0, 0.0))
    weights = relax.const(np.zeros((16, 16), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            normalised = builder.emit(relax.op.nn.layer_norm(data, scale, shift, [-1]))
            product = builder.emit(relax.op.matmul(normalised, weights))
            result = builder.emit_output(relax.op.add(product, normalised))
        builder.emit_func_output(result)
    x = np.random.default_rng(0).standard_normal((4, 16)).astype("float32")
    made = in_bfloat16(builder.get())
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(_run(made, x), expected, rtol=1e-5, atol=1e-5)


def test_enough_columns_are_in_bfloat16() -> None:
    weight = np.ones((3, 3, 5, 8), "float32")
    assert "uint16" in str(in_bfloat16(_network(weight)))


@pytest.mark.parametrize(("columns", "groups"), [(4, 1), (16, 2)])
def test_few_columns_and_groups_stay_in_float32(columns: int, groups: int) -> None:
    weight = np.ones((3, 3, 5, columns), "float32")
    with pytest.raises(InputError, match="nothing of this network would be in bf16"):
        in_bfloat16(_network(weight, groups=groups))


def test_the_same_network_in_another_precision_is_another(tmp_path: Path) -> None:
    context = BenchmarkContext(home=tmp_path, threads=1)
    plain, made, named = (
        source_of(spec, ImportOptions(), context, precision)
        for spec, precision in (
            ("zoo:tiny_cnn", FLOAT32),
            ("zoo:tiny_cnn", BF16),
            ("zoo:tiny_cnn?precision=bf16", FLOAT32),
        )
    )  # fmt: skip
    assert (plain.name, made.name) == ("tiny_cnn", "tiny_cnn-bf16")
    assert made == named
    assert made.identity != plain.identity


def test_there_is_nothing_to_calibrate(tmp_path: Path) -> None:
    context = BenchmarkContext(home=tmp_path, threads=1)
    with pytest.raises(InputError, match="calibrate"):
        source_of("zoo:tiny_cnn", ImportOptions(), context, BF16, tmp_path)


@pytest.mark.slow
@pytest.mark.long
def test_a_network_is_tuned_and_verified(tmp_path: Path) -> None:
    context = BenchmarkContext(home=tmp_path, threads=1)
    with Session(context) as session:
        session.from_network("zoo:tiny_cnn", precision=BF16).autotune(trials=12, settings=SETTINGS)
        result = session.build().save().evaluate(rounds=3).result()
    assert result.network.name == "tiny_cnn-bf16"
    assert result.verified
    assert any("bfloat16" in note for note in result.notes)
    assert 1e-6 < (result.difference.tuned or 0.0) <= (result.tolerance or 0.0)


def test_programs_are_checked_and_measured_on_numbers_that_products_keep() -> None:
    bits = random_array((256,), "uint16", 0)
    values = (bits.astype(np.uint32) << 16).view(np.float32)
    assert np.isfinite(values).all()
    assert np.median(np.abs(values)) > 0.1


def _results(spec: str) -> dict[str, list[str]]:
    """Types of arguments of products, the results last, by the shapes of the task."""
    tasks = [weighted.task for weighted in import_network(spec, native_target(1)).tasks]
    return {
        task.shapes: [
            str(info.dtype) for info in ArgInfo.from_prim_func(load_program(task.program)["main"])
        ]
        for task in tasks
        if task.operator in ("conv2d", "matmul")
    }


def test_what_a_product_reads_is_written_rounded() -> None:
    """And what is summed with it later (a residual) is read so; outputs are not rounded."""
    types = _results("zoo:resnet18?precision=bf16&size=32")
    residual = [found for found in types.values() if found.count("uint16") == 4]
    assert residual  # data, weights, what is added and the result
    last = [found for shapes, found in types.items() if shapes.endswith("-> 1x1000")]
    assert [found[-1] for found in last] == ["float32"]
    # All of these are read by products, but for the last, of which the mean is taken.
    inner = {shapes: found[-1] for shapes, found in types.items() if " 3x3x" in shapes}
    assert [shapes for shapes, result in inner.items() if result != "uint16"] == [
        "1x1x1x512 1x1x1x512 3x3x512x512 1x1x1x512 -> 1x1x1x512"
    ]


def test_what_is_no_product_reads_rounded_numbers_too() -> None:
    """Depthwise convolutions between products, which stay in float32 themselves."""
    types = _results("zoo:mobilenet_v2?precision=bf16&size=32")
    depthwise = [found for shapes, found in types.items() if " 3x3x1x" in shapes]
    assert len(depthwise) > 5
    assert all(found[-1] == "uint16" and found[1] == "float32" for found in depthwise)


@pytest.mark.parametrize(
    ("moved", "said"),
    [(0, ""), (1, ""), (2, "of the largest")],
)
def test_results_in_bfloat16_may_fall_to_the_next_number(moved: int, said: str) -> None:
    expected = rounded_array(np.array([1.0, -3.0, 0.5, 1e-3, 0.0], np.float32))
    actual = expected + np.array([0, moved, 0, 0, 0], np.uint16)
    found = difference(expected, actual)
    assert (said in found) if said else not found


def test_what_cancels_out_may_differ_by_more_steps_but_not_by_more() -> None:
    expected = rounded_array(np.array([100.0, 1e-6], np.float32))
    for value, is_near in ((3e-6, True), (-1e-6, True), (1.0, False)):
        actual = rounded_array(np.array([100.0, value], np.float32))
        assert (difference(expected, actual) == "") == is_near
