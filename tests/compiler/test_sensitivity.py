"""What two right implementations of one network may differ by."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def test_the_coarsest_type_is_of_what_is_computed():
    from tunefleet.compiler.graph.sensitivity import coarsest_type
    from tunefleet.compiler.toolchain import load_tvm

    relax = load_tvm().relax
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([2, 3], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            half = builder.emit(relax.op.astype(x, "float16"))
            out = builder.emit_output(relax.op.astype(relax.op.exp(half), "float32"))
        builder.emit_func_output(out)
    assert coarsest_type(builder.get()) == "float16"


def test_floats_move_by_their_last_bit_and_integers_stay():
    from tunefleet.compiler.graph.sensitivity import nudged

    x, tokens = np.linspace(1, 2, 50, dtype="float32"), np.arange(3)
    moved, same = nudged([x, tokens], "float32")
    assert moved.dtype == x.dtype
    assert (moved != x).all()
    assert np.allclose(moved, x, rtol=3e-7, atol=0)
    assert same is tokens


def test_floats_are_shuffled_and_integers_stay():
    from tunefleet.compiler.graph.sensitivity import shuffled

    x, tokens = np.arange(50, dtype="float32").reshape(5, 10), np.arange(3)
    other, same = shuffled([x, tokens], 1)
    assert (other.shape, other.dtype) == (x.shape, x.dtype)
    assert (other != x).any()
    assert np.array_equal(np.sort(other, None), x.ravel())
    assert same is tokens


def test_an_infinity_that_both_have_is_no_difference():
    from tunefleet.compiler.code.executable import worst_difference

    x = np.array([1.0, -np.inf, np.nan], "float32")
    assert worst_difference([x], [x.copy()]) == 0.0
    assert worst_difference([x], [np.array([1.0, 5.0, np.nan], "float32")]) == np.inf


@pytest.mark.parametrize(
    ("expected", "actual", "difference"),
    [
        (np.array([True, False]), np.array([True, False]), 0.0),
        (np.array([True, False]), np.array([True, True]), 1.0),
        (np.array([0, 200], "uint8"), np.array([200, 200], "uint8"), 1.0),
        (np.array([-100, 100], "int8"), np.array([100, 100], "int8"), 2.0),
    ],
)
def test_truth_values_and_small_integers_have_a_difference(expected, actual, difference):
    from tunefleet.compiler.code.executable import mean_difference, worst_difference

    assert worst_difference([expected], [actual]) == difference
    assert mean_difference([expected], [actual]) == np.mean(expected != actual)
