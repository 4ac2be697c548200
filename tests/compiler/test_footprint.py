"""What a network on a GPU copies for its segments."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.tvm

from tunefleet.compiler.graph.footprint import segment_copies  # noqa: E402
from tunefleet.compiler.toolchain import load_tvm  # noqa: E402
from tunefleet.core.network import SEGMENT_PREFIX, SegmentCopies  # noqa: E402

relax = load_tvm().relax


def _called(name: str, *results: Any) -> Any:
    """A function that calls another with one tensor of 16 bytes, twice."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        call = relax.call_pure_packed(name, x, x, ty_args=list(results))
        builder.emit_func_output(builder.emit(call))
    return builder.finalize()["main"]


def test_every_tensor_that_a_segment_reads_and_gives_is_copied() -> None:
    results = relax.TupleType([relax.TensorType((2, 4), "int64"), relax.TensorType((3,), "bool")])
    assert SegmentCopies(2, 32, 2, 67) == segment_copies(_called(f"{SEGMENT_PREFIX}a", results))


def test_a_size_that_depends_on_values_is_not_made_up() -> None:
    unknown = relax.TensorType(dtype="int64", ndim=2)
    assert SegmentCopies(2, 32, 1, None) == segment_copies(_called(f"{SEGMENT_PREFIX}a", unknown))


def test_what_is_no_segment_copies_nothing() -> None:
    result = relax.TensorType((4,), "float32")
    assert SegmentCopies() == segment_copies(_called("another", result))
