"""Operators on quantized tensors give the very integers of ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.onnx_nodes import check, convert, expected, feed, model, prepared, random

pytestmark = pytest.mark.tvm

MS = "com.microsoft"


def _bytes(*shape, dtype="uint8", seed=0):
    limits = np.iinfo(dtype)
    values = np.random.default_rng(seed).integers(limits.min, limits.max, shape, endpoint=True)
    return values.astype(dtype)


def _scale(*values):
    return np.array(values if len(values) > 1 else values[0], "float32")


def _zero(value, dtype="uint8"):
    return np.array(value, dtype)


def _exact(operator, inputs, **form):
    check(operator, inputs, rtol=0, atol=0, by=prepared, **form)


def _all_pairs(dtype):
    """Two tensors that hold every pair of 8-bit integers."""
    limits = np.iinfo(dtype)
    every = np.arange(limits.min, limits.max + 1).astype(dtype)
    return [side.copy() for side in np.meshgrid(every, every)]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [True, False])
def test_convolution(dtype, channels):
    scales = _scale(0.01, 0.02, 0.005, 0.03) if channels else _scale(0.01)
    inputs = [_bytes(1, 3, 8, 8, dtype=dtype), _scale(0.02), _zero(7, dtype)]
    inputs += [_bytes(4, 3, 3, 3, dtype="int8"), scales, np.zeros(scales.shape, "int8")]
    inputs += [_scale(0.4), _zero(3, dtype), np.array([100, -50, 0, 9], "int32")]
    _exact("QLinearConv", inputs, constants=range(1, 9), pads=[1, 1, 1, 1], strides=[2, 2])


@pytest.mark.parametrize("zero", [2, 3])
def test_sums_between_two_integers(zero):
    inputs = [np.arange(256, dtype="uint8").reshape(1, 1, 16, 16), _scale(0.5), _zero(1)]
    inputs += [np.ones((1, 1, 1, 1), "int8"), _scale(0.5), _zero(0, "int8"), _scale(0.5)]
    _exact("QLinearConv", [*inputs, _zero(zero)], constants=range(1, 8))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_matmul(dtype):
    inputs = [_bytes(2, 5, 8, dtype=dtype), _scale(0.02), _zero(7, dtype)]
    inputs += [_bytes(8, 4, dtype="int8"), _scale(0.01), _zero(0, "int8")]
    inputs += [_scale(0.3), _zero(3, dtype)]
    # ONNX Runtime's sums of version 21 may saturate on a processor without VNNI.
    _exact("QLinearMatMul", inputs, constants=range(1, 8), opset=10)


def test_convolution_into_integers():
    inputs = [_bytes(1, 3, 8, 8), _bytes(4, 3, 3, 3), _zero(7), _zero(3)]
    _exact("ConvInteger", inputs, constants={1, 2, 3})


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("scales", "zeros"),
    [
        ((0.02, 0.01, 0.04), (7, 9, 100)),  # between two integers exactly
        ((0.1, 0.7, 0.9), (7, 9, 100)),
        # Another order of operations, or another rounding between them, shows here.
        ((0.07752637, 0.062096935, 0.09636868), (36, 28, 38)),
        ((0.1, 2.6793887e36, 2.6793887e36), (7, 0, 0)),  # a mask of the least float32
    ],
)
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
def test_every_pair_of_integers(operator, scales, zeros, dtype):
    left, right = _all_pairs(dtype)
    a, b, c = map(_scale, scales)
    x, y, z = (_zero(zero, dtype) for zero in zeros)
    inputs = [left, a, x, right, b, y, c, z]
    _exact(operator, inputs, constants={1, 2, 4, 5, 6, 7}, domain=MS)


@pytest.mark.parametrize("zero", [0, 128, 117])
@pytest.mark.parametrize("pads", [[0] * 4, [1, 0, 2, 1]])
@pytest.mark.parametrize("known", [True, False])
def test_integers_at_borders(known, pads, zero):
    inputs = [_bytes(1, 3, 8, 8), _bytes(4, 3, 3, 3), _zero(7), _zero(zero)]
    _exact("ConvInteger", inputs, constants={1, 2, 3} if known else {1, 3}, pads=pads)


@pytest.mark.parametrize("zero", [0, 117])
def test_depthwise_convolution_into_integers(zero):
    inputs = [_bytes(1, 4, 8, 8), _bytes(4, 1, 3, 3), _zero(7), _zero(zero)]
    _exact("ConvInteger", inputs, constants={1, 2, 3}, pads=[1] * 4, group=4)


@pytest.mark.parametrize("zeros", [117, [1, 128, 250, 0]])
@pytest.mark.parametrize("known", [True, False])
def test_product_into_integers(known, zeros):
    inputs = [_bytes(2, 5, 8), _bytes(8, 4), _zero(7), _zero(zeros)]
    _exact("MatMulInteger", inputs, constants={1, 2, 3} if known else {1, 3})


def test_product_of_two_activations():
    inputs = [_bytes(2, 5, 8), _bytes(2, 8, 5, seed=1), _zero(7), _zero(9)]
    _exact("MatMulInteger", inputs, constants={2, 3})


@pytest.mark.parametrize("values", [random(3, 20), np.zeros((3, 20), "float32")])
def test_quantization_by_values(values):
    _exact("DynamicQuantizeLinear", [values], outputs=("y", "scale", "zero"))


@pytest.mark.parametrize("zeros", [None, 117])
def test_product_quantized_by_values(zeros):
    weight = _bytes(8, 4) if zeros else _bytes(8, 4, dtype="int8")
    inputs = [random(5, 8), weight, _scale(0.02), None if zeros is None else _zero(zeros)]
    inputs = [*inputs, random(4)]
    check("DynamicQuantizeMatMul", inputs, constants={1, 2, 3, 4}, domain=MS, by=prepared)


def test_product_into_floats():
    inputs = [_bytes(5, 8), _bytes(8, 4), _scale(0.02), _scale(0.01, 0.02, 0.03, 0.04)]
    inputs += [_zero(7), _zero([1, 2, 3, 4]), random(4)]
    check("MatMulIntegerToFloat", inputs, constants={1, 3, 5, 6}, domain=MS, by=prepared)


@pytest.mark.parametrize("operator", ["QLinearLeakyRelu", "QLinearSigmoid"])
def test_activation(operator):
    inputs = [_bytes(2, 40), _scale(0.05), _zero(120), _scale(0.03), _zero(5)]
    _exact(operator, inputs, constants={1, 2, 3, 4}, domain=MS)


def test_concatenation():
    inputs = [_scale(0.04), _zero(3), _bytes(2, 4), _scale(0.02), _zero(7)]
    inputs += [_bytes(2, 3, seed=1), _scale(0.05), _zero(9)]
    _exact("QLinearConcat", inputs, constants={0, 1, 3, 4, 6, 7}, domain=MS, axis=1)


@pytest.mark.parametrize("scales", [(0.02, 0.01), (0.5, 0.25), (0.25, 0.5)])
def test_global_average(scales):
    before, after = map(_scale, scales)
    inputs = [_bytes(1, 400, 2, 4), before, _zero(7), after, _zero(3)]
    _exact("QLinearGlobalAveragePool", inputs, constants={1, 2, 3, 4}, domain=MS)


def test_average():
    inputs = [_bytes(1, 4, 6, 6), _scale(0.02), _zero(7), _scale(0.013), _zero(3)]
    form = {"kernel_shape": [2, 2], "strides": [2, 2]}
    _exact("QLinearAveragePool", inputs, constants={1, 2, 3, 4}, domain=MS, **form)


def test_softmax():
    """Of exponentials that ONNX Runtime keeps in a table: the last integer may be another."""
    import onnx

    inputs = [_bytes(3, 20), _scale(0.05), _zero(120), _scale(1 / 256), _zero(0)]
    network = model("QLinearSoftmax", inputs, constants={1, 2, 3, 4}, domain=MS, axis=1)
    network.graph.node[0].attribute.append(onnx.helper.make_attribute("opset", 13))
    arrays = feed(network, inputs)
    ours, theirs = prepared(network, arrays)[0], expected(network, arrays)[0]
    assert np.abs(ours.astype(int) - theirs).max() <= 1
    assert theirs.max() > 20


def test_choice():
    condition = np.arange(40).reshape(2, 20) % 3 == 0
    inputs = [condition, _bytes(2, 20), _scale(0.0213), _zero(7)]
    inputs += [_bytes(2, 20, seed=1), _scale(0.0337), _zero(9), _scale(0.0337), _zero(9)]
    _exact("QLinearWhere", inputs, constants={2, 3, 5, 6, 7, 8}, domain=MS)


@pytest.mark.parametrize("floats", [True, False])
def test_general_product(floats):
    inputs = [_bytes(4, 8), _scale(0.02), _zero(7)]
    inputs += [_bytes(6, 8, dtype="int8"), _scale(*range(1, 7)) / 64, np.zeros(6, "int8")]
    inputs += [np.arange(-300, 300, 100, dtype="int32")]
    inputs += [] if floats else [_scale(0.3), _zero(3)]
    form = {"constants": range(1, 9), "domain": MS, "alpha": 1.0, "transB": 1}
    _exact("QGemm", inputs, **form)


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("width", [64, 80])
def test_weights_of_four_bits(zeros, width):
    blocks, rows = -(-width // 32), 8
    inputs = [random(3, width), _bytes(rows, blocks, 16)]
    inputs += [np.abs(random(rows * blocks)) + 0.1]
    inputs += [_bytes(rows * -(-blocks // 2))] if zeros else []
    check(
        "MatMulNBits",
        inputs,
        domain=MS,
        constants={1, 2, 3},
        K=width,
        N=rows,
        bits=4,
        block_size=32,
        atol=1e-3,
    )


def _by_text(body: str, constants: dict[str, np.ndarray], result: str) -> Any:
    """A network of `x` (2, 5, 8) and constants."""
    import onnx

    text = (
        f'<ir_version: 8, opset_import: ["": 17]> net (float[2,5,8] x) => ({result}) {{ {body} }}'
    )
    network = onnx.parser.parse_model(text)
    network.graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name) for name, value in constants.items()
    )
    return network


@pytest.mark.parametrize(
    ("moves", "result"),
    [
        ("y = Reshape(p, shape)", "float[10,4] y"),
        ("y = Transpose <perm = [1, 2, 0]> (p)", "float[5,4,2] y"),
        ("y = Unsqueeze(p, one)", "float[2,1,5,4] y"),
        ("r = Reshape(p, heads) t = Transpose <perm = [0, 2, 1, 3]> (r) y = Softmax(t)",
         "float[2,1,5,4] y"),
    ],
)  # fmt: skip
def test_sums_of_a_product_by_columns_are_moved(moves, result):
    """A product of three axes with weights of two, whose columns have scales of their own."""
    body = f"""
        q = QuantizeLinear(x, sx, zx)
        d = DequantizeLinear(q, sx, zx)
        w = DequantizeLinear <axis = 1> (qw, sw, zw)
        p = MatMul(d, w)
        {moves}
    """
    constants = {
        "sx": _scale(0.03), "zx": _zero(117), "qw": _bytes(8, 4, dtype="int8"),
        "sw": _scale(0.01, 0.02, 0.005, 0.03), "zw": np.zeros(4, "int8"),
        "shape": np.array([10, 4]), "heads": np.array([2, 5, 1, 4]), "one": np.array([1]),
    }  # fmt: skip
    network, arrays = _by_text(body, constants, result), {"x": random(2, 5, 8)}
    (ours,), (theirs,) = prepared(network, arrays), expected(network, arrays)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_products_that_differ_by_zero_points_are_one_task():
    """As those of an attention network's layers do: the same programs, found once."""
    from tunefleet.compiler.frontends.relax_ import tidy
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.graph.tasks import extract_tasks
    from tunefleet.compiler.toolchain.host import native_target, to_tvm

    def layer(given: str, number: int) -> str:
        a, b, y = (f"{name}{number}" for name in "aby")
        return f"""
            q{a} = QuantizeLinear({given}, s, z{a}) d{a} = DequantizeLinear(q{a}, s, z{a})
            t{a} = Transpose <perm = [0, 2, 1]> ({given})
            q{b} = QuantizeLinear(t{a}, s, z{b}) d{b} = DequantizeLinear(q{b}, s, z{b})
            m{y} = MatMul(d{a}, d{b})
            {y} = MatMul(m{y}, w)
        """

    constants = {"s": _scale(0.03), "w": random(5, 8, scale=0.3)}
    for number, (a, b) in enumerate([(117, 126), (90, 131)]):
        constants |= {f"za{number}": _zero(a), f"zb{number}": _zero(b)}
    body = layer("x", 0) + layer("y0", 1)
    network, arrays = _by_text(body, constants, "float[2,5,8] y1"), {"x": random(2, 5, 8)}
    (ours,), (theirs,) = prepared(network, arrays), expected(network, arrays)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    target = native_target(1)
    tasks = extract_tasks(prepare(tidy(convert(network)), to_tvm(target)), target)
    in_bytes = [t for t in tasks if t.task.precision == "int8" and "matmul" in t.task.name]
    assert [t.weight for t in in_bytes] == [2]


def _exact_network(nodes, shape, tensors):
    """A network from x, 2 x 3 bytes, to y, and constants by name."""
    import onnx
    from onnx import helper, numpy_helper

    x = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [2, 3])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)
    constants = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    made = [helper.make_node(*node, **attrs) for node, attrs in nodes]
    graph = helper.make_graph(made, "graph", [x], [y], constants)
    opsets = [helper.make_opsetid("", 21)]
    network = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    arrays = {"x": _bytes(2, 3)}
    np.testing.assert_array_equal(expected(network, arrays), prepared(network, arrays))


def test_a_border_of_a_number_that_was_quantised():
    nodes: list[Any] = [
        (("DequantizeLinear", ["x", "scale", "zero"], ["real"]), {}),
        (("DequantizeLinear", ["number", "scale", "zero"], ["border"]), {}),
        (("Pad", ["real", "pads", "border"], ["y"]), {}),
    ]
    tensors = {"scale": _scale(0.5), "zero": _zero(1), "number": _zero(4)}
    _exact_network(nodes, [2, 6], tensors | {"pads": np.array([0, 1, 0, 2])})
