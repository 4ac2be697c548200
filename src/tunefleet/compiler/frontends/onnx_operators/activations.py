"""Activation functions, by themselves and as attributes of other operators.

Each takes an expression whose type is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tunefleet.compiler.frontends.onnx_operators.node import Node, Rule, constant, dtype_of, relax

op = relax.op


def _scalar(x: Any, value: float) -> Any:
    return constant(value, dtype_of(x))


def affine(x: Any, scale: float, shift: float) -> Any:
    """scale * x + shift, without the parts that change nothing."""
    scaled = x if scale == 1.0 else x * _scalar(x, scale)
    return scaled if shift == 0.0 else scaled + _scalar(x, shift)


def hard_sigmoid(x: Any, alpha: float, beta: float) -> Any:
    """alpha * x + beta between 0 and 1."""
    line = op.add(op.multiply(x, _scalar(x, alpha)), _scalar(x, beta))
    return op.minimum(op.maximum(line, _scalar(x, 0.0)), _scalar(x, 1.0))


def elu(x: Any, alpha: float) -> Any:
    """x where positive, else alpha * (exp(x) - 1)."""
    below = op.exp(op.minimum(x, _scalar(x, 0.0))) - _scalar(x, 1.0)
    return op.maximum(x, _scalar(x, 0.0)) + below * _scalar(x, alpha)


def leaky_relu(x: Any, alpha: float) -> Any:
    """x where positive, else alpha * x."""
    return op.where(op.less(x, _scalar(x, 0.0)), x * _scalar(x, alpha), x)


def thresholded_relu(x: Any, alpha: float) -> Any:
    """x where it is above alpha, else 0."""
    return op.where(op.greater(x, _scalar(x, alpha)), x, _scalar(x, 0.0))


def softplus(x: Any) -> Any:
    """log(exp(x) + 1), without overflow."""
    away = op.exp(op.negative(op.abs(x)))
    return op.maximum(x, _scalar(x, 0.0)) + op.log(away + _scalar(x, 1.0))


def softsign(x: Any) -> Any:
    """x / (1 + |x|)."""
    return x / (op.abs(x) + _scalar(x, 1.0))


def gelu(x: Any) -> Any:
    """x times the normal distribution's integral up to x."""
    integral = op.erf(x * _scalar(x, math.sqrt(0.5))) * _scalar(x, 0.5) + _scalar(x, 0.5)
    return x * integral


def gelu_tanh(x: Any) -> Any:
    """GELU by its approximation with a hyperbolic tangent."""
    cubed = x * x * x * _scalar(x, 0.044715)
    inner = (x + cubed) * _scalar(x, math.sqrt(2.0 / math.pi))
    return x * (op.tanh(inner) * _scalar(x, 0.5) + _scalar(x, 0.5))


def scaled_tanh(x: Any, alpha: float, beta: float) -> Any:
    """alpha * tanh(beta * x)."""
    return op.tanh(x * _scalar(x, beta)) * _scalar(x, alpha)


def swish(x: Any, alpha: float) -> Any:
    """x * sigmoid(alpha * x)."""
    return x * op.sigmoid(affine(x, alpha, 0.0))


#: Name -> (function of x, alpha, beta; default alpha and beta, None where it takes none).
ACTIVATIONS: dict[str, tuple[Callable[..., Any], float | None, float | None]] = {
    "affine": (lambda x, alpha, beta: affine(x, alpha, beta), 1.0, 0.0),
    "elu": (lambda x, alpha, beta: elu(x, alpha), 1.0, None),
    "hardsigmoid": (lambda x, alpha, beta: hard_sigmoid(x, alpha, beta), 0.2, 0.5),
    "leakyrelu": (lambda x, alpha, beta: leaky_relu(x, alpha), 0.01, None),
    "relu": (lambda x, alpha, beta: op.nn.relu(x), None, None),
    "scaledtanh": (lambda x, alpha, beta: scaled_tanh(x, alpha, beta), 1.0, 1.0),
    "sigmoid": (lambda x, alpha, beta: op.sigmoid(x), None, None),
    "softplus": (lambda x, alpha, beta: softplus(x), None, None),
    "softsign": (lambda x, alpha, beta: softsign(x), None, None),
    "tanh": (lambda x, alpha, beta: op.tanh(x), None, None),
    "thresholdedrelu": (lambda x, alpha, beta: thresholded_relu(x, alpha), 1.0, None),
}


def _celu(node: Node) -> Any:
    x, alpha = node.inputs[0], float(node.attrs.get("alpha", 1.0))
    below = op.exp(op.minimum(x, _scalar(x, 0.0)) * _scalar(x, 1.0 / alpha)) - _scalar(x, 1.0)
    return op.maximum(x, _scalar(x, 0.0)) + below * _scalar(x, alpha)


def _gelu(node: Node) -> Any:
    approximate = node.attrs.get("approximate", "none") == "tanh"
    return (gelu_tanh if approximate else gelu)(node.inputs[0])


def _thresholded_relu(node: Node) -> Any:
    """TVM multiplies by whether it is above, which makes NaN of an infinite number below."""
    return thresholded_relu(node.inputs[0], float(node.attrs.get("alpha", 1.0)))


def _biased(node: Node) -> Any:
    x = node.inputs[0]
    return node.emit(x + node.inputs[1]) if node.has(1) else x


def _split_gelu(node: Node) -> Any:
    x = node.emit(node.inputs[0] + node.inputs[1])
    half = node.shape(0)[-1] // 2
    rank = len(node.shape(0))
    left = node.emit(op.strided_slice(x, [rank - 1], [0], [half]))
    right = node.emit(op.strided_slice(x, [rank - 1], [half], [2 * half]))
    return left * gelu(right)


def _quick_gelu(node: Node) -> Any:
    return swish(node.inputs[0], float(node.attrs.get("alpha", 1.702)))


def _swiglu(node: Node) -> Any:
    return swish(node.inputs[0], float(node.attrs.get("alpha", 1.0))) * node.inputs[1]


def _hard_swish(node: Node) -> Any:
    x = node.inputs[0]
    return x * hard_sigmoid(x, 1.0 / 6.0, 0.5)


RULES: dict[tuple[str, str], Rule] = {
    ("", "Celu"): _celu,
    ("", "HardSwish"): _hard_swish,
    ("", "SwiGLU"): _swiglu,
    ("", "Swish"): lambda node: swish(node.inputs[0], float(node.attrs.get("alpha", 1.0))),
    ("", "ThresholdedRelu"): _thresholded_relu,
    ("com.microsoft", "BiasAdd"): lambda node: node.inputs[0] + node.inputs[1] + node.inputs[2],
    ("com.microsoft", "BiasGelu"): lambda node: gelu(_biased(node)),
    ("com.microsoft", "BiasSplitGelu"): _split_gelu,
    ("com.microsoft", "FastGelu"): lambda node: gelu_tanh(_biased(node)),
    ("com.microsoft", "Gelu"): _gelu,
    ("com.microsoft", "QuickGelu"): _quick_gelu,
}
