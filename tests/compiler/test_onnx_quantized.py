"""Operators on quantized tensors give the very integers of ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from tests.compiler.onnx_nodes import check, random

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
    check(operator, inputs, rtol=0, atol=0, **form)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [True, False])
def test_convolution(dtype, channels):
    scales = _scale(0.01, 0.02, 0.005, 0.03) if channels else _scale(0.01)
    inputs = [_bytes(1, 3, 8, 8, dtype=dtype), _scale(0.02), _zero(7, dtype)]
    inputs += [_bytes(4, 3, 3, 3, dtype="int8"), scales, np.zeros(scales.shape, "int8")]
    inputs += [_scale(0.4), _zero(3, dtype), np.array([100, -50, 0, 9], "int32")]
    _exact("QLinearConv", inputs, constants=range(1, 9), pads=[1, 1, 1, 1], strides=[2, 2])


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_matmul(dtype):
    inputs = [_bytes(2, 5, 8, dtype=dtype), _scale(0.02), _zero(7, dtype)]
    inputs += [_bytes(8, 4, dtype="int8"), _scale(0.01), _zero(0, "int8")]
    inputs += [_scale(0.3), _zero(3, dtype)]
    _exact("QLinearMatMul", inputs, constants=range(1, 8))


def test_convolution_into_integers():
    inputs = [_bytes(1, 3, 8, 8), _bytes(4, 3, 3, 3), _zero(7), _zero(3)]
    _exact("ConvInteger", inputs, constants={1, 2, 3})


@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
def test_elementwise(operator):
    inputs = [_bytes(2, 40), _scale(0.0213), _zero(7)]
    inputs += [_bytes(2, 40, seed=1), _scale(0.0337), _zero(9), _scale(0.0617), _zero(100)]
    _exact(operator, inputs, constants={1, 2, 4, 5, 6, 7}, domain=MS)


@pytest.mark.parametrize("operator", ["QLinearLeakyRelu", "QLinearSigmoid"])
def test_activation(operator):
    inputs = [_bytes(2, 40), _scale(0.05), _zero(120), _scale(0.03), _zero(5)]
    _exact(operator, inputs, constants={1, 2, 3, 4}, domain=MS)


def test_concatenation():
    inputs = [_scale(0.04), _zero(3), _bytes(2, 4), _scale(0.02), _zero(7)]
    inputs += [_bytes(2, 3, seed=1), _scale(0.05), _zero(9)]
    _exact("QLinearConcat", inputs, constants={0, 1, 3, 4, 6, 7}, domain=MS, axis=1)


def test_global_average():
    inputs = [_bytes(1, 4, 5, 5), _scale(0.02), _zero(7), _scale(0.01), _zero(3)]
    _exact("QLinearGlobalAveragePool", inputs, constants={1, 2, 3, 4}, domain=MS)


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
