"""What two right implementations of one network may differ by, and where that can be told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tunefleet.compiler.toolchain.bfloat16 import floats_of, rounded_array
from tunefleet.core.step import DifferenceMeasure
from tunefleet.stages.agreement import TOLERANCE, accepted_difference, agreement

pytestmark = pytest.mark.tvm

X = np.linspace(-1, 1, 64, dtype="float32").reshape(8, 8)


def test_the_accepted_difference_follows_the_source_frameworks_own() -> None:
    assert accepted_difference(0.0) == TOLERANCE
    assert accepted_difference(0.01) == pytest.approx(0.04)
    assert accepted_difference(2.0) == pytest.approx(0.1)


def compared(reference: Any, module: Any) -> Any:
    return agreement([[X]], "float32", lambda _, x: [reference(x[0])], lambda _, x: [module(x[0])])


def test_equal_outputs_agree_at_the_inputs_given() -> None:
    found = compared(np.exp, np.exp)
    assert found.holds
    assert (found.difference, found.tolerance) == (0.0, TOLERANCE)
    assert found.inputs[0][0] is X


def test_a_wrong_module_is_told_at_once() -> None:
    calls = []

    def wrong(x: Any) -> Any:
        calls.append(x)
        return np.exp(x) * 1.01

    assert not compared(np.exp, wrong).holds
    assert len(calls) == 1


def chaotic(x: Any) -> Any:
    """Its outputs are decided by the last bit of its inputs where the first of them is negative."""
    return np.sin(x * (1e9 if x[0, 0] < 0 else 1.0), dtype="float64")


def test_what_is_chaotic_at_some_inputs_is_compared_at_others() -> None:
    found = compared(chaotic, lambda x: chaotic(x * np.float32(1 + 2**-23)))
    assert found.holds
    assert found.inputs[0][0][0, 0] > 0
    assert np.array_equal(found.expected[0][0], chaotic(found.inputs[0][0]))


def found(x: Any) -> Any:
    """What a detector finds: the numbers, the largest first, and where each of them was."""
    order = np.argsort(-x.ravel(), kind="stable")
    return np.stack([x.ravel()[order], order / x.size])


def test_what_is_sorted_by_nearly_equal_scores_is_compared_without_its_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    close = (1 + np.arange(64, dtype="float32") * np.float32(2**-22)).reshape(8, 8)
    monkeypatch.setitem(globals(), "X", close)
    turned = close[::-1].ravel().argsort().argsort()
    same = compared(found, lambda x: found(x)[:, turned])
    assert same.holds
    assert not same.ordered
    assert not compared(found, lambda x: found(x)[:, turned] * 1.2).holds


def test_what_is_chaotic_everywhere_is_not_said_to_agree() -> None:
    def everywhere(x: Any) -> Any:
        return np.sin(x * 1e9, dtype="float64")

    assert not compared(everywhere, lambda x: everywhere(x * np.float32(1 + 2**-23))).holds


def rounding(x: Any, steps: float, seed: int) -> Any:
    """Layers that round to few bits what float sums in some order give."""
    generator = np.random.default_rng(0)
    noise = np.random.default_rng(seed)
    for _ in range(24):
        weight = generator.standard_normal((8, 8)).astype("float32")
        sums = x @ weight
        # Sums in another order differ in the last bits.
        sums *= (1 + noise.uniform(-1, 1, sums.shape) * 2**-14).astype("float32")
        x = np.round(sums / np.abs(sums).max() * steps) / steps
    return x


def in_eight_bits(module: Any) -> Any:
    return agreement(
        [[X]],
        "float32",
        lambda _, x: [rounding(x[0], 8, 1)],
        lambda _, x: [module(x[0])],
        lambda _, x: [rounding(x[0], 8, 2)],
    )


def test_what_rounding_decides_is_compared_in_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    close = np.random.default_rng(3).standard_normal((512, 8)).astype("float32")
    monkeypatch.setitem(globals(), "X", close)
    alike = in_eight_bits(lambda x: rounding(x, 8, 3))
    assert alike.holds
    assert alike.measure is DifferenceMeasure.MEAN
    assert 0 < alike.difference <= alike.tolerance <= 0.3
    for wrong in (lambda x: rounding(x, 8, 3) * 1.3, lambda x: rounding(x, 6, 3) + 0.2):
        found = in_eight_bits(wrong)
        assert not found.holds
        assert found.measure is DifferenceMeasure.LARGEST


def layers(x: np.ndarray, *, rounded: bool, factor: float = 1.0) -> np.ndarray:
    """A deep network of seeded weights, with bfloat16 between its layers or not."""
    generator = np.random.default_rng(0)
    for _ in range(30):
        x = np.maximum(x @ generator.standard_normal((64, 64)).astype("float32"), 0)
        x = x / np.sqrt((x**2).mean())
        x = floats_of(rounded_array(x)) if rounded else x
    return x * factor


def test_what_is_rounded_to_bfloat16_between_layers_is_compared_in_the_mean() -> None:
    near = np.random.default_rng(1).standard_normal((4, 64)).astype("float32")

    def found(factor: float) -> Any:
        return agreement(
            [[near]],
            "bfloat16",
            lambda _, x: [layers(x[0], rounded=False)],
            lambda _, x: [layers(x[0], rounded=True, factor=factor)],
        )

    assert found(1.0).holds
    assert found(1.0).difference < 0.1
    assert not found(1.4).holds
    wrong = np.random.default_rng(2).standard_normal((4, 64)).astype("float32")
    other = agreement(
        [[near]],
        "bfloat16",
        lambda _, x: [layers(x[0], rounded=False)],
        lambda _, x: [layers(x[0] + wrong, rounded=True)],
    )
    assert not other.holds


@pytest.mark.parametrize(
    ("float_type", "factor", "holds"),
    [
        ("bfloat16", 1.01, True),
        ("bfloat16", 1.1, False),
        ("float16", 1.003, True),
        ("float16", 1.01, False),
        ("float32", 1.003, False),
    ],
)
def test_words_have_no_last_bit_that_says_what_rounding_does(
    float_type: str, factor: float, holds: bool
) -> None:
    words = np.arange(64).reshape(4, 16)
    found = agreement(
        [[words]],
        float_type,
        lambda _, x: [np.sin(x[0]).astype("float32")],
        lambda _, x: [np.sin(x[0]).astype("float32") * np.float32(factor)],
    )
    assert found.holds == holds


def test_a_source_framework_that_agrees_with_itself_excuses_nothing() -> None:
    found = agreement(
        [[X]],
        "float32",
        lambda _, x: [np.exp(x[0])],
        lambda _, x: [np.exp(x[0]) * 1.01],
        lambda _, x: [np.exp(x[0])],
    )
    assert not found.holds


def test_integers_that_agree_are_held_to_what_floats_are() -> None:
    found = agreement([[X]], "float32", lambda _, x: [x[0]], lambda _, x: [x[0]], quantised=True)
    assert (found.difference, found.tolerance) == (0.0, TOLERANCE)


def test_a_sum_may_fall_to_the_other_side_of_a_step() -> None:
    def tipped(x: Any) -> Any:
        result = x.copy()
        result[0, 0] += 3e-3 * np.abs(x).max()
        return result

    def compared(quantised: bool) -> Any:
        runs = lambda _, x: [x[0]], lambda _, x: [tipped(x[0])]
        return agreement([[X]], "float32", *runs, quantised=quantised)

    assert not compared(False).holds
    assert compared(True).holds
    assert compared(True).tolerance == pytest.approx(2 / 255)


def test_what_some_of_the_last_bits_tip_over_is_accepted_of_integers() -> None:
    """The very last bit moves nothing here, 64 steps of it do."""
    near = ((np.arange(64) + 0.5) / 64 * (1 - 20 * 2.0**-23)).astype("float32").reshape(8, 8)

    def reference(x: Any) -> Any:
        return np.round(x * 64) / 64

    def module(x: Any) -> Any:
        tipped = reference(x)
        tipped[3, 3] += 1 / 64
        return tipped

    def compared(quantised: bool) -> Any:
        runs = lambda _, x: [reference(x[0])], lambda _, x: [module(x[0])]
        return agreement([[near]], "float32", *runs, quantised=quantised)

    assert not compared(False).holds
    found = compared(True)
    assert found.holds
    assert found.difference == pytest.approx(1 / 64, rel=0.05)
    assert found.tolerance == pytest.approx(4 / 64, rel=0.05)


def test_a_source_framework_that_fails_otherwise_excuses_nothing() -> None:
    def otherwise(_: int, given: Any) -> Any:
        return [np.full_like(given[0], np.nan)]

    reference, module = lambda _, x: [x[0]], lambda _, x: [x[0] * np.float32(1.1)]
    assert not agreement([[X]], "float32", reference, module, otherwise).holds


def logarithm(x: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return np.log(x)


def test_what_is_nan_at_the_inputs_given_is_compared_without_their_signs_too() -> None:
    found = compared(logarithm, logarithm)
    assert found.holds
    assert (found.unknown, found.avoided) == (0.0, 0.5)
    assert (found.inputs[0][0] == abs(X)).all()


@pytest.mark.parametrize(
    "module",
    [
        lambda x: np.where(x < 0, logarithm(x), logarithm(x) * 1.1),
        lambda x: np.where(x > 0.5, np.nan, logarithm(x)),
    ],
    ids=["other numbers", "more NaN"],
)
def test_a_wrong_module_does_not_hide_behind_nan(module: Any) -> None:
    assert not compared(logarithm, module).holds


def test_a_number_where_the_source_framework_has_nan_is_no_error() -> None:
    """Such as a maximum that leaves NaN out."""
    found = compared(logarithm, lambda x: np.nan_to_num(logarithm(x)))
    assert found.holds
    assert found.avoided == 0.5


def test_an_input_of_one_number_without_axes_stays_an_array_without_its_sign() -> None:
    """Such as the bounds of a logarithm; ONNX Runtime takes no scalars of NumPy."""
    kinds: list[bool] = []

    def runs(_: int, given: Any) -> Any:
        kinds.extend(isinstance(array, np.ndarray) for array in given)
        return [logarithm(given[0]) * given[1]]

    found = agreement([[X, np.array(-2.0, np.float32)]], "float32", runs, runs)
    assert (found.holds, found.avoided) == (True, 0.5)
    assert all(kinds)


def test_where_everything_is_nan_nothing_is_said_to_be_verified() -> None:
    from tunefleet.stages.check import caveats_of

    found = compared(lambda x: x * np.nan, lambda x: x * np.nan)
    assert (found.unknown, found.avoided) == (1.0, 0.0)
    (caveat,) = caveats_of(found)
    assert "nothing is verified" in caveat
