"""Operators that ONNX Runtime's optimizers write give what ONNX Runtime gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.onnx_nodes import check, random

pytestmark = pytest.mark.tvm

MS = "com.microsoft"


@pytest.mark.parametrize(
    ("operator", "attrs"), [("Gelu", {}), ("QuickGelu", {"alpha": 1.3}), ("FastGelu", {})]
)
def test_activation(operator, attrs):
    check(operator, [random(3, 8)], domain=MS, **attrs)


@pytest.mark.parametrize("operator", ["BiasGelu", "FastGelu"])
def test_activation_after_a_bias(operator):
    check(operator, [random(2, 3, 8), random(8)], domain=MS, constants={1})


@pytest.mark.parametrize("attrs", [{}, {"transA": 1, "alpha": 0.5}, {"transB": 1}], ids=str)
def test_fused_matmul(attrs):
    left = random(2, *((5, 4) if "transA" in attrs else (4, 5)))
    right = random(2, *((6, 5) if "transB" in attrs else (5, 6)))
    check("FusedMatMul", [left, right], domain=MS, **attrs)


def test_fused_matmul_with_transposed_batches():
    attrs: dict[str, Any] = {"transBatchA": 1, "transBatchB": 1, "transB": 1}
    check("FusedMatMul", [random(4, 2, 5), random(6, 2, 5)], domain=MS, **attrs)


@pytest.mark.parametrize(
    "activation",
    [
        {"activation": "Relu"},
        {"activation": "LeakyRelu", "activation_alpha": 0.3},
        {"activation": "Elu", "activation_alpha": 0.7},
        {"activation": "ThresholdedRelu", "activation_alpha": 0.4},
        {"activation": "Softplus"},
        {"activation": "Softsign"},
        {"activation": "ScaledTanh", "activation_alpha": 0.5, "activation_beta": 1.5},
    ],
    ids=lambda a: a["activation"],
)
def test_fused_gemm(activation):
    inputs = [random(5, 4), random(6, 5), random(6)]
    check("FusedGemm", inputs, domain=MS, transA=1, transB=1, alpha=0.5, beta=2.0, **activation)


@pytest.mark.parametrize(
    "activation",
    [
        {"activation": "Relu"},
        {"activation": "LeakyRelu", "activation_params": [0.2]},
        {"activation": "Clip", "activation_params": [0.0, 0.8]},
        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
    ],
    ids=lambda a: a["activation"],
)
@pytest.mark.parametrize("added", [True, False])
def test_fused_convolution(activation, added):
    inputs = [random(1, 3, 6, 6), random(4, 3, 3, 3), random(4)]
    inputs += [random(1, 4, 6, 6)] if added else []
    check("FusedConv", inputs, domain=MS, constants={1, 2}, pads=[1, 1, 1, 1], **activation)


@pytest.mark.parametrize("axis", [-1, 1])
def test_layer_normalization_with_its_moments(axis):
    shape = (2, 3, 8)[axis:]
    inputs = [random(2, 3, 8), random(*shape), random(*shape, seed=3)]
    check("LayerNormalization", inputs, outputs=["y", "mean", "deviation"], axis=axis)


def test_simplified_layer_normalization():
    check("SimplifiedLayerNormalization", [random(2, 3, 8), random(8)], epsilon=1e-3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("skip", [(2, 3, 8), (3, 8)])
def test_skip_layer_normalization(bias, skip):
    inputs = [random(2, 3, 8), random(*skip, seed=1), random(8), random(8, seed=2)]
    inputs += [random(8, seed=3)] if bias else []
    outputs = ["y", "", "", "sum"]
    check("SkipLayerNormalization", inputs, domain=MS, outputs=outputs, epsilon=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_skip_simplified_layer_normalization(bias):
    inputs = [random(2, 3, 8), random(2, 3, 8, seed=1), random(8)]
    inputs += [random(8, seed=3)] if bias else []
    outputs = ["y", "", "", "sum"]
    check("SkipSimplifiedLayerNormalization", inputs, domain=MS, outputs=outputs)


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_embed_layer_normalization(segments, masked):
    ids = np.array([[1, 2, 3], [4, 0, 5]], "int32")
    inputs = [
        ids,
        (ids % 2).astype("int32") if segments else None,
        random(6, 8),
        random(9, 8),
        random(2, 8) if segments else None,
        random(8),
        random(8, seed=1),
        np.array([[1, 1, 0], [1, 1, 1]], "int32") if masked else None,
    ]
    check("EmbedLayerNormalization", inputs, domain=MS, outputs=["y", "lengths"])


def test_group_normalization():
    inputs = [random(2, 6, 4, 3), random(6), random(6, seed=1)]
    check("GroupNormalization", inputs, num_groups=3, opset=21)
