"""Variances and normalisations of tensors whose mean is far above their deviation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.compiler.onnx_nodes import feed, model, prepared
from tests.compiler.test_graph import build

pytestmark = pytest.mark.tvm

_EPSILON = 1e-5


def _far(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (np.random.default_rng(0).standard_normal(shape) + 1000).astype(dtype)


def _normal(x: np.ndarray, axes: tuple[int, ...], epsilon: float = _EPSILON) -> np.ndarray:
    """In double precision."""
    wide = x.astype("float64")
    variance = wide.var(axes, keepdims=True)
    return (wide - wide.mean(axes, keepdims=True)) / np.sqrt(variance + epsilon)


def _grouped(x: np.ndarray, groups: int) -> np.ndarray:
    rows = x.reshape(len(x), groups, -1)
    return _normal(rows, (2,)).reshape(x.shape)


def _ones(*shape: int) -> Any:
    from tunefleet.compiler.toolchain import load_tvm

    return load_tvm().relax.const(np.ones(shape, "float32"))


def _op(name: str) -> Any:
    from tunefleet.compiler.toolchain import load_tvm

    operators = load_tvm().relax.op
    return getattr(operators if name in ("variance", "std") else operators.nn, name)


_LARGE = (8, 128, 512)
_CASES: dict[str, tuple[tuple[int, ...], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "variance": (_LARGE, lambda x: _op("variance")(x), lambda x: x.astype("float64").var()),
    "variance along an axis": (
        (3, 500, 2),
        lambda x: _op("variance")(x, [1], True),
        lambda x: x.astype("float64").var(1, keepdims=True),
    ),
    "standard deviation": (_LARGE, lambda x: _op("std")(x, [0, 2]), lambda x: x.std((0, 2))),
    "layer normalisation": (
        _LARGE,
        lambda x: _op("layer_norm")(x, _ones(*_LARGE), _ones(*_LARGE), [0, 1, 2]),
        lambda x: _normal(x, (0, 1, 2)) + 1,
    ),
    "group normalisation": (
        (2, 6, 32, 32),
        lambda x: _op("group_norm")(x, _ones(6), _ones(6), 3, 1, [2, 3]),
        lambda x: _grouped(x, 3) + 1,
    ),
    "group normalisation, channels last": (
        (2, 32, 32, 6),
        lambda x: _op("group_norm")(x, _ones(6), _ones(6), 3, 3, [1, 2]),
        lambda x: np.moveaxis(_grouped(np.moveaxis(x, 3, 1), 3), 1, 3) + 1,
    ),
    "instance normalisation": (
        (2, 3, 64, 64),
        lambda x: _op("instance_norm")(x, _ones(3), _ones(3), 1, [2, 3]),
        lambda x: _normal(x, (2, 3)) + 1,
    ),
    "normalisation of a batch by itself": (
        (2, 3, 64, 64),
        lambda x: _op("instance_norm")(x, _ones(3), _ones(3), 1, [0, 2, 3]),
        lambda x: _normal(x, (0, 2, 3)) + 1,
    ),
}


def _compiled(mod: Any, x: np.ndarray) -> np.ndarray:
    from tunefleet.compiler.code.executable import compile_network, run_compiled
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import native_target, to_tvm

    target = native_target(1)
    output: np.ndarray = run_compiled(
        compile_network(prepare(mod, to_tvm(target)), target, {}), [x]
    )[0]
    return output


@pytest.mark.parametrize("name", _CASES)
def test_it_is_that_of_double_precision(name: str) -> None:
    shape, emit, exact = _CASES[name]
    x = _far(*shape)
    found = _compiled(build(lambda builder, var: emit(var), shape), x)
    expected = exact(x)
    assert expected.shape == found.shape
    assert np.abs(found - expected).max() <= 1e-3 * np.abs(expected).max()


def test_half_precision_is_summed_in_more() -> None:
    from tunefleet.compiler.toolchain import load_tvm

    ones = load_tvm().relax.const(np.ones(3, "float16"))
    x = _far(2, 3, 64, 64, dtype="float16")

    def emit(builder: Any, var: Any) -> Any:
        return _op("instance_norm")(var, ones, ones, 1, [2, 3])

    found = _compiled(build(emit, x.shape, "float16"), x)
    assert found.dtype == "float16"
    assert np.abs(found - _normal(x, (2, 3)) - 1).max() <= 4e-3


@pytest.mark.parametrize("axes", [None, (2, 3), (1,)])
def test_onnx_mean_variance_normalisation(axes: tuple[int, ...] | None) -> None:
    x = _far(2, 4, 24, 24)
    attrs: dict[str, Any] = {} if axes is None else {"axes": axes}
    network = model("MeanVarianceNormalization", [x], **attrs)
    found = prepared(network, feed(network, [x]))[0]
    expected = _normal(x, axes or (0, 2, 3), 0.0)
    assert np.abs(found - expected).max() <= 1e-3 * np.abs(expected).max()


@pytest.mark.parametrize("operator", ["InstanceNormalization", "GroupNormalization"])
def test_onnx_normalisations_with_parameters(operator: str) -> None:
    x, scale, bias = _far(2, 4, 64, 64), _far(4), _far(4)
    attrs: dict[str, Any] = {"num_groups": 2} if operator.startswith("Group") else {}
    network = model(operator, [x, scale, bias], constants=[1, 2], **attrs)
    found = prepared(network, feed(network, [x, scale, bias]))[0]
    normal = _grouped(x, 2) if attrs else _normal(x, (2, 3))
    expected = normal * scale.reshape(4, 1, 1) + bias.reshape(4, 1, 1)
    assert np.abs(found - expected).max() <= 1e-3 * np.abs(expected).max()
