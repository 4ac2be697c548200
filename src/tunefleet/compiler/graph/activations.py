"""Activation functions of one number, as TIR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
tirx = tvm.tirx


def _const(x: Any, value: float) -> Any:
    return tirx.const(value, str(x.ty))


def _above(x: Any, least: float) -> Any:
    return tirx.max(x, _const(x, least))


def _below(x: Any, most: float) -> Any:
    return tirx.min(x, _const(x, most))


def _hard_sigmoid(x: Any, alpha: float, beta: float) -> Any:
    return _below(_above(x * _const(x, alpha) + _const(x, beta), 0.0), 1.0)


def _elu(x: Any, alpha: float, beta: float) -> Any:
    below = tirx.exp(_below(x, 0.0)) - _const(x, 1.0)
    return _above(x, 0.0) + below * _const(x, alpha)


def _softplus(x: Any, alpha: float, beta: float) -> Any:
    """log(exp(x) + 1), without overflow."""
    away = tirx.exp(_const(x, 0.0) - tirx.abs(x))
    return _above(x, 0.0) + tirx.log(away + _const(x, 1.0))


#: Name -> (function of x, alpha, beta; default alpha and beta, None where it takes none).
_FUNCTIONS: dict[str, tuple[Callable[..., Any], float | None, float | None]] = {
    "affine": (lambda x, a, b: x * _const(x, a) + _const(x, b), 1.0, 0.0),
    "elu": (_elu, 1.0, None),
    "hardsigmoid": (_hard_sigmoid, 0.2, 0.5),
    "leakyrelu": (lambda x, a, b: _above(x, 0.0) + _below(x, 0.0) * _const(x, a), 0.01, None),
    "relu": (lambda x, a, b: _above(x, 0.0), None, None),
    "scaledtanh": (lambda x, a, b: tirx.tanh(x * _const(x, b)) * _const(x, a), 1.0, 1.0),
    "sigmoid": (lambda x, a, b: tirx.sigmoid(x), None, None),
    "softplus": (_softplus, None, None),
    "softsign": (lambda x, a, b: x / (tirx.abs(x) + _const(x, 1.0)), None, None),
    "tanh": (lambda x, a, b: tirx.tanh(x), None, None),
    "thresholdedrelu": (
        lambda x, a, b: tirx.Select(x > _const(x, a), x, _const(x, 0.0)),
        1.0,
        None,
    ),
}


@dataclass(frozen=True, slots=True)
class Activation:
    """A function by its name in ONNX, in lower case, with its parameters; None for its own."""

    name: str
    alpha: float | None = None
    beta: float | None = None

    def __post_init__(self) -> None:
        if self.name not in _FUNCTIONS:
            raise NotImplementedError(f"the activation {self.name}")

    @property
    def parameters(self) -> tuple[bool, bool]:
        """Whether it takes alpha, and beta."""
        _, alpha, beta = _FUNCTIONS[self.name]
        return alpha is not None, beta is not None

    def __call__(self, x: Any) -> Any:
        """The function of `x`, which stands in it several times: something that was computed."""
        function, alpha, beta = _FUNCTIONS[self.name]
        alpha = alpha if self.alpha is None else self.alpha
        return function(x, alpha, beta if self.beta is None else self.beta)
