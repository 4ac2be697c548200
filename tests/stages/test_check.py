"""How a source framework is run to see how far its own outputs move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tunefleet.stages.agreement import Agreement, otherwise_of

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("quantised", [True, False])
def test_onnx_runtime_does_without_its_optimisations(quantised: bool) -> None:
    otherwise: Any = otherwise_of("onnx", dict, quantised=quantised)
    assert otherwise() == {"unoptimised": True, "nudged": True}


def test_pytorch_takes_weights_moved_by_their_last_bit_where_sums_are_rounded() -> None:
    otherwise: Any = otherwise_of("torch", dict, quantised=True)
    assert otherwise() == {"nudged": True}
    assert otherwise_of("torch", dict, quantised=False) is None
    assert otherwise_of("tflite", dict, quantised=True) is None


def _error(outcome: Any, precision: str = "float32", **how: bool) -> Any:
    from tunefleet.stages import check

    return check._disagreement("net", outcome, precision, **how)


def _cure(outcome: Any, precision: str = "float32", **how: bool) -> str:
    return _error(outcome, precision, **how).cure


@pytest.mark.parametrize(
    ("precision", "cure"),
    [("bf16", "leave out --precision"), ("fp16", "--precision bf16"), ("float32", "report")],
)
def test_a_network_that_needs_more_digits_is_no_wrong_import(precision: str, cure: str) -> None:
    outcome = Agreement((), ([np.ones(3, "float32")],), 0.5, 1e-3)
    assert cure in _cure(outcome, precision)


def test_numbers_that_float16_does_not_have_are_no_wrong_import() -> None:
    outcome = Agreement((), ([np.ones(3, "float32")],), np.inf, 1e-3)
    assert "exceeds 65504" in str(_error(outcome, "fp16"))
    assert "--precision bf16" in _cure(outcome, "fp16")


def test_a_network_that_makes_nan_is_not_said_to_be_imported_wrongly() -> None:
    numbers = Agreement((), ([np.ones(3, "float32")],), 0.5, 1e-3)
    unknown = Agreement((), ([np.array([np.nan, 1], "float32")],), np.inf, 1e-3)
    assert "import is wrong" in _cure(numbers)
    for cure in (_cure(unknown), _cure(unknown, "bf16"), _cure(numbers, signs=True)):
        assert "import is wrong" not in cure
        assert "example inputs" in cure


def test_a_network_that_the_last_bit_decides_is_not_said_to_be_imported_wrongly() -> None:
    from tunefleet.stages.agreement import agreement

    def chaotic(_: int, given: Any) -> Any:
        return [np.sin(given[0].astype("float64") * 1e9)]

    inputs = [[np.linspace(0.5, 1, 64, dtype="float32")]]
    outcome = agreement(inputs, "float32", chaotic, lambda i, x: chaotic(i, [x[0] * 1.001]))
    assert not outcome.holds
    assert "example inputs" in _cure(outcome)
    wrong = agreement(inputs, "float32", lambda _, x: [x[0]], lambda _, x: [x[0] + 1])
    assert "import is wrong" in _cure(wrong)
