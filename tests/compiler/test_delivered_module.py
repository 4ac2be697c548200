"""What is delivered as a module: its weights, its shapes, its plain schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def two_sizes(target: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(networks, path) of one module for two sizes of the same network."""
    from tunefleet.compiler.code.executable import compile_network, save_network
    from tunefleet.compiler.frontends import load_network
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.graph.variants import merged
    from tunefleet.compiler.toolchain.host import to_tvm

    networks = [load_network(f"zoo:tiny_cnn?size={size}") for size in (16, 24)]
    module = merged([prepare(network.mod, to_tvm(target)) for network in networks])
    path = tmp_path_factory.mktemp("module") / "module.so"
    save_network(compile_network(module, target, {}), path)
    return networks, path


@pytest.mark.parametrize("index", [0, 1])
def test_a_module_computes_the_network_at_each_of_its_shapes(two_sizes: Any, index: int) -> None:
    from tunefleet.artifacts.network import LoadedNetwork, entry_name
    from tunefleet.compiler.code.executable import worst_difference

    network, path = two_sizes[0][index], two_sizes[1]
    actual = LoadedNetwork(str(path), entry_name(index)).run(network.example_inputs)
    assert worst_difference(network.reference(network.example_inputs), actual) < 1e-4


def test_weights_lie_beside_the_module_once_for_all_shapes(two_sizes: Any) -> None:
    from safetensors import safe_open

    path: Path = two_sizes[1].with_suffix(".safetensors")
    with safe_open(path, "np") as file:
        arrays = [file.get_tensor(name) for name in file.keys() if name.isdigit()]  # noqa: SIM118
    assert arrays
    contents = [(array.shape, array.tobytes()) for array in arrays]
    assert len(contents) == len(set(contents))


def test_weights_are_aligned_for_vector_instructions(two_sizes: Any) -> None:
    from tunefleet.artifacts.weights import read_weights

    tensors = read_weights(two_sizes[1].with_suffix(".safetensors"), "main")
    assert tensors
    assert all(np.from_dlpack(t).ctypes.data % 64 == 0 for t in tensors)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_weights_in_16_bits_come_back_from_their_file(name: str, tmp_path: Path) -> None:
    from safetensors import safe_open

    from tunefleet.artifacts.tensors import array_of, numpy_type
    from tunefleet.artifacts.weights import read_weights
    from tunefleet.compiler.graph.constants import constant
    from tunefleet.compiler.graph.weights import Lifted, write_weights
    from tunefleet.compiler.toolchain import load_tvm

    relax = load_tvm().relax
    values = np.random.default_rng(0).standard_normal((16, 16)).astype(numpy_type(name))
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((16, 16), name))
    with builder.function("main", [data]):
        builder.emit_func_output(builder.emit(relax.op.add(data, constant(values))))
    path = tmp_path / "weights.safetensors"
    write_weights(path, Lifted(builder.get()))
    with safe_open(path, "np") as file:
        assert {"float16": "F16", "bfloat16": "BF16"}[name] == file.get_slice("0").get_dtype()
    (tensor,) = read_weights(path, "main")
    found = array_of(tensor)
    assert (str(tensor.dtype), found.tobytes()) == (name, values.tobytes())


def test_the_plain_schedule_keeps_what_every_task_computes(tiny: Any, target: Any) -> None:
    import tvm

    from tunefleet.compiler.space.plain import plainly_scheduled
    from tunefleet.compiler.toolchain.programs import load_program

    for weighted in tiny.tasks:
        module = load_program(weighted.task.program)
        arguments = tvm.s_tir.meta_schedule.arg_info.ArgInfo.from_prim_func(module["main"])
        generator = np.random.default_rng(0)
        arrays = [
            generator.standard_normal([int(d) for d in a.shape]).astype(str(a.dtype))
            for a in arguments
        ]
        outputs = []
        for each in (module, plainly_scheduled(module)):
            tensors = [tvm.runtime.tensor(array) for array in arrays]
            tvm.compile(each, "llvm")["main"](*tensors)
            outputs.append(tensors[-1].numpy())
        np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("inside", [False, True])
def test_outputs_are_the_callers_to_write_to(inside: bool, target: Any, tmp_path: Path) -> None:
    """Constants of a network, large ones and small ones, its inputs, and an output given twice."""
    from tests.compiler.test_graph import build

    from tunefleet.artifacts.network import LoadedNetwork
    from tunefleet.compiler.code.executable import compile_network, save_network
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.compiler.toolchain.host import to_tvm

    relax = load_tvm().relax
    small, large = np.arange(3.0, dtype="float32"), np.arange(300.0, dtype="float32")

    def emit(builder: Any, x: Any) -> Any:
        doubled = builder.emit(relax.op.add(x, x))
        return relax.Tuple([relax.const(small), relax.const(large), x, doubled, doubled])

    module = prepare(build(emit, (4,)), to_tvm(target))
    save_network(compile_network(module, target, {}, inside=inside), tmp_path / "module.so")
    network, x = LoadedNetwork(str(tmp_path / "module.so")), np.ones(4, "float32")
    expected = [small, large, x, x + x, x + x]
    for _ in range(2):
        outputs = network.run([x])
        for output, right in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(output, right)
            output[...] = -1
