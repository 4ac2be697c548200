"""Exported programs with free dimensions, and with parts that stay in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tunefleet.compiler.frontends import ImportRequest, load_network
from tunefleet.core.shapes import ShapeRequest
from tunefleet.core.step import IS_RANDOM
from tunefleet.errors import InputError

pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore")]


def _saved(folder: Any, forward: Any, *inputs: Any, **options: Any) -> Any:
    import torch

    class Network(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return forward(x)

    torch.export.save(torch.export.export(Network(), inputs, **options), folder / "network.pt2")
    return folder / "network.pt2"


def _outputs(network: Any, folder: Any, target: Any) -> list[Any]:
    from tunefleet.artifacts.network import LoadedNetwork
    from tunefleet.compiler.code.executable import compile_network, save_network
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import to_tvm

    path = folder / "module.so"
    save_network(compile_network(prepare(network.mod, to_tvm(target)), target, {}), path)
    return LoadedNetwork(str(path)).run(network.example_inputs)


def test_a_free_dimension_takes_the_value_asked_for_within_its_range(tmp_path: Any) -> None:
    import torch

    shapes = {"x": {0: torch.export.Dim("rows", min=2, max=9)}}
    path = _saved(tmp_path, lambda x: x + 1, torch.ones(3, 4), dynamic_shapes=shapes)
    assert load_network(path).info.inputs[0].shape == (2, 4)
    symbol = str(torch.export.load(path).graph_signature.user_inputs[0])
    five = ShapeRequest.of(shapes=[(symbol, (5, 4))])
    assert load_network(path, ImportRequest(tmp_path, five)).info.outputs[0].shape == (5, 4)
    many = ShapeRequest.of(shapes=[(symbol, (12, 4))])
    with pytest.raises(InputError, match="2 to 9"):
        load_network(path, ImportRequest(tmp_path, many))


def test_a_free_dimension_is_called_by_where_it_comes_first(tmp_path: Any) -> None:
    import torch

    size = torch.export.Dim("size", max=64)
    shapes = {"x": {0: size, 1: 2 * size}}
    path = _saved(tmp_path, lambda x: x + 1, torch.ones(3, 6), dynamic_shapes=shapes)
    asked = ShapeRequest.of(dims=[("x.0", [4])])
    assert load_network(path, ImportRequest(tmp_path, asked)).info.inputs[0].shape == (4, 8)


def test_an_operator_without_conversion_stays_in_torch(tmp_path: Any, target: Any) -> None:
    import torch

    path = _saved(tmp_path, lambda x: torch.special.bessel_j0(x * 2) + x, torch.randn(2, 3))
    network = load_network(path, ImportRequest(tmp_path))
    assert [node.split()[0] for segment in network.segments for node in segment.nodes] == [
        "prims.bessel_j0.default"
    ]
    assert [segment.flops for segment in network.segments] == [6]
    (expected,) = network.reference(network.example_inputs)
    np.testing.assert_allclose(expected, _outputs(network, tmp_path, target)[0], rtol=1e-5)


def test_an_input_may_be_a_number(tmp_path: Any, target: Any) -> None:
    import torch

    network = load_network(_saved(tmp_path, lambda x: x.exp() + torch.arange(3), torch.tensor(0.5)))
    assert [array.shape for array in network.example_inputs] == [()]
    (expected,) = network.reference(network.example_inputs)
    np.testing.assert_allclose(expected, _outputs(network, tmp_path, target)[0], rtol=1e-6)


def test_an_input_that_is_changed_stays_as_it_is(tmp_path: Any, target: Any) -> None:
    import torch

    network = load_network(_saved(tmp_path, lambda x: x.add_(1) * 2, torch.ones(3)))
    (note,) = network.notes
    assert note.startswith("the module changes 1 of its inputs, which stay as they are here")
    np.testing.assert_array_equal(_outputs(network, tmp_path, target)[0], [4, 4, 4])


def test_axes_that_are_permuted_may_count_from_the_end(tmp_path: Any, target: Any) -> None:
    import torch

    left, right = torch.randn(2, 4, 5), torch.randn(4, 5, 3)
    path = _saved(tmp_path, lambda x: torch.tensordot(x, right, 2), left)
    network = load_network(path)
    (expected,) = network.reference(network.example_inputs)
    np.testing.assert_allclose(expected, _outputs(network, tmp_path, target)[0], rtol=1e-5)


def test_a_whole_module_is_refused_with_the_operator_that_prevents_it(tmp_path: Any) -> None:
    import torch

    path = _saved(tmp_path, torch.special.bessel_j0, torch.randn(2, 3))
    with pytest.raises(InputError, match="bessel_j0"):
        load_network(path, ImportRequest(tmp_path, whole=True))


def test_a_constant_output_is_left_out(tmp_path: Any) -> None:
    import torch

    path = _saved(tmp_path, lambda x: (x, 1, None, x + 1), torch.ones(2))
    network = load_network(path)
    assert 2 == len(network.info.outputs) == len(network.reference(network.example_inputs))


def test_a_shape_that_depends_on_values_is_unknown(tmp_path: Any, target: Any) -> None:
    import torch

    path = _saved(tmp_path, lambda x: torch.nonzero(torch.relu(x)), torch.randn(3, 4))
    network = load_network(path, ImportRequest(tmp_path))
    assert network.info.outputs[0].shape == (-1, 2)
    (expected,) = network.reference(network.example_inputs)
    np.testing.assert_array_equal(expected, _outputs(network, tmp_path, target)[0])


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_recurrent_layer_is_compiled_whole(kind: str, tmp_path: Any, target: Any) -> None:
    import torch

    layer = getattr(torch.nn, kind)(4, 6, num_layers=2, bidirectional=True, batch_first=True)

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            output, last = self.layer(x)
            return output, *(last if isinstance(last, tuple) else [last])

    path = tmp_path / "network.pt2"
    torch.export.save(torch.export.export(Network().eval(), (torch.randn(3, 5, 4),)), path)
    network = load_network(path, ImportRequest(tmp_path, whole=True))
    assert network.mod is not None
    assert kind.lower() in [var.name_hint for var in network.mod.get_global_vars()]
    expected = network.reference(network.example_inputs)
    for ours, theirs in zip(_outputs(network, tmp_path, target), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_program_that_cannot_be_cut_stays_in_torch_as_a_whole(tmp_path: Any, target: Any) -> None:
    import torch

    def forward(x: Any) -> Any:
        # What is narrow has a type that NumPy lacks, and would pass from one segment to another.
        narrow = x.to(torch.float8_e4m3fn)
        late = torch.relu(torch.special.bessel_j1(x)).to(torch.float8_e4m3fn)
        return torch.special.bessel_j0(torch.cat([narrow, late]).to(torch.float32))

    path = _saved(tmp_path, forward, torch.randn(2, 8))
    network = load_network(path, ImportRequest(tmp_path))
    (segment,) = network.segments
    assert "a part of it cannot be cut out" in segment.reason
    (expected,) = network.reference(network.example_inputs)
    np.testing.assert_allclose(expected, _outputs(network, tmp_path, target)[0], rtol=1e-5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_threads_share_the_units_of_a_large_recurrent_layer(kind: str, tmp_path: Any) -> None:
    import torch

    from tunefleet.artifacts.runtime import set_threads
    from tunefleet.compiler.toolchain.host import native_target

    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(8, 400, batch_first=True)
    path = _saved(tmp_path, lambda x: layer(x)[0], torch.randn(1, 5, 8))
    network = load_network(path)
    (expected,) = network.reference(network.example_inputs, 1)
    set_threads(2)
    (actual,) = _outputs(network, tmp_path, native_target(2))
    set_threads(1)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_what_is_asserted_of_constants_is_no_part(tmp_path: Any, target: Any) -> None:
    import torch

    counts = torch.tensor([1, 2])
    path = _saved(tmp_path, lambda x: x.repeat_interleave(counts, 0), torch.ones(2, 4))
    network = load_network(path, ImportRequest(tmp_path))
    (segment,) = network.segments
    assert "a shape depends on values" in segment.reason
    (found,) = _outputs(network, tmp_path, target)
    np.testing.assert_array_equal(network.reference(network.example_inputs)[0], found)


def test_a_program_in_bfloat16_is_compiled_with_its_roundings(tmp_path: Any, target: Any) -> None:
    import torch

    first = torch.nn.Conv1d(2, 6, 3, padding=1).bfloat16()
    second = torch.nn.Linear(5, 3).bfloat16()

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x: Any) -> Any:
            a, b = self.first(x.bfloat16()).relu().chunk(2, 1)
            a = a.clone().add_(b)
            y = self.second(a.transpose(1, 2).reshape(-1, 5, 3).transpose(1, 2))
            return torch.cat([y.softmax(-1), y], 1).float(), y.argmax(-1)

    torch.export.save(torch.export.export(Network(), (torch.randn(2, 2, 5),)), tmp_path / "n.pt2")
    network = load_network(tmp_path / "n.pt2", ImportRequest(tmp_path, whole=True))
    expected = network.reference(network.example_inputs)
    found = _outputs(network, tmp_path, target)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-2, atol=1e-2)
    np.testing.assert_array_equal(expected[1], found[1])
    # Numbers of eight bits, not of twenty-four.
    assert not (found[0].view(np.uint32) & 0xFFFF).any()


def test_bfloat16_that_stays_in_pytorch_is_computed_there(tmp_path: Any, target: Any) -> None:
    import torch

    weight = torch.randn(3, 3).bfloat16()
    path = _saved(
        tmp_path,
        lambda x: torch.linalg.det((x.bfloat16() @ weight).float().expand(2, 3, 3)) * 2,
        torch.randn(3, 3),
    )
    network = load_network(path, ImportRequest(tmp_path))
    assert network.segments
    (found,) = _outputs(network, tmp_path, target)
    np.testing.assert_allclose(
        found, network.reference(network.example_inputs)[0], rtol=1e-2, atol=1e-2
    )


def test_what_has_an_extent_that_values_decide_may_be_joined(tmp_path: Any, target: Any) -> None:
    import torch

    def forward(x: Any) -> Any:
        return torch.cat([x[x > 0], x[0]]).sum() + x

    network = load_network(_saved(tmp_path, forward, torch.randn(3, 4)), ImportRequest(tmp_path))
    (found,) = _outputs(network, tmp_path, target)
    np.testing.assert_allclose(
        found, network.reference(network.example_inputs)[0], rtol=1e-5, atol=1e-5
    )


def test_operators_that_nothing_registers_are_named(tmp_path: Any) -> None:
    import torch

    library = torch.library.Library("elsewhere", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    path = _saved(tmp_path, lambda x: torch.ops.elsewhere.twice(x) + 1, torch.ones(3))
    library._destroy()
    with pytest.raises(InputError, match="operators of elsewhere, which nothing here registers"):
        load_network(path)


def test_experts_of_transformers_need_no_import_before(tmp_path: Any) -> None:
    import subprocess
    import sys

    import torch

    pytest.importorskip("transformers.integrations.moe")
    weights, ends = torch.randn(2, 3, 5), torch.tensor([1, 4])
    path = _saved(
        tmp_path,
        lambda x: torch.ops.transformers.grouped_mm_fallback(x, weights, ends),
        torch.randn(4, 3),
    )
    opening = "import sys; from tunefleet.compiler.frontends import load_network as load; "
    told = "print(load(sys.argv[1]).info.outputs[0].shape)"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", opening + told, str(path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "(4, 5)\n"


def _branch(x: Any) -> Any:
    import torch

    return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,)) + 1


def _loop(x: Any) -> Any:
    import torch

    start = (torch.tensor(0), x)
    after = torch._higher_order_ops.while_loop(
        lambda i, _: i < 3, lambda i, x: (i + 1, x * 2), start
    )
    return after[1] + 1


def _folded(x: Any) -> Any:
    from torch._higher_order_ops.scan import scan

    last, all_sums = scan(lambda sum_, row: (sum_ + row, sum_ * row), x[0], x)
    return all_sums + last


def _mapped(x: Any) -> Any:
    from torch._higher_order_ops.map import map as mapped

    return mapped(lambda row, first: row * first, x + 1, x[0] * 2)


@pytest.mark.parametrize("forward", [_branch, _loop, _folded, _mapped])
def test_branches_and_loops_stay_in_pytorch(forward: Any, tmp_path: Any, target: Any) -> None:
    import torch

    x = torch.randn(2, 4)
    path = _saved(tmp_path, forward, x)
    network = load_network(str(path), ImportRequest(tmp_path))
    assert network.segments
    (output,) = _outputs(network, tmp_path, target)
    np.testing.assert_allclose(forward(torch.tensor(network.example_inputs[0])), output, rtol=1e-5)


def test_random_numbers_in_a_branch_are_known(tmp_path: Any) -> None:
    import torch

    def draw(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: torch.rand_like(x), lambda x: x - 1, (x,))

    network = load_network(_saved(tmp_path, draw, torch.ones(3)), ImportRequest(tmp_path))
    (segment,) = network.segments
    assert IS_RANDOM in segment.reason


def test_pytorch_on_a_gpu_computes_float32_as_float32(monkeypatch: Any) -> None:
    """Its convolutions would round to TF32."""
    import torch

    from tunefleet.compiler.frontends.torch_ import TorchReference

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    reference = TorchReference(lambda: pytest.fail("opened"))
    assert reference.move_to_gpu(0)
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
