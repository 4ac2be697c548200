"""Softmax of rows of any length, in whole vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.test_graph import build, run

pytestmark = pytest.mark.tvm


def _softmax(axis: int, shape: tuple[int, ...], dtype: str = "float32") -> Any:
    from tvm.relax import op

    from tunefleet.compiler.graph.legalize import legalize

    return legalize()(build(lambda builder, x: op.nn.softmax(x, axis), shape, dtype))


def _is_as_written(mod: Any) -> bool:
    """Whether its program is the loops of ours, which nothing is fused with."""
    return "op_pattern" in (mod["softmax"].attrs or {})


def _expected(x: np.ndarray) -> np.ndarray:
    wide = np.exp(x.astype("float64") - x.max(-1, keepdims=True))
    return wide / wide.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    "shape", [(8,), (5, 9), (1, 32), (3, 49), (2, 1000), (3, 100, 197), (2, 4, 64)], ids=str
)
def test_rows_of_any_length(shape: tuple[int, ...]) -> None:
    mod = _softmax(len(shape) - 1, shape)
    assert _is_as_written(mod)
    x = np.random.default_rng(0).standard_normal(shape).astype("float32") * 9
    np.testing.assert_allclose(run(mod, x), _expected(x), rtol=2e-6, atol=1e-7)


def test_what_is_masked_weighs_nothing_and_what_is_all_masked_is_no_number() -> None:
    mod = _softmax(-1, (3, 49))
    x = np.random.default_rng(0).standard_normal((3, 49)).astype("float32")
    x[0, 40:] = x[1, :48] = x[2] = -np.inf
    found = run(mod, x)
    np.testing.assert_allclose(found[:2], _expected(x[:2]), rtol=2e-6)
    assert not found[0, 40:].any()
    assert np.isnan(found[2]).all()


@pytest.mark.parametrize(
    ("axis", "shape", "dtype"),
    [(0, (16, 16), "float32"), (-1, (3, 7), "float32"), (-1, (3, 16), "float64")],
)
def test_others_are_tvm_s(axis: int, shape: tuple[int, ...], dtype: str) -> None:
    assert not _is_as_written(_softmax(axis, shape, dtype))


def test_on_a_gpu_it_is_tvm_s() -> None:
    from tunefleet.compiler.toolchain.host import parse_target, to_tvm

    with to_tvm(parse_target("cuda/sm_80", None)):
        assert not _is_as_written(_softmax(-1, (3, 49)))
