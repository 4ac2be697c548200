from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tunefleet.artifacts.casting import cast_inputs
from tunefleet.core.network import Signature, TensorSpec
from tunefleet.errors import InputError


def signature(*dtypes: str, shape: tuple[int, ...] = (2,)) -> Signature:
    specs = tuple(TensorSpec(f"x{i}", shape, dtype) for i, dtype in enumerate(dtypes))
    return Signature(specs, specs)


@pytest.mark.parametrize(
    ("values", "given", "wanted"),
    [
        ([0.1, -1e30], "float64", "float32"),
        ([np.nan, -np.inf], "float64", "float32"),
        ([0.5, np.nan], "float16", "float32"),
        ([1, -5], "int64", "int32"),
        ([1, 5], "int32", "int64"),
        ([1, 255], "int64", "uint8"),
        ([0, 255], "uint8", "float32"),
        ([1.0, 3.0], "float64", "int64"),
        ([True, False], "bool", "int64"),
        ([1, 0], "int64", "bool"),
        ([0.5, 2.0], "float32", "float16"),
    ],
)
def test_a_cast_that_keeps_the_values(values: list[Any], given: str, wanted: str) -> None:
    array = np.array(values, given)
    [cast], notes = cast_inputs([array], [signature(wanted)])
    np.testing.assert_array_equal(array.astype(wanted), cast)
    assert (cast.dtype, notes) == (wanted, [f"input x0: {given} was cast to {wanted}"])


@pytest.mark.parametrize(
    ("values", "given", "wanted"),
    [
        ([1e300, 0], "float64", "float32"),
        ([0.1, 0], "float32", "float16"),
        ([1 << 40, 0], "int64", "int32"),
        ([-1, 0], "int32", "uint32"),
        ([2**64 - 1, 0], "uint64", "int64"),
        ([2**24 + 1, 0], "int64", "float32"),
        ([0.5, 0], "float32", "int64"),
        ([np.nan, 0], "float32", "int64"),
        ([np.inf, 0], "float64", "int32"),
        ([2, 0], "int64", "bool"),
        ([1j, 0], "complex64", "float32"),
        ([1, 0], "datetime64[s]", "int64"),
    ],
)
def test_a_cast_that_would_lose_values_is_refused(
    values: list[Any], given: str, wanted: str
) -> None:
    with pytest.raises(InputError, match=f"values that {wanted} does not.*give it as {wanted}"):
        cast_inputs([np.array(values, given)], [signature(wanted)])


def test_what_fits_is_the_same_array() -> None:
    array = np.zeros(2, "float32")
    [same], notes = cast_inputs([array], [signature("float32")])
    assert same is array
    assert notes == []


def test_the_order_of_bytes_is_not_worth_a_word() -> None:
    [cast], notes = cast_inputs([np.ones(2, ">f4")], [signature("float32")])
    assert (cast.dtype, list(cast), notes) == (np.float32, [1, 1], [])


def test_wrong_shapes_are_left_to_the_module() -> None:
    array = np.zeros(3)
    [same], _ = cast_inputs([array], [signature("float32")])
    assert same is array


def test_of_several_signatures_the_nearest_is_taken() -> None:
    arrays = [np.zeros(2, "int32"), np.zeros(2, "float64")]
    signatures = [signature("int64", "int64"), signature("int32", "float32")]
    cast, _ = cast_inputs(arrays, signatures)
    assert [array.dtype.name for array in cast] == ["int32", "float32"]
