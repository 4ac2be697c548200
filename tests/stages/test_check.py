"""How a source framework is run to see how far its own outputs move."""

from __future__ import annotations

from typing import Any

import pytest

from tunefleet.stages.agreement import otherwise_of

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


@pytest.mark.parametrize(
    ("float_type", "cure"), [("bfloat16", "--precision"), ("float32", "report")]
)
def test_a_network_that_needs_more_digits_is_no_wrong_import(float_type: str, cure: str) -> None:
    from tunefleet.stages import check

    assert cure in check._disagreement("net", 0.5, float_type).cure
