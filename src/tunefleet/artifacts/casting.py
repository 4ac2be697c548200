"""Arrays of other types than a network takes, brought to its types where no value is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.artifacts.tensors import is_native, numpy_type
from tunefleet.core.network import Signature, TensorSpec
from tunefleet.errors import InputError

Array = NDArray[Any]


def cast_inputs(
    arrays: Sequence[Array], signatures: Sequence[Signature]
) -> tuple[list[Array], list[str]]:
    """The arrays in the types of the signature that has their shapes, and what was cast, in words.

    A cast changes no value, except that float64 is rounded to float32. Arrays whose shapes fit no
    signature are returned as they are. Raises InputError for a cast that would lose values.
    """
    shapes = [array.shape for array in arrays]
    fitting = [s for s in signatures if [spec.shape for spec in s.inputs] == shapes]
    if not fitting:
        return list(arrays), []
    results, notes = [], []
    for array, spec in zip(arrays, _nearest(fitting, arrays).inputs, strict=True):
        wanted = numpy_type(spec.dtype)
        if array.dtype == wanted:
            results.append(array)
        elif array.dtype.newbyteorder("=") == wanted:
            results.append(array.astype(wanted))
        else:
            results.append(_cast(array, spec, wanted))
            notes.append(f"input {spec.name}: {array.dtype.name} was cast to {spec.dtype}")
    return results, notes


def _nearest(signatures: Sequence[Signature], arrays: Sequence[Array]) -> Signature:
    """Of signatures with the same shapes the one with most of the arrays' types."""
    types = [array.dtype.name for array in arrays]
    return max(
        signatures,
        key=lambda s: sum(t == i.dtype for t, i in zip(types, s.inputs, strict=True)),
    )


def _cast(array: Array, spec: TensorSpec, wanted: np.dtype[Any]) -> Array:
    refusal = InputError(
        f"input {spec.name} is {array.dtype.name} and has values that {spec.dtype} does not",
        cure=f"give it as {spec.dtype}",
    )
    numbers = array.dtype.kind in "biuf" and is_native(wanted) and wanted.kind in "biuf"
    if not numbers:
        raise refusal
    with np.errstate(all="ignore"):
        cast = array.astype(wanted)
        rounds = (array.dtype.name, wanted.name) == ("float64", "float32")
        if rounds:
            kept = np.isfinite(cast) == np.isfinite(array)
        else:
            # The signs as well: of integers, -1 goes to the largest number and comes back as -1.
            kept = (cast.astype(array.dtype) == array) & ((cast < 0) == (array < 0))
            if array.dtype.kind == "f" and wanted.kind == "f":
                kept |= np.isnan(array) & np.isnan(cast)
    if not kept.all():
        raise refusal
    return cast
