"""Mixtures of experts in ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.onnx_nodes import check, random

pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.tvm

#: Rows, numbers of each, numbers between, experts.
_ROWS, _WIDTH, _INNER, _EXPERTS = 5, 32, 48, 4


def _form(activation: str, **more: Any) -> dict[str, Any]:
    form = {"domain": "com.microsoft", "activation_type": activation, "k": 2, **more}
    if activation == "swiglu":
        form |= {"swiglu_fusion": 1, "swiglu_limit": 1.5}
        form |= {"activation_alpha": 1.3, "activation_beta": 0.7}
    return form


@pytest.mark.parametrize("normalize", [0, 1])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity", "swiglu"])
def test_experts(activation: str, normalize: int) -> None:
    inner = _INNER * (2 if activation == "swiglu" else 1)
    inputs = [
        random(1, _ROWS, _WIDTH), random(_ROWS, _EXPERTS), random(_EXPERTS, inner, _WIDTH),
        random(_EXPERTS, inner), random(_EXPERTS, _WIDTH, _INNER), random(_EXPERTS, _WIDTH),
    ]  # fmt: skip
    form = _form(activation, normalize_routing_weights=normalize)
    check("MoE", inputs, constants={2, 3, 4, 5}, atol=1e-3, **form)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize(("bits", "block"), [(4, 0), (4, 16), (8, 0)])
@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_experts_of_few_bits(activation: str, bits: int, block: int, biases: bool) -> None:
    drawn = np.random.default_rng(bits + block)
    inner = _INNER * (2 if activation == "swiglu" else 1)

    def packed(rows: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        blocks = [width // block] if block else []
        return (
            drawn.integers(0, 256, (_EXPERTS, rows, width * bits // 8)).astype("uint8"),
            (drawn.random((_EXPERTS, rows, *blocks)) * 2.0**-bits).astype("float32"),
            random(_EXPERTS, rows),
        )

    first, second = packed(inner, _WIDTH), packed(_WIDTH, _INNER)
    given = [random(_ROWS, _WIDTH), random(_ROWS, _EXPERTS), *first, *second]
    inputs = [each if biases or at not in (4, 7) else None for at, each in enumerate(given)]
    form = _form(activation, expert_weight_bits=bits)
    form |= {"block_size": block} if block else {}
    check("QMoE", inputs, constants={2, 3, 4, 5, 6, 7}, atol=2e-3, **form)
