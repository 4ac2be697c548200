"""Products in 16 bits for GPUs: what their tasks read and by what they are multiplied, and what a
network computes so, each thread run on the CPU (`tests/emulation/library.py` says what that
shows)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

torch = pytest.importorskip("torch")

from tests.compiler.gpu_products import traces_by  # noqa: E402
from tests.emulation.library import Library  # noqa: E402
from tests.emulation.network import Emulated, need_compiler  # noqa: E402

from tunefleet import BenchmarkContext  # noqa: E402
from tunefleet.artifacts.tensors import numpy_type  # noqa: E402
from tunefleet.compiler.code.executable import worst_difference  # noqa: E402
from tunefleet.compiler.code.replay import replay  # noqa: E402
from tunefleet.compiler.graph.narrow_products import with_narrow_products  # noqa: E402
from tunefleet.compiler.space.opening import has_tensorised  # noqa: E402
from tunefleet.compiler.space.spaces import plainly_scheduled  # noqa: E402
from tunefleet.compiler.toolchain import load_tvm  # noqa: E402
from tunefleet.compiler.toolchain.host import parse_target  # noqa: E402
from tunefleet.compiler.toolchain.programs import load_program  # noqa: E402
from tunefleet.core.importing import ImportOptions  # noqa: E402
from tunefleet.core.precision import BF16, FLOAT16, FLOATS, FP16  # noqa: E402
from tunefleet.devices.measuring import difference  # noqa: E402
from tunefleet.devices.runners import random_array  # noqa: E402
from tunefleet.errors import InputError, JobError  # noqa: E402
from tunefleet.runs.request import source_of  # noqa: E402
from tunefleet.stages.agreement import agreement  # noqa: E402
from tunefleet.stages.check import _disagreement  # noqa: E402
from tunefleet.stages.importing import TaskedNetwork, import_network  # noqa: E402

tvm = load_tvm()
relax = tvm.relax
ArgInfo = tvm.s_tir.meta_schedule.arg_info.ArgInfo

_PRODUCTS = ("conv2d", "matmul")


class Attention(torch.nn.Module):  # type: ignore[name-defined]
    """A layer of BERT, with few channels: 16 tokens of 32, two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = torch.nn.Linear(32, 96)
        self.outside = torch.nn.Linear(32, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.last = torch.nn.Linear(32, 16)

    def forward(self, x: Any) -> Any:
        heads = [each.reshape(1, 16, 2, 16).transpose(1, 2) for each in self.inside(x).chunk(3, 2)]
        attended = torch.nn.functional.scaled_dot_product_attention(*heads)
        x = self.norm(x + self.outside(attended.transpose(1, 2).reshape(1, 16, 32)))
        return self.last(x) + x.mean()


@pytest.fixture(scope="module")
def gpu() -> Any:
    return parse_target("cuda/sm_80")


def _imported(
    module: Any, shape: tuple[int, ...], gpu: Any, folder: Path, precision: str = FP16
) -> TaskedNetwork:
    path = folder / "network.pt2"
    torch.export.save(torch.export.export(module.eval(), (torch.randn(shape),)), path)
    return import_network(str(path), gpu, options=ImportOptions(precision=precision))


@pytest.fixture(scope="module", params=FLOATS)
def precision(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def attention(precision: str, tmp_path_factory: pytest.TempPathFactory, gpu: Any) -> TaskedNetwork:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("attention")
    return _imported(Attention(), (1, 16, 32), gpu, folder, precision)


@pytest.fixture(scope="module", params=["convolutions", "attention"])
def imported(request: pytest.FixtureRequest, precision: str, gpu: Any) -> Any:
    if request.param == "attention":
        return request.getfixturevalue("attention")
    return import_network(f"zoo:tiny_cnn?precision={precision}", gpu)


def _types(program: str) -> list[str]:
    """Of a task's arguments, the result last."""
    return [str(info.dtype) for info in ArgInfo.from_prim_func(load_program(program)["main"])]


def _products(imported: TaskedNetwork) -> list[Any]:
    """Tasks of products, without depthwise convolutions."""
    tasks = [weighted.task for weighted in imported.tasks]
    return [t for t in tasks if t.operator in _PRODUCTS and " 3x3x1x" not in t.shapes]


def test_products_read_16_bits(imported: TaskedNetwork, precision: str) -> None:
    dtype = FLOATS[precision]
    assert imported.info.name.endswith(f"-{precision}")
    assert (imported.precision, imported.float_type) == (precision, dtype)
    products = _products(imported)
    assert len(products) >= 4
    for task in products:
        assert _types(task.program)[:2] == [dtype, dtype], task.name
        assert task.precision == {FP16: FLOAT16, BF16: BF16}[precision]


def test_all_else_is_in_float32(imported: TaskedNetwork) -> None:
    for tensor in (*imported.info.inputs, *imported.info.outputs):
        assert "float32" in str(tensor)
    for task in (weighted.task for weighted in imported.tasks):
        if task.operator in ("softmax", "layer_norm", "mean"):
            assert _types(task.program)[0] == "float32"


def test_attention_is_in_16_bits_too(attention: TaskedNetwork, precision: str) -> None:
    """Its products have no weights; both are one program."""
    (product,) = (t for t in _products(attention) if t.shapes.startswith("2x16x16 2x16x16"))
    assert _types(product.program)[:2] == [FLOATS[precision]] * 2


def _of_several_rows(imported: TaskedNetwork) -> list[Any]:
    results = {t: t.shapes.split(" -> ")[1].split("x")[:-1] for t in _products(imported)}
    return [task for task, rows in results.items() if set(rows) != {"1"}]


def test_tensor_cores_multiply_them(imported: TaskedNetwork, gpu: Any) -> None:
    for task in _of_several_rows(imported):
        assert has_tensorised(task.program, gpu), task.shapes


def test_tensor_cores_compute_what_a_task_does(
    imported: TaskedNetwork, gpu: Any, tmp_path: Path
) -> None:
    need_compiler()
    for number, task in enumerate(_of_several_rows(imported)):
        program = load_program(task.program)
        traces = traces_by(task.program, "", 1)
        modules = {f"p{i}": replay(program, gpu, trace).mod for i, trace in enumerate(traces)}
        modules["plain"] = plainly_scheduled(program, gpu)
        folder = tmp_path / str(number)
        folder.mkdir()
        library = Library(modules, gpu, folder)
        infos = list(ArgInfo.from_prim_func(program["main"]))[:-1]
        shapes = [(tuple(int(d) for d in info.shape), str(info.dtype)) for info in infos]
        arrays = [random_array(*shape, seed=i) for i, shape in enumerate(shapes)]
        expected = library.run("plain", arrays)
        assert traces
        for name in modules:
            assert difference(expected, library.run(name, arrays)) == "", task.shapes


def test_a_gpu_computes_what_the_source_framework_does(
    imported: TaskedNetwork, precision: str, gpu: Any, tmp_path: Path
) -> None:
    need_compiler()
    (variant,) = imported.variants
    inputs = variant.example_inputs
    expected = variant.reference(inputs, 1)
    found = Emulated(imported.module, gpu, tmp_path)(*inputs)
    assert 1e-6 < worst_difference(expected, found) < {FP16: 5e-3, BF16: 4e-2}[precision]


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
    target: str, precision: str, error: str, cure: str
) -> None:
    with pytest.raises(InputError, match=error) as found:
        import_network(f"zoo:tiny_cnn?precision={precision}", parse_target(target))
    assert cure in found.value.cure


def test_it_is_refused_before_a_network_is_looked_for(tmp_path: Path) -> None:
    context = BenchmarkContext(home=tmp_path, threads=1)
    with pytest.raises(InputError, match="fp16 is for GPUs"):
        source_of("missing.onnx", ImportOptions(), context, FP16)


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
    with pytest.raises(JobError, match="float16 no more than 65504") as error:
        with_narrow_products(_product(weight), FP16, gpu=True, tiles=False)
    assert "bf16" in error.value.cure


class Large(torch.nn.Module):  # type: ignore[name-defined]
    """Reads larger numbers than float16 has."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x).abs() * 1e6 + 1e6)


def test_numbers_that_float16_does_not_have_end_the_check(gpu: Any, tmp_path: Path) -> None:
    need_compiler()
    imported = _imported(Large(), (4, 16), gpu, tmp_path)
    (variant,) = imported.variants
    emulated = Emulated(imported.module, gpu, tmp_path)
    outcome = agreement(
        [variant.example_inputs],
        imported.float_type,
        lambda _, inputs: variant.reference(inputs, 1),
        lambda _, inputs: emulated(*inputs),
    )
    assert not outcome.holds
    error = _disagreement("net", outcome, FP16)
    assert "exceeds 65504, the largest number of float16" in str(error)
    assert "bf16" in error.cure


@pytest.mark.parametrize(("moved", "said"), [(0, ""), (1, ""), (2, "of the largest")])
def test_results_may_fall_to_the_next_number(moved: int, said: str, precision: str) -> None:
    expected = np.array([1.0, -3.0, 0.5, 1e-3, 0.0], numpy_type(FLOATS[precision]))
    bits = expected.view(np.uint16) + np.array([0, moved, 0, 0, 0], np.uint16)
    found = difference(expected, bits.view(expected.dtype))
    assert (said in found) if said else not found
