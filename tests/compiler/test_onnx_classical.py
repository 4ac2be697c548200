"""Operators of ai.onnx.ml give what ONNX Runtime gives."""

from __future__ import annotations

import numpy as np
import pytest
from tests.compiler.onnx_nodes import check, random

pytestmark = pytest.mark.tvm

ML = "ai.onnx.ml"


@pytest.mark.parametrize("numbers", [[0.5], [0.5, -1.0, 2.0]], ids=["one", "each"])
def test_columns_are_scaled(numbers):
    check("Scaler", [random(4, 3)], domain=ML, opset=1, offset=numbers, scale=numbers)


def test_whole_numbers_are_scaled():
    x = np.arange(6).reshape(2, 3)
    check("Scaler", [x], domain=ML, opset=1, offset=[1.0], scale=[0.5])


@pytest.mark.parametrize("norm", ["L1", "L2", "MAX"])
def test_rows_are_normalised(norm):
    x = random(4, 3)
    x[1] = 0
    check("Normalizer", [x], domain=ML, opset=1, norm=norm)


def test_numbers_above_a_threshold_are_one():
    check("Binarizer", [random(4, 3)], domain=ML, opset=1, threshold=0.2)


@pytest.mark.parametrize("shape", [(3, 4), (4,)], ids=str)
def test_columns_are_chosen(shape):
    places = np.array([2, 0], "int64")
    check("ArrayFeatureExtractor", [random(*shape), places], domain=ML, opset=1)


def test_a_linear_regression():
    check(
        "LinearRegressor", [random(5, 3)], domain=ML, opset=1, targets=2,
        coefficients=[0.5, 1.0, -1.0, 2.0, 0.0, 1.0], intercepts=[1.0, 2.0],
    )  # fmt: skip
