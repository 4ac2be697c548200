"""Convolutions along one axis are convolutions of images, and compute what they did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper, parser
from tests.compiler import onnx_nodes

pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore")]

_HEAD = '<ir_version: 9, opset_import: ["":18]>\n'

# What stands before and behind a convolution; x and y are [2,4,12], or as the graph says.
_BETWEEN = {
    "alone": "g (float[2,4,12] x) => (y) { y = Conv<pads = [1,1]>(x, w, b) }",
    "a stride, a dilation and groups": """g (float[2,4,12] x) => (y)
        { t = Conv<pads = [2,0], dilations = [2], strides = [2], group = 4>(x, d)
        y = Conv(t, p) }""",
    "a bias and a function": """g (float[2,4,12] x) => (y)
        { t = Conv<pads = [1,1]>(x, w, b) r = LeakyRelu(t) s = Clip(r, lo, hi) u = Tanh(s)
        y = Conv(u, p) }""",
    "a normalisation": """g (float[2,4,12] x) => (y)
        { t = Conv<pads = [1,1]>(x, w) y = BatchNormalization(t, a, b, b, a) }""",
    "a sum with what was before": """g (float[2,4,12] x) => (y)
        { t = Conv<pads = [1,1]>(x, w) r = Add(x, t) s = Mul(r, row) u = Sub(s, map)
        v = Div(u, one) y = Conv(v, p) }""",
    "gates": """g (float[2,4,12] x) => (y)
        { t = Conv<pads = [1,1]>(x, w) l, r = Split<axis = 1, num_outputs = 2>(t) s = Sigmoid(r)
        m = Mul(l, s) c = Concat<axis = -2>(m, x, l) k = Constant<value_ints = [4]>()
        i, j = Split<axis = 1>(c, halves) y = Conv(i, p) }""",
    "what is cut off after it was padded": """g (float[2,4,12] x) => (y)
        { t = Conv<pads = [2,2]>(x, w) s = Slice(t, zero, less, last, step) y = Pad(s, around) }""",
    "pools": """g (float[2,4,12] x) => (y)
        { t = Conv<pads = [1,1]>(x, w) s = MaxPool<kernel_shape = [3], strides = [2]>(t)
        y = AveragePool<kernel_shape = [2], pads = [1,0]>(s) }""",
    "channels that are weighed": """g (float[2,4,12] x) => (y, z)
        { t = Conv<pads = [1,1]>(x, w) m = GlobalAveragePool(t) q = Conv(m, p) s = Sigmoid(q)
        y = Mul(t, s) z = ReduceMean<keepdims = 0>(t, last) }""",
    "a norm of the channels": """g (float[2,12,4] x) => (y)
        { r = Transpose<perm = [0,2,1]>(x) t = Conv<pads = [1,1]>(r, w)
        s = Transpose<perm = [0,2,1]>(t) y = LayerNormalization(s, a) }""",
    "transposed": """g (float[2,4,12] x) => (y)
        { t = ConvTranspose<strides = [2], pads = [1,1], output_padding = [1]>(x, w, b)
        y = Relu(t) }""",
    "weights that are computed": """g (float[2,4,12] x, float[4,4,3] v) => (y)
        { y = Conv(x, v) }""",
    "an output that is read again": """g (float[2,4,12] x) => (t, y)
        { t = Conv<pads = [1,1]>(x, w) s = Softmax<axis = 2>(t) y = Conv(s, p) }""",
    "an axis that was added": """g (float[2,12,4] x) => (y)
        { u = Unsqueeze(x, second) v = Transpose<perm = [0,3,1,2]>(u)
        t = Conv<pads = [0,1,0,1]>(v, image) i = Transpose<perm = [0,2,3,1]>(t)
        s = Squeeze(i, second) q = Add(s, bias) r = Relu(q) j = Unsqueeze(r, second)
        k = Transpose<perm = [0,3,1,2]>(j) y = Conv(k, image) }""",
}

_NO_IMAGE = """g (float[2,4,12] x, float[4,12] by) => (y)
    { l, r = Split<axis = 1, num_outputs = 2>(x) c = Concat<axis = 1>(r, l)
    n = BatchNormalization(c, a, b, b, a) s = Slice(n, zero, less, last, step)
    q = Pad(s, around) m = MaxPool<kernel_shape = [3], strides = [2]>(q) e = ReduceMean(m, last)
    h = QuantizeLinear(x, scale, point) f = DequantizeLinear(h, scale, point)
    t = Conv<pads = [1,1]>(f, w) u = Mul(t, by) v = Add(u, e) y = Conv(v, p) }"""


def _weights() -> dict[str, np.ndarray]:
    random = onnx_nodes.random
    return {
        "w": random(4, 4, 3, seed=1),
        "p": random(4, 4, 1, seed=2),
        "d": random(4, 1, 3, seed=3),
        "image": random(4, 4, 1, 3, seed=4),
        "a": np.abs(random(4, seed=5)) + 0.5,
        "b": random(4, seed=6),
        "bias": random(1, 1, 4, seed=7),
        "row": random(12, seed=8),
        "map": random(4, 12, seed=9),
        "one": np.array([[[2.0]]], "float32"),
        "lo": np.array(-0.5, "float32"),
        "hi": np.array(0.7, "float32"),
        "zero": np.array([1], "int64"),
        "less": np.array([-2], "int64"),
        "last": np.array([-1], "int64"),
        "step": np.array([2], "int64"),
        "second": np.array([1], "int64"),
        "halves": np.array([4, 4], "int64"),
        "scale": np.array(0.02, "float32"),
        "point": np.array(120, "uint8"),
        "integers": np.random.default_rng(10).integers(-127, 128, (4, 4, 3)).astype("int8"),
        "scales": np.array([0.01, 0.02, 0.005, 0.01], "float32"),
        "points": np.array([0, 0, 0, 0], "int8"),
        "around": np.array([0, 0, 1, 0, 0, 2], "int64"),
    }


def _network(graph: str) -> Any:
    network = parser.parse_model(_HEAD + graph)
    read = {name for node in network.graph.node for name in node.input}
    for name, value in _weights().items():
        if name in read:
            network.graph.initializer.append(numpy_helper.from_array(value, name))
    return network


def _inputs(network: Any) -> dict[str, np.ndarray]:
    return {
        each.name: onnx_nodes.random(*(d.dim_value for d in each.type.tensor_type.shape.dim))
        for each in network.graph.input
    }


def _calls(mod: Any) -> list[Any]:
    import tvm

    values = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    return [each for each in values if isinstance(getattr(each, "op", None), tvm.ir.Op)]


def _rewritten(network: Any) -> list[str]:
    from tunefleet.compiler.frontends.relax_ import tidy
    from tunefleet.compiler.graph.one_dimension import with_images

    mod = with_images(tidy(onnx_nodes.convert(network)))
    return [str(call.op.name) for call in _calls(mod)]


@pytest.mark.parametrize("graph", _BETWEEN.values(), ids=_BETWEEN)
def test_they_compute_the_same(graph: str) -> None:
    network = _network(graph)
    assert not [name for name in _rewritten(network) if "1d" in name]
    _check_agrees(network)


def test_what_is_no_image_before_them_stays() -> None:
    network = _network(_NO_IMAGE)
    assert [n for n in _rewritten(network) if "1d" in n] == ["relax.nn.max_pool1d"]
    _check_agrees(network)


def _check_agrees(network: Any) -> None:
    arrays = _inputs(network)
    ours, theirs = onnx_nodes.prepared(network, arrays), onnx_nodes.expected(network, arrays)
    assert [each.shape for each in ours] == [each.shape for each in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [
    "a bias and a function", "a sum with what was before", "gates", "an axis that was added",
])  # fmt: skip
def test_nothing_stands_between_two_of_them(name: str) -> None:
    operators = _rewritten(_network(_BETWEEN[name]))
    first, last = (
        [index for index, each in enumerate(operators) if each == "relax.nn.conv2d"][at]
        for at in (0, -1)
    )
    assert first == last or "relax.squeeze" not in operators[first:last]


_INTEGERS = {
    "quantised around": """g (float[2,4,12] x) => (y)
        { q = QuantizeLinear(x, scale, point) r = DequantizeLinear(q, scale, point)
        v = DequantizeLinear<axis = 0>(integers, scales, points) t = Conv<pads = [1,1]>(r, v, b)
        u = Relu(t) i = QuantizeLinear(u, scale, point) y = DequantizeLinear(i, scale, point) }""",
    "quantised itself": """g (float[2,4,12] x) => (y)
        { q = QuantizeLinear(x, scale, point) i = QLinearConv<pads = [1,1]>
        (q, scale, point, integers, scales, points, scale, point)
        y = DequantizeLinear(i, scale, point) }""",
    "quantised as it runs": """g (float[2,4,12] x) => (y)
        { q, s, z = DynamicQuantizeLinear(x) i = ConvInteger<pads = [1,1]>(q, integers, z)
        f = Cast<to = 1>(i) y = Mul(f, s) }""",
}


@pytest.mark.parametrize("graph", _INTEGERS.values(), ids=_INTEGERS)
def test_products_of_integers_are_found_in_them(graph: str) -> None:
    from tunefleet.compiler.frontends.relax_ import tidy
    from tunefleet.compiler.graph.one_dimension import with_images
    from tunefleet.compiler.graph.quantized import integer_programs

    network = _network(graph)
    arrays = _inputs(network)
    mod = integer_programs(with_images(tidy(onnx_nodes.convert(network))), unsigned=True)
    sums = [call for call in _calls(mod) if str(call.op.name) == "relax.nn.conv2d"]
    assert [[str(arg.ty.dtype) for arg in call.args] for call in sums] == [["uint8", "int8"]]
    ours, theirs = onnx_nodes.prepared(network, arrays), onnx_nodes.expected(network, arrays)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-5)
