"""Frontends: every source arrives as the same kind of Relax, beside a way to check it."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tunefleet.compiler.frontends import (
    FRONTENDS,
    load_network,
    network_digest,
    network_name,
)
from tunefleet.core.network import TensorSpec
from tunefleet.zoo import build

pytestmark = pytest.mark.filterwarnings("ignore")  # exporting the fixtures is noisy


def _operators(mod):
    import tvm

    found = []

    def visit(expr):
        if isinstance(expr, tvm.relax.Call) and isinstance(expr.op, tvm.ir.Op):
            found.append(expr.op.name.removeprefix("relax."))

    tvm.relax.analysis.post_order_visit(mod["main"], visit)
    return found


def _run(network):
    import tvm

    module = tvm.compile(network.mod, tvm.target.Target("llvm"))
    machine = tvm.relax.VirtualMachine(module, tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(x) for x in network.example_inputs))
    outputs = list(result) if len(network.info.outputs) > 1 else [result]
    return [output.numpy() for output in outputs]


def _check(network):
    """The Relax module computes what the source framework does."""
    expected = network.reference(network.example_inputs)
    actual = _run(network)
    specs = [(s.shape, s.dtype) for s in network.info.outputs]
    assert specs == [(e.shape, e.dtype.name) for e in expected]
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-4 * np.abs(e).max())


def _two_outputs():
    import torch

    class Network(torch.nn.Module):
        def forward(self, numbers, pair):
            return {"sum": numbers + pair[0], "product": numbers * pair[1]}

    a, b, c = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
    return torch.export.export(Network(), (a,), {"pair": (b, c)})


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The same network from the zoo, as an ONNX file and as an exported program."""
    import torch

    folder = tmp_path_factory.mktemp("networks")
    network = build("zoo:tiny_cnn")
    torch.onnx.export(
        network.module, network.example_inputs, folder / "tiny.onnx", dynamo=True, verbose=False
    )
    program = torch.export.export(network.module, network.example_inputs)
    torch.export.save(program, folder / "tiny.pt2")
    torch.export.save(_two_outputs(), folder / "two.pt2")
    return {"zoo": "zoo:tiny_cnn", "onnx": folder / "tiny.onnx", "pt2": folder / "tiny.pt2"}


@pytest.mark.tvm
@pytest.mark.parametrize("source", ["zoo", "onnx", "pt2"])
class TestEverySource:
    def test_relax_computes_what_the_framework_does(self, sources, source):
        _check(load_network(sources[source]))

    def test_info_is_complete(self, sources, source):
        spec = sources[source]
        info = load_network(spec).info
        assert source == info.source
        assert network_name(spec) == info.name
        assert network_digest(spec) == info.digest
        assert [i.shape for i in info.inputs] == [(1, 3, 16, 16)]
        assert [o.shape for o in info.outputs] == [(1, 10)]

    def test_weights_are_constants(self, sources, source):
        mod: Any = load_network(sources[source]).mod
        assert len(mod["main"].params) == 1

    def test_relax_has_no_compute_definitions(self, sources, source):
        mod = load_network(sources[source]).mod
        assert mod is not None
        assert [v.name_hint for v in mod.get_global_vars()] == ["main"]

    def test_inputs_are_the_same_every_time(self, sources, source):
        first, second = (load_network(sources[source]).example_inputs for _ in range(2))
        np.testing.assert_array_equal(first[0], second[0])

    def test_load_is_silent(self, sources, source, capfd, recwarn):
        load_network(sources[source])
        assert tuple(capfd.readouterr()) == ("", "")
        assert list(recwarn) == []

    def test_reference_restores_the_threads_of_torch(self, sources, source):
        import torch

        before = torch.get_num_threads()
        network = load_network(sources[source])
        one, two = (network.reference(network.example_inputs, threads=n)[0] for n in (1, 2))
        assert before == torch.get_num_threads()
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)

    def test_exactly_one_frontend_accepts_it(self, sources, source):
        assert [source] == [f.name for f in FRONTENDS if f.accepts(str(sources[source]))]


@pytest.mark.tvm
def test_batch_norm_of_torch_arrives_as_an_operator():
    operators = _operators(load_network("zoo:tiny_cnn").mod)
    assert operators.count("nn.batch_norm") == 4
    assert "permute_dims" not in operators


@pytest.mark.tvm
def test_clip_of_onnx_arrives_as_operators(sources):
    operators = _operators(load_network(sources["onnx"]).mod)
    assert {"maximum", "minimum"} <= set(operators)


