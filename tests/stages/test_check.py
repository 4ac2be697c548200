"""How a source framework is run to see how far its own outputs move."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.tvm


def _otherwise(prepared: Any) -> Any:
    from tunefleet.stages import check

    return check._otherwise(prepared, dict)


def _prepared(kind: str, *, quantised: bool) -> Any:
    return SimpleNamespace(
        references=[{"kind": kind}], imported=SimpleNamespace(quantised=quantised)
    )


@pytest.mark.parametrize("quantised", [True, False])
def test_onnx_runtime_does_without_its_optimisations(quantised: bool) -> None:
    otherwise = _otherwise(_prepared("onnx", quantised=quantised))
    assert otherwise() == {"unoptimised": True, "nudged": True}


def test_pytorch_takes_weights_moved_by_their_last_bit_where_sums_are_rounded() -> None:
    otherwise = _otherwise(_prepared("torch", quantised=True))
    assert otherwise() == {"nudged": True}
    assert _otherwise(_prepared("torch", quantised=False)) is None
    assert _otherwise(_prepared("tflite", quantised=True)) is None


@pytest.mark.parametrize(
    ("float_type", "cure"), [("bfloat16", "--precision"), ("float32", "report")]
)
def test_a_network_that_needs_more_digits_is_no_wrong_import(float_type: str, cure: str) -> None:
    from tunefleet.stages import check

    assert cure in check._disagreement("net", 0.5, float_type).cure
