"""Files whose weights have four bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.compiler.onnx_nodes import check, random

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.tvm

helper, numpy_helper = onnx.helper, onnx.numpy_helper


def _network(path: Path, kind: int, block: int = 0) -> Path:
    """A product by weights [8, 5] of 4 bits with a scale for each column, or each block of it."""
    numbers = np.arange(40).reshape(8, 5) % 8
    blocks = 8 // block if block else 0
    scales = np.abs(random(blocks, 5) if block else random(5)) + np.float32(0.1)
    form = {"axis": 0, "block_size": block} if block else {"axis": 1}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["w"], **form),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    tensors = [
        helper.make_tensor("q", kind, numbers.shape, numbers.ravel()),
        numpy_helper.from_array(scales, "scale"),
        helper.make_tensor("zero", kind, scales.shape, np.full(scales.size, 3)),
    ]
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [2, 8]), ("y", [2, 5]))
    )
    graph = helper.make_graph(nodes, "graph", [x], [y], tensors)
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
@pytest.mark.parametrize("block", [0, 4])
def test_a_network_of_four_bits_is_imported_whole(
    kind: str, block: int, tmp_path: Path, target: Any
) -> None:
    from tunefleet.compiler.code.executable import compile_network, run_compiled
    from tunefleet.compiler.frontends import ImportRequest, load_network
    from tunefleet.compiler.frontends.references import reference_of
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import to_tvm

    path = _network(tmp_path / "network.onnx", getattr(onnx.TensorProto, kind), block)
    network = load_network(path, ImportRequest(tmp_path, whole=True))
    compiled = compile_network(prepare(network.mod, to_tvm(target)), target, {})
    # Of weights with four bits ONNX Runtime rounds what they multiply, if it may optimise.
    exact = reference_of({**network.reference.describe(), "unoptimised": True})
    (expected,) = exact(network.example_inputs)
    (actual,) = run_compiled(compiled, list(network.example_inputs))
    np.testing.assert_allclose(expected, actual, rtol=1e-5, atol=1e-5)


def test_what_others_read_stays_as_it_is(tmp_path: Path) -> None:
    from tunefleet.compiler.frontends.onnx_few_bits import widen

    network = onnx.load(_network(tmp_path / "network.onnx", onnx.TensorProto.INT4))
    network.graph.output.append(onnx.ValueInfoProto(name="q"))
    widen(network.graph, network.graph.node, tmp_path)
    kinds = {tensor.name: tensor.data_type for tensor in network.graph.initializer}
    assert kinds["q"] == onnx.TensorProto.INT4
    assert kinds["zero"] == onnx.TensorProto.INT8


@pytest.mark.parametrize("axis", [0, 1])
def test_blocks_of_which_the_last_is_shorter(axis: int) -> None:
    numbers = np.arange(30).reshape(5, 6).astype("int8")
    shape = [2, 6] if axis == 0 else [5, 2]
    scales = np.abs(random(*shape)) + np.float32(0.1)
    points = np.full(shape, 2, "int8")
    size = 3 if axis == 0 else 4
    inputs = [numbers, scales, points]
    check("DequantizeLinear", inputs, constants={0, 1, 2}, axis=axis, block_size=size)
