"""Files whose weights have four bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.compiler.onnx_nodes import check, expected, random

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


@pytest.mark.parametrize("width", [32, 24])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_a_table_of_few_bits(bits: int, zeros: bool, width: int) -> None:
    drawn = np.random.default_rng(width)
    table = drawn.integers(0, 256, (6, width * bits // 8)).astype("uint8")
    scales = drawn.random((6, 2)).astype("float32") + np.float32(0.1)
    points = drawn.integers(0, 256, (6, 2 * bits // 8)).astype("uint8") if zeros else None
    places = np.array([[0, 5], [2, -1]])
    inputs = [table, places, scales, *([points] if zeros else [])]
    check(
        "GatherBlockQuantized", inputs, domain="com.microsoft", constants={0, 2, 3},
        bits=bits, block_size=16,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
@pytest.mark.parametrize("zeros", [False, True])
def test_a_table_of_four_bits_becomes_bytes(zeros: bool, kind: str) -> None:
    from tunefleet.compiler.frontends.onnx_few_bits import pack

    drawn = np.random.default_rng(0)
    numbers = drawn.integers(*((-8, 8) if kind == "INT4" else (0, 16)), (5, 34))
    scales = drawn.random((5, 3)).astype("float32")
    tensors = [helper.make_tensor("t", getattr(onnx.TensorProto, kind), (5, 34), numbers.ravel())]
    if zeros:
        of_type = helper.make_tensor("z", tensors[0].data_type, (5, 3), [3] * 15)
        tensors.append(of_type)
    node = helper.make_node(
        "GatherBlockQuantized", ["t", "x", "s", *(["z"] if zeros else [])], ["y"],
        domain="com.microsoft", block_size=16,
    )  # fmt: skip
    x = helper.make_tensor_value_info("x", onnx.TensorProto.INT64, [2])
    graph = helper.make_graph(
        [node], "graph", [x], [onnx.ValueInfoProto(name="y")],
        [*tensors, numpy_helper.from_array(scales, "s")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    network = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    places = {"x": np.array([4, 1])}
    (before,) = expected(network, places)
    pack(network.graph, list(network.graph.node), Path())
    assert not {tensor.name for tensor in network.graph.initializer} & {"t"}
    (after,) = expected(network, places)
    np.testing.assert_array_equal(after, before)


def test_a_table_that_is_read_with_two_zero_points_is_two() -> None:
    from tunefleet.compiler.frontends.onnx_few_bits import pack

    kind = onnx.TensorProto.INT4
    tensors = [helper.make_tensor("t", kind, (2, 16), np.arange(32) % 8)]
    tensors += [helper.make_tensor(f"z{point}", kind, (2, 1), [point] * 2) for point in (1, 5)]
    tensors.append(numpy_helper.from_array(np.ones((2, 1), "float32"), "s"))
    nodes = [
        helper.make_node(
            "GatherBlockQuantized", ["t", "x", "s", f"z{point}"], [f"y{point}"],
            domain="com.microsoft", block_size=16,
        )
        for point in (1, 5)
    ]  # fmt: skip
    x = helper.make_tensor_value_info("x", onnx.TensorProto.INT64, [1])
    outputs = [onnx.ValueInfoProto(name=f"y{point}") for point in (1, 5)]
    graph = helper.make_graph(nodes, "graph", [x], outputs, tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    network = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    before = expected(network, {"x": np.array([1])})
    pack(network.graph, list(network.graph.node), Path())
    after = expected(network, {"x": np.array([1])})
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("quant_type", [0, 1])
def test_products_by_bitsandbytes(quant_type: int) -> None:
    drawn = np.random.default_rng(quant_type)
    packed = drawn.integers(0, 256, 32 * 24 // 2).astype("uint8")
    scales = drawn.random(32 * 24 // 16).astype("float32")
    check(
        "MatMulBnb4", [random(3, 32), packed, scales], domain="com.microsoft",
        constants={1, 2}, K=32, N=24, block_size=16, quant_type=quant_type,
    )  # fmt: skip
