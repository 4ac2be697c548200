"""Programs that PyTorch quantised: integer programs that give PyTorch's own numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tunefleet.compiler.frontends import ImportRequest, load_network

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization.fx._decomposed")  # registers the operators

pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore")]

ops = torch.ops.quantized_decomposed
UINT8, INT8 = (0, 255, torch.uint8), (-128, 127, torch.int8)


class _Of(torch.nn.Module):  # type: ignore[name-defined]  # torch may be missing
    """What a function computes, with tensors that it keeps."""

    def __init__(self, function: Any, **kept: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in kept.items():
            self.register_buffer(name, value)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def _imported(folder: Any, function: Any, *inputs: Any, **kept: Any) -> Any:
    program = torch.export.export(_Of(function, **kept).eval(), inputs)
    torch.export.save(program, folder / "network.pt2")
    return load_network(folder / "network.pt2", ImportRequest(folder, whole=True))


def _prepared(network: Any, target: Any) -> Any:
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import to_tvm

    return prepare(network.mod, to_tvm(target))


def _both(network: Any, target: Any) -> list[tuple[Any, Any]]:
    """Outputs of PyTorch and ours."""
    from tunefleet.compiler.code.executable import compile_network, run_compiled

    compiled = compile_network(_prepared(network, target), target, {})
    ours = run_compiled(compiled, list(network.example_inputs))
    return list(zip(network.reference(network.example_inputs), ours, strict=True))


def _check_equal(network: Any, target: Any) -> None:
    for theirs, ours in _both(network, target):
        np.testing.assert_array_equal(theirs, ours, strict=True)


def _products(network: Any, target: Any) -> list[set[str]]:
    """The types that each program with a product reads, writes and sums in."""
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    texts = [
        function.script()
        for _, function in _prepared(network, target).functions_items()
        if isinstance(function, tvm.tirx.PrimFunc)
    ]
    types = ("float32", "int32", "int8", "uint8")
    wanted = [t for t in texts if 'T.sblock("matmul' in t or 'T.sblock("conv' in t]
    return [{name for name in types if f'"{name}"' in text} for text in wanted]


def _tensor(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _weight(*shape: int) -> dict[str, Any]:
    """A weight of int8 with a scale for each of its output channels."""
    numbers = torch.Generator().manual_seed(1)
    weight = torch.randint(-127, 128, shape, generator=numbers, dtype=torch.int8)
    scale = torch.rand(shape[0], generator=numbers) / 500 + 0.001
    return {"w": weight, "scale": scale, "zero": torch.zeros(shape[0], dtype=torch.int64)}


def _floats(m: Any) -> Any:
    """The numbers of `_weight`."""
    return ops.dequantize_per_channel(m.w, m.scale, m.zero, 0, -128, 127, torch.int8)


def _rounded(x: Any, scale: float = 0.021, zero: int = 130, limits: Any = UINT8) -> Any:
    """The numbers that are nearest among those that integers stand for."""
    return ops.dequantize_per_tensor(
        ops.quantize_per_tensor(x, scale, zero, *limits), scale, zero, *limits
    )


def _static(m: Any, x: Any) -> Any:
    y = torch.relu(torch.nn.functional.conv2d(_rounded(x), _floats(m), m.bias, padding=1))
    return _rounded(y, 0.03, 0)


def _by_values(x: Any, choose: Any = ops.choose_qparams, limits: Any = UINT8) -> Any:
    scale, zero = choose.tensor(x, *limits[:2], 1e-7, limits[2])
    q = ops.quantize_per_tensor.tensor(x, scale, zero, *limits)
    return ops.dequantize_per_tensor.tensor(q, scale, zero, *limits)


@pytest.mark.parametrize("limits", [UINT8, INT8, (0, 127, torch.uint8), (-127, 127, torch.int8)])
@pytest.mark.parametrize("scale", [0.25, 0.0317])
def test_quantisation_rounds_as_torch_does(
    scale: float, limits: Any, tmp_path: Any, target: Any
) -> None:
    # Around the middles between two integers, where a product and a quotient may part.
    middles = (np.arange(-300, 300) + 0.5) * scale
    near = [np.float32(middles) * np.float32(1 + n * 2.0**-23) for n in range(-2, 3)]
    x = torch.from_numpy(np.stack(near).astype("float32"))
    network = _imported(tmp_path, lambda m, x: ops.quantize_per_tensor(x, scale, 7, *limits), x)
    _check_equal(network, target)


@pytest.mark.parametrize("limits", [UINT8, INT8])
def test_integers_become_the_numbers_of_torch(limits: Any, tmp_path: Any, target: Any) -> None:
    x = torch.arange(limits[0], limits[1] + 1).to(limits[2])
    network = _imported(tmp_path, lambda m, x: ops.dequantize_per_tensor(x, 0.0317, 9, *limits), x)
    _check_equal(network, target)


def test_arguments_may_be_named(tmp_path: Any, target: Any) -> None:
    def forward(m: Any, x: Any) -> Any:
        limits = {"quant_min": -100, "quant_max": 100, "dtype": torch.int8}
        q = ops.quantize_per_channel(
            input=x, scales=m.scales, zero_points=m.zeros, axis=-1, **limits
        )
        return q, ops.dequantize_per_tensor(q, scale=0.3, zero_point=4, **limits)

    kept = {"scales": torch.tensor([0.02, 0.3]), "zeros": torch.tensor([0, -5])}
    _check_equal(_imported(tmp_path, forward, _tensor(3, 2), **kept), target)


def test_quantisation_by_channels_rounds_as_torch_does(tmp_path: Any, target: Any) -> None:
    scales = torch.tensor([0.02, 0.3, 0.0317])
    zeros = torch.tensor([0, -5, 100])
    network = _imported(
        tmp_path,
        lambda m, x: ops.quantize_per_channel(x, m.scales, m.zeros, 1, *INT8),
        _tensor(2, 3, 40),
        scales=scales,
        zeros=zeros,
    )
    _check_equal(network, target)


@pytest.mark.parametrize("choose", [ops.choose_qparams, ops.choose_qparams_symmetric])
@pytest.mark.parametrize("limits", [UINT8, INT8])
@pytest.mark.parametrize("shift", [0, 5, -5])
def test_scale_and_zero_point_follow_from_values(
    shift: float, limits: Any, choose: Any, tmp_path: Any, target: Any
) -> None:
    def chosen(m: Any, x: Any) -> Any:
        scale, zero = choose.tensor(x, *limits[:2], 1e-7, limits[2])
        return scale, zero, ops.quantize_per_tensor.tensor(x, scale, zero, *limits)

    _check_equal(_imported(tmp_path, chosen, _tensor(3, 50) + shift), target)


@pytest.mark.parametrize("unsigned", [True, False])
def test_a_static_convolution_multiplies_integers(
    unsigned: bool, tmp_path: Any, target: Any, monkeypatch: Any
) -> None:
    """`unsigned` as x86 has it, where ARM does not."""
    monkeypatch.setattr("tunefleet.compiler.graph.pipeline.prefers_unsigned", lambda _: unsigned)
    weight = _weight(16, 8, 3, 3)
    network = _imported(tmp_path, _static, _tensor(1, 8, 12, 12), **weight, bias=_tensor(16))
    data = {"uint8"} if unsigned else set()
    assert [{"int8", "int32", "float32"} | data] == _products(network, target)
    ((theirs, ours),) = _both(network, target)
    # Sums of floats and of integers round to neighbouring steps where they lie between two.
    np.testing.assert_allclose(theirs, ours, atol=0.0301)
    assert np.mean(theirs == ours) > 0.99


@pytest.mark.parametrize("limits", [UINT8, INT8])
@pytest.mark.parametrize("choose", [ops.choose_qparams, ops.choose_qparams_symmetric])
def test_products_of_values_quantised_as_they_come_multiply_integers(
    choose: Any, limits: Any, tmp_path: Any, target: Any
) -> None:
    def forward(m: Any, x: Any) -> Any:
        return torch.nn.functional.conv2d(_by_values(x, choose, limits), _floats(m), padding=1)

    network = _imported(tmp_path, forward, _tensor(1, 8, 12, 12), **_weight(16, 8, 3, 3))
    assert [{"uint8", "int8", "int32", "float32"}] == _products(network, target)
    ((theirs, ours),) = _both(network, target)
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)


def test_a_linear_layer_of_a_sequence_multiplies_integers(tmp_path: Any, target: Any) -> None:
    network = _imported(
        tmp_path,
        lambda m, x: torch.nn.functional.linear(_by_values(x), _floats(m), m.bias),
        _tensor(2, 5, 16),
        **_weight(12, 16),
        bias=_tensor(12),
    )
    assert [{"uint8", "int8", "int32", "float32"}] == _products(network, target)
    ((theirs, ours),) = _both(network, target)
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)


def test_weights_alone_are_quantised(tmp_path: Any, target: Any) -> None:
    network = _imported(
        tmp_path,
        lambda m, x: torch.nn.functional.linear(x, _floats(m)),
        _tensor(5, 16),
        **_weight(12, 16),
    )
    assert [{"float32"}] == _products(network, target)
    ((theirs, ours),) = _both(network, target)
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)


def test_rows_quantised_as_they_come_multiply_integers(tmp_path: Any, target: Any) -> None:
    def forward(m: Any, x: Any) -> Any:
        scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
        q = torch.clamp(torch.round(x * (1.0 / scale)), -128, 127).to(torch.int8)
        return torch._int_mm(q, m.w).to(torch.float32) * scale

    weight = _weight(16, 24)["w"]
    network = _imported(tmp_path, forward, _tensor(32, 16), w=weight)
    assert {"int8", "int32"} <= _products(network, target)[0]
    ((theirs, ours),) = _both(network, target)
    np.testing.assert_allclose(theirs, ours, rtol=1e-6)


def test_operators_without_a_conversion_are_written_out(tmp_path: Any, target: Any) -> None:
    def forward(m: Any, x: Any) -> Any:
        scale, zero = ops.choose_qparams_per_token_asymmetric(x, torch.int8)
        q = ops.quantize_per_token(x, scale, zero, *INT8)
        return q, ops.dequantize_per_token(q, scale, zero, *INT8, torch.float32)

    _check_equal(_imported(tmp_path, forward, _tensor(4, 16)), target)


@pytest.mark.parametrize("scale", [0.021, 0.05])
def test_what_moves_integers_of_one_scale_takes_integers(
    scale: float, tmp_path: Any, target: Any
) -> None:
    def forward(m: Any, x: Any) -> Any:
        q = ops.quantize_per_tensor(x, scale, 130, *UINT8)
        y = torch.nn.functional.max_pool2d(ops.dequantize_per_tensor(q, scale, 130, *UINT8), 2)
        return ops.quantize_per_tensor(y, scale, 130, *UINT8)

    network = _imported(tmp_path, forward, _tensor(1, 4, 8, 8))
    _check_equal(network, target)


def test_every_sum_of_two_integers_is_that_of_torch(tmp_path: Any, target: Any) -> None:
    every = torch.arange(256, dtype=torch.uint8)
    left, right = torch.meshgrid(every, every, indexing="ij")

    def forward(m: Any, left: Any, right: Any) -> Any:
        a = ops.dequantize_per_tensor(left, 0.0317, 9, *UINT8)
        b = ops.dequantize_per_tensor(right, 0.0523, 100, *UINT8)
        return ops.quantize_per_tensor(a + b, 0.061, 70, *UINT8)

    _check_equal(_imported(tmp_path, forward, left.contiguous(), right.contiguous()), target)


def test_a_mask_of_the_least_numbers_is_added_as_torch_does(tmp_path: Any, target: Any) -> None:
    scale = 1.3344e36  # of 0 down to the least float32
    integers = torch.arange(256).to(torch.uint8)
    left, right = torch.meshgrid(integers, integers, indexing="ij")

    def forward(m: Any, left: Any, right: Any) -> Any:
        scores = ops.dequantize_per_tensor(left, 0.2, 128, *UINT8)
        masked = scores + ops.dequantize_per_tensor(right, scale, 255, *UINT8)
        return ops.quantize_per_tensor(masked, scale, 255, *UINT8)

    _check_equal(_imported(tmp_path, forward, left.contiguous(), right.contiguous()), target)


def test_integers_become_the_numbers_of_torch_in_half_precision(tmp_path: Any, target: Any) -> None:
    def forward(m: Any, x: Any) -> Any:
        return ops.dequantize_per_tensor(x, 0.0317, 9, *UINT8, out_dtype=torch.float16)

    every = torch.arange(256, dtype=torch.uint8)
    _check_equal(_imported(tmp_path, forward, every), target)


def test_a_free_dimension_takes_the_value_asked_for(tmp_path: Any, target: Any) -> None:
    from tunefleet.core.shapes import ShapeRequest

    module = _Of(_static, **_weight(16, 8, 3, 3), bias=_tensor(16)).eval()
    batch = torch.export.Dim("batch", max=8)
    shapes = {"inputs": ({0: batch},)}
    program = torch.export.export(module, (_tensor(2, 8, 12, 12),), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "network.pt2")
    asked = ImportRequest(tmp_path, ShapeRequest.of(dims=[("inputs_0.0", [3])]), whole=True)
    network = load_network(tmp_path / "network.pt2", asked)
    assert network.info.outputs[0].shape == (3, 16, 12, 12)
    assert {"int8", "int32"} <= _products(network, target)[0]


def test_what_is_not_converted_runs_in_torch(tmp_path: Any, target: Any) -> None:
    from tunefleet.artifacts.network import LoadedNetwork
    from tunefleet.compiler.code.executable import compile_network, save_network

    limits = (-(2**31), 2**31 - 1, torch.int32)
    module = _Of(lambda m, x: ops.quantize_per_tensor(x * 2, 1e-4, 5, *limits))
    torch.export.save(torch.export.export(module, (_tensor(3, 4),)), tmp_path / "network.pt2")
    network = load_network(tmp_path / "network.pt2", ImportRequest(tmp_path))
    assert [len(segment.nodes) for segment in network.segments] == [1]
    compiled = compile_network(_prepared(network, target), target, {})
    save_network(compiled, tmp_path / "module.so")
    (ours,) = LoadedNetwork(str(tmp_path / "module.so")).run(network.example_inputs)
    np.testing.assert_array_equal(network.reference(network.example_inputs)[0], ours)


def test_weights_moved_by_their_last_bit_give_nearly_the_same(tmp_path: Any) -> None:
    from tunefleet.compiler.frontends.references import reference_of

    weight = _weight(16, 8, 3, 3)
    network = _imported(tmp_path, _static, _tensor(1, 8, 12, 12), **weight, bias=_tensor(16))
    described = network.reference.describe()
    plain, moved = (
        reference_of({**described, "nudged": nudged})(network.example_inputs)[0]
        for nudged in (False, True)
    )
    np.testing.assert_array_equal(network.reference(network.example_inputs)[0], plain)
    np.testing.assert_allclose(plain, moved, atol=0.0301)


def test_a_network_that_torchao_quantised_is_imported_whole(tmp_path: Any, target: Any) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3)]
    inputs = (_tensor(1, 3, 16, 16),)
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    module = torch.export.export(torch.nn.Sequential(*layers).eval(), inputs).module()
    module = prepare_pt2e(module, quantizer)
    module(*inputs)
    program = torch.export.export(convert_pt2e(module), inputs)
    torch.export.save(program, tmp_path / "network.pt2")
    network = load_network(tmp_path / "network.pt2", ImportRequest(tmp_path, whole=True))
    assert all({"uint8", "int8"} <= types for types in _products(network, target))
    ((theirs, ours),) = _both(network, target)
    np.testing.assert_allclose(theirs, ours, atol=0.02 * np.abs(theirs).max())


@pytest.mark.parametrize("how", ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"])
def test_layers_that_torchao_quantised_are_imported_whole(
    how: str, tmp_path: Any, target: Any
) -> None:
    torchao = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    module = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    torchao.quantize_(module.eval(), getattr(torchao, how)())
    program = torch.export.export(module, (_tensor(4, 64),))
    torch.export.save(program, tmp_path / "network.pt2")
    network = load_network(tmp_path / "network.pt2", ImportRequest(tmp_path, whole=True))
    assert all(("int8" in types) == ("Dynamic" in how) for types in _products(network, target))
    ((theirs, ours),) = _both(network, target)
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=0.01 * np.abs(theirs).max())


def test_weights_around_numbers_between_two_integers(tmp_path: Any, target: Any) -> None:
    """As torchao has those of embeddings."""

    def found(m: Any, x: Any) -> Any:
        w = ops.dequantize_per_channel(m.w, m.scales, m.zeros, 0, 0, 255, torch.uint8)
        return torch.nn.functional.embedding(x, w)

    w = torch.arange(24, dtype=torch.uint8).reshape(4, 6)
    kept = {"w": w, "scales": torch.tensor([0.1, 0.2, 0.3, 0.4])}
    kept["zeros"] = torch.tensor([1.5, 2.25, 3.0, -4.75])
    _check_equal(_imported(tmp_path, found, torch.tensor([[3, 0, 1]]), **kept), target)