@pytest.mark.tvm
def test_language_network_computes_what_torch_does():
    network = load_network("zoo:bert_2l?size=8")
    _check(network)
    # What does not depend on the tokens is folded: position ids, segment ids, the mask.
    left = set(_operators(network.mod))
    assert not left & {"arange", "where", "gather_elements", "broadcast_to", "strided_slice"}


@pytest.mark.tvm
def test_token_outside_the_vocabulary_does_not_crash():
    network = load_network("zoo:bert_2l?size=8")
    import tvm

    machine = tvm.relax.VirtualMachine(
        tvm.compile(network.mod, tvm.target.Target("llvm")), tvm.cpu()
    )
    tokens = np.full((1, 8), 2**30, "int64")
    assert np.isfinite(machine["main"](tvm.runtime.tensor(tokens)).numpy()).all()


@pytest.mark.tvm
@pytest.mark.parametrize("masked", ["nothing", "the future", "a row", "by an input"])
def test_attention_computes_what_torch_does(tmp_path, masked):
    import torch

    class Attention(torch.nn.Module):
        def forward(self, x, bias):
            mask = None
            if masked == "a row":
                mask = torch.ones(8, 8, dtype=torch.bool)
                mask[3] = False
            elif masked == "by an input":
                mask = bias
            return torch.nn.functional.scaled_dot_product_attention(
                x, x, x, attn_mask=mask, is_causal=masked == "the future"
            )

    bias = torch.zeros(8, 8)
    bias[2] = -torch.inf
    program = torch.export.export(
        Attention(), (torch.linspace(-2, 2, 64).reshape(1, 2, 8, 4), bias)
    )
    torch.export.save(program, tmp_path / "attention.pt2")
    network = load_network(tmp_path / "attention.pt2")
    _check(network)
    guarded = "equal" in _operators(network.mod)
    assert guarded == (masked == "by an input")


@pytest.mark.tvm
def test_nested_inputs_and_several_outputs(sources):
    network = load_network(sources["pt2"].with_name("two.pt2"))
    _check(network)
    assert len(network.info.inputs) == 3
    assert tuple(o.name for o in network.info.outputs) == ("sum", "product")


@pytest.mark.tvm
def test_integer_inputs_of_onnx_are_zeros_and_ones(tmp_path):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    table = numpy_helper.from_array(np.arange(8, dtype="float32").reshape(2, 4), "table")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["y"])],
        "lookup",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, (1, 6))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 6, 4))],
        [table],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    onnx.save(model, tmp_path / "lookup.onnx")
    network = load_network(tmp_path / "lookup.onnx")
    assert (TensorSpec("ids", (1, 6), "int64"),) == network.info.inputs
    assert set(network.example_inputs[0].ravel()) <= {0, 1}
    _check(network)


@pytest.mark.frameworks
def test_digest_covers_weights_in_another_file(sources):
    import onnx

    path = sources["onnx"].with_name("beside.onnx")
    model = onnx.load(sources["onnx"])
    onnx.save(model, path, save_as_external_data=True, location="beside.bin", size_threshold=0)
    before = network_digest(path)
    weights = path.with_name("beside.bin")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x55")
    assert before != network_digest(path)


@pytest.mark.frameworks
def test_digest_depends_on_every_zoo_parameter():
    specs = ("zoo:tiny_cnn", "zoo:tiny_cnn?seed=1", "zoo:tiny_cnn?batch=2")
    assert len({network_digest(spec) for spec in specs}) == 3
    assert network_digest("zoo:tiny_cnn") == network_digest("zoo:tiny_cnn?batch=1&size=16")


@pytest.mark.frameworks  # A digest has the version of torch.
def test_names_and_digests_need_no_framework():
    code = (
        "import sys; from tunefleet.compiler import frontends as f;"
        "f.network_digest('zoo:bert_base'); f.network_name('zoo:bert_base?size=64');"
        "sys.exit(bool({'tvm', 'torch', 'onnx'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.tvm
def test_an_addition_of_zeros_is_left_out(tmp_path):
    import onnx
    from onnx import helper

    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 4])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 4])
    zeros = helper.make_tensor("zeros", onnx.TensorProto.FLOAT, [4], [0.0] * 4)
    nodes = [
        helper.make_node("Add", ["x", "zeros"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [zeros])
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "a.onnx")
    network = load_network(tmp_path / "a.onnx")
    assert "add" not in _operators(network.mod)
    _check(network)
