"""Products in float16 for GPUs: what their tasks read and by what they are multiplied, and what a
network computes so, each thread run on the CPU (`tests/emulation/library.py` says what that
shows)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

torch = pytest.importorskip("torch")

from tests.emulation.network import Emulated, need_compiler  # noqa: E402

from tunefleet import BenchmarkContext  # noqa: E402
from tunefleet.compiler.code.executable import worst_difference  # noqa: E402
from tunefleet.compiler.graph.narrow_products import with_narrow_products  # noqa: E402
from tunefleet.compiler.space.opening import has_tensorised  # noqa: E402
from tunefleet.compiler.toolchain import load_tvm  # noqa: E402
from tunefleet.compiler.toolchain.host import parse_target  # noqa: E402
from tunefleet.compiler.toolchain.programs import load_program  # noqa: E402
from tunefleet.core.importing import ImportOptions  # noqa: E402
from tunefleet.core.precision import BF16, FLOAT16, FLOAT32, FP16  # noqa: E402
from tunefleet.devices.measuring import difference  # noqa: E402
from tunefleet.errors import InputError, JobError  # noqa: E402
from tunefleet.runs.driver import source_of  # noqa: E402
from tunefleet.stages.importing import TaskedNetwork, import_network  # noqa: E402

tvm = load_tvm()
relax = tvm.relax
ArgInfo = tvm.s_tir.meta_schedule.arg_info.ArgInfo

NETWORKS = ("zoo:tiny_cnn", "zoo:bert_tiny?size=32")
_PRODUCTS = ("conv2d", "matmul")


@pytest.fixture(scope="module")
def gpu() -> Any:
    return parse_target("cuda/sm_80")


@pytest.fixture(scope="module", params=NETWORKS)
def imported(request: pytest.FixtureRequest, gpu: Any) -> TaskedNetwork:
    return import_network(request.param, gpu, options=ImportOptions(precision=FP16))


def _types(program: str) -> list[str]:
    """Of a task's arguments, the result last."""
    return [str(info.dtype) for info in ArgInfo.from_prim_func(load_program(program)["main"])]


def _products(imported: TaskedNetwork) -> list[Any]:
    """Tasks of products, without depthwise convolutions."""
    tasks = [weighted.task for weighted in imported.tasks]
    return [t for t in tasks if t.operator in _PRODUCTS and " 3x3x1x" not in t.shapes]


def test_products_read_float16(imported: TaskedNetwork) -> None:
    assert imported.info.name.endswith("-fp16")
    assert (FP16, FLOAT16) == (imported.precision, imported.float_type)
    products = _products(imported)
    assert len(products) >= 4
    for task in products:
        assert _types(task.program)[:2] == [FLOAT16, FLOAT16], task.name
        assert task.precision == FLOAT16


def test_all_else_is_in_float32(imported: TaskedNetwork) -> None:
    for tensor in (*imported.info.inputs, *imported.info.outputs):
        assert FLOAT16 not in str(tensor)
    for task in (weighted.task for weighted in imported.tasks):
        if task.operator in ("softmax", "layer_norm", "mean"):
            assert FLOAT16 not in _types(task.program)[0]


def test_attention_is_in_float16_too(gpu: Any) -> None:
    """Its products have no weights."""
    imported = import_network(NETWORKS[1], gpu, options=ImportOptions(precision=FP16))
    batched = [t for t in _products(imported) if t.shapes.count("1x2x32x") >= 2]
    assert len(batched) >= 2


def test_tensor_cores_multiply_them(imported: TaskedNetwork, gpu: Any) -> None:
    for task in _products(imported):
        rows = task.shapes.split(" -> ")[1].split("x")[:-1]
        if set(rows) != {"1"}:
            assert has_tensorised(task.program, gpu), task.shapes


def test_a_gpu_computes_what_the_source_framework_does(
    imported: TaskedNetwork, gpu: Any, tmp_path: Path
) -> None:
    need_compiler()
    (variant,) = imported.variants
    inputs = variant.example_inputs
    expected = variant.reference(inputs, 1)
    found = Emulated(imported.module, gpu, tmp_path)(*inputs)
    assert 1e-6 < worst_difference(expected, found) < 5e-3


@pytest.mark.parametrize(
    ("target", "precision", "error", "cure"),
    [
        ("native", FP16, "fp16 is for GPUs", "use bf16"),
        ("cuda/sm_61", FP16, "tensor cores multiply float16, which sm_61 has not", "leave out"),
        ("cuda/sm_61", BF16, "tensor cores multiply bfloat16, which sm_61 has not", "leave out"),
        ("cuda/sm_75", BF16, "tensor cores multiply bfloat16, which sm_75 has not", "use fp16"),
    ],
)
def test_what_a_target_does_not_have_is_refused(
    target: str, precision: str, error: str, cure: str, tmp_path: Path
) -> None:
    context = BenchmarkContext(target, home=tmp_path, threads=1)
    with pytest.raises(InputError, match=error) as before:
        source_of("zoo:tiny_cnn", ImportOptions(), context, precision)
    assert cure in before.value.cure
    with pytest.raises(InputError, match=error):
        import_network(f"zoo:tiny_cnn?precision={precision}", context.target)


def _product(weight: np.ndarray) -> Any:
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((4, 16), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.matmul(data, relax.const(weight)))
        builder.emit_func_output(result)
    return builder.get()


def test_weights_that_float16_does_not_have_end_the_import() -> None:
    weight = np.full((16, 16), 7e4, "float32")
    with pytest.raises(JobError, match="reach 7e\\+04, more than .* float16, 65504") as error:
        with_narrow_products(_product(weight), FP16, gpu=True, tiles=False)
    assert "bf16" in error.value.cure


@pytest.mark.parametrize(("moved", "said"), [(0, ""), (1, ""), (2, "of the largest")])
def test_results_may_fall_to_the_next_number(moved: int, said: str) -> None:
    expected = np.array([1.0, -3.0, 0.5, 1e-3, 0.0], FLOAT16)
    bits = expected.view(np.uint16) + np.array([0, moved, 0, 0, 0], np.uint16)
    found = difference(expected, bits.view(FLOAT16))
    assert (said in found) if said else not found
