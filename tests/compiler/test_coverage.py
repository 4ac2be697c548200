"""The page of operators says what the tables say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.tvm

_ROOT = Path(__file__).parents[2]


def test_the_page_of_operators_is_up_to_date() -> None:
    page = runpy.run_path(str(_ROOT / "benchmarks" / "operators.py"))["page"]()
    assert (_ROOT / "docs" / "operators.md").read_text() == page


def test_what_cannot_be_told_from_a_value_is_not_said_to_be_compiled() -> None:
    from tunefleet.compiler.frontends.coverage import OperatorSupport, onnx_operators

    operators = {operator.name: operator.support for operator in onnx_operators()}
    assert {operators[name] for name in ("NonZero", "Unique", "RandomNormal", "StringConcat")} == {
        OperatorSupport.STAYS
    }
    assert operators["LSTM"] is operators["CumProd"] is OperatorSupport.OURS
    assert operators["Abs"] is OperatorSupport.TVM
