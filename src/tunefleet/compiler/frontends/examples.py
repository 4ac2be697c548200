"""Seeded example inputs for networks that bring none."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tunefleet.core.network import TensorSpec
from tunefleet.errors import InputError

#: What an input or output may hold: NumPy has it, and so has TVM.
NUMPY_DTYPES = frozenset(
    {"bool", "float16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)

#: Of all inputs together.
_MOST_BYTES = 1 << 40


def lacking(dtype: str) -> str:
    """Which of both does not have a type that is none of `NUMPY_DTYPES`."""
    return "TVM" if dtype.startswith("complex") else "NumPy"


def seeded_inputs(specs: Iterable[TensorSpec]) -> tuple[np.ndarray, ...]:
    """Standard normal numbers for floats; zeros and ones for integers and booleans.

    The range of an unknown integer input is unknown too (token ids, lengths, indices): zero and
    one are valid nearly everywhere. Raises InputError for shapes that nobody means.
    """
    specs = tuple(specs)
    size = sum(math.prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in specs)
    if size > _MOST_BYTES:
        raise InputError(
            f"the inputs have {size / 2**40:,.0f} TiB, more than any machine holds",
            cure="give smaller shapes: --shape, --dim",
        )
    rng = np.random.default_rng(0)
    return tuple(_one(rng, spec) for spec in specs)


def _one(rng: np.random.Generator, spec: TensorSpec) -> np.ndarray:
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "f":
        return rng.standard_normal(spec.shape).astype(dtype)
    return rng.integers(0, 2, spec.shape).astype(dtype)
