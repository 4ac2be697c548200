"""Weights are not copied on their way from a file to a module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def _aligned(elements: int, shift: int = 0) -> np.ndarray[Any, Any]:
    """float32 numbers that begin `shift` bytes behind a place where vectors begin."""
    room = np.arange(elements * 4 + 128, dtype="uint8")
    start = -room.ctypes.data % 64 + shift
    return room[start : start + elements * 4].view("float32")


def _lies_in(path: Path, address: int) -> bool:
    """Whether an address of this process is a page of a file."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        span, *_, name = line.split(maxsplit=5)
        start, end = (int(bound, 16) for bound in span.split("-"))
        if start <= address < end:
            return name.endswith(path.name)
    return False


def test_a_constant_is_the_array_that_it_is_made_of() -> None:
    from tunefleet.compiler.graph.constants import constant, value_of

    array = _aligned(100)
    value = value_of(constant(array))
    assert value is not None
    assert np.shares_memory(array, value)


@pytest.mark.parametrize(
    "array",
    [_aligned(100, shift=4), np.ones((2, 90))[:, ::2], np.zeros((), "float32"), np.ones(9, bool)],
    ids=["unaligned", "strided", "scalar", "booleans"],
)
def test_what_kernels_cannot_read_in_its_place_is_copied(array: np.ndarray[Any, Any]) -> None:
    from tunefleet.compiler.graph.constants import constant, value_of

    value = value_of(constant(array))
    assert value is not None
    assert not np.shares_memory(array, value)
    np.testing.assert_array_equal(array, value)


def test_weights_of_an_exported_program_are_pages_of_its_file(tmp_path: Path) -> None:
    import torch

    from tunefleet.artifacts.torch_file import open_program

    torch.manual_seed(0)
    module, x = torch.nn.Linear(64, 64).eval(), torch.ones(1, 64)
    path = tmp_path / "linear.pt2"
    torch.export.save(torch.export.export(module, (x,)), path)
    program = open_program(path)
    assert _lies_in(path, program.state_dict["weight"].data_ptr())
    with torch.no_grad():
        torch.testing.assert_close(program.module()(x), module(x))


def test_types_of_transformers_in_a_file_are_imported_with_it(tmp_path: Path) -> None:
    """In a process of its own: in this one they may be known."""
    import subprocess
    import sys

    import torch

    pytest.importorskip("transformers")
    from transformers.modeling_outputs import BaseModelOutput

    class Encoder(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return BaseModelOutput(last_hidden_state=x + 1)

    # Where another test had it imported within an export, transformers has not told torch of it.
    BaseModelOutput(last_hidden_state=torch.ones(2))
    path = tmp_path / "encoder.pt2"
    torch.export.save(torch.export.export(Encoder().eval(), (torch.ones(2),)), path)
    code = (
        "import sys; from pathlib import Path; "
        "from tunefleet.artifacts.torch_file import open_program; "
        "open_program(Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(path)], check=False)
    assert done.returncode == 0


def test_weights_beside_an_onnx_file_are_pages_of_theirs(tmp_path: Path) -> None:
    import onnx

    from tunefleet.compiler.frontends.onnx_file import read_file
    from tunefleet.compiler.graph.constants import tensor_of

    weight = np.arange(256 * 256, dtype="float32").reshape(256, 256)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "graph",
        [onnx.helper.make_tensor_value_info("x", 1, [1, 256])],
        [onnx.helper.make_tensor_value_info("y", 1, [1, 256])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    onnx.save(
        onnx.helper.make_model(graph),
        tmp_path / "net.onnx",
        save_as_external_data=True,
        location="net.data",
        size_threshold=0,
    )
    array = read_file(tmp_path / "net.onnx").weights.array("w")
    np.testing.assert_array_equal(weight, array)
    assert _lies_in(tmp_path / "net.data", tensor_of(array).data_ptr())


def _addresses(mod: Any) -> set[int]:
    from tunefleet.compiler.graph import footprint

    return {
        constant.value.data_ptr()
        for _, function in mod.functions_items()
        if hasattr(function, "body") and hasattr(function.body, "blocks")
        for value in footprint._values(function)
        for constant in footprint._of_kind(value, footprint.tvm.ir.GenericConst)
        if constant.value.numel() >= 64
    }


def test_a_prepared_program_is_read_with_pages_of_the_plain_module_as_weights(
    target: Any, tmp_path: Path
) -> None:
    from tunefleet.compiler.graph.tasks import extract_tasks
    from tunefleet.compiler.graph.weights import load_program
    from tunefleet.stages.importing import import_network, prepare_network

    tasked = import_network("zoo:tiny_cnn", target)
    prepare_network(tasked, target, tmp_path)
    assert all(each.mod is None for each in tasked.variants)
    weights = tmp_path / "plain.safetensors"
    module = load_program(tmp_path / "program.json", weights)
    addresses = _addresses(module)
    assert len(_addresses(tasked.module)) == len(addresses)
    assert all(_lies_in(weights, address) for address in addresses)
    assert [t.task.task_id for t in extract_tasks(module, target)] == [
        t.task.task_id for t in tasked.tasks
    ]


def test_shapes_of_a_network_hold_equal_weights_once(target: Any) -> None:
    from tunefleet.compiler.frontends import load_network
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.graph.weights import SharedConstants
    from tunefleet.compiler.toolchain.host import to_tvm

    constants = SharedConstants()
    first, second = (
        _addresses(constants.shared(prepare(load_network(spec).mod, to_tvm(target))))
        for spec in ("zoo:tiny_cnn?size=16", "zoo:tiny_cnn?size=24")
    )
    assert first == second


def test_random_numbers_are_made_once_for_all_shapes() -> None:
    from tunefleet.devices import runners

    first, second = (runners.random_tensor(shape, "float32") for shape in ((64, 3), (3, 64)))
    assert first.data_ptr() != second.data_ptr()
    np.testing.assert_array_equal(first.numpy().ravel(), second.numpy().ravel())
    assert np.abs(first.numpy()).max() > 1
    assert len([kind for kind in runners._numbers if kind == "float32"]) == 1


def test_finalists_have_their_arguments_in_the_same_memory() -> None:
    from tunefleet.core.trial import Built
    from tunefleet.devices import runners

    kind = "float32"
    first, second = runners.in_turn(
        [
            Built("a", "a.so", (((64, 3), kind), ((3,), kind)), 0.0),
            Built("b", "b.so", (((8, 4, 8), kind), ((3,), kind)), 0.0),
        ]
    )
    assert [t.data_ptr() for t in first] == [t.data_ptr() for t in second]
    assert len({t.data_ptr() for t in first}) == 2
    assert [tuple(t.shape) for t in second] == [(8, 4, 8), (3,)]
    assert np.abs(second[0].numpy()).max() > 1
