"""The inputs that a network is checked and measured with: given, its own, or drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import numpy as np

from tunefleet.artifacts.casting import cast_inputs
from tunefleet.compiler.frontends.array_files import named_arrays
from tunefleet.compiler.frontends.imported import ImportedNetwork
from tunefleet.compiler.frontends.ranges import UNKNOWN_RANGE, integer_ranges
from tunefleet.compiler.frontends.spec import shown
from tunefleet.core.importing import InputFile
from tunefleet.core.network import IntegerRange, Signature, TensorSpec
from tunefleet.errors import InputError

#: What an input or output may hold: NumPy has it, and so has TVM.
NUMPY_DTYPES = frozenset(
    {"bool", "float16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)

_CURE = "give a .npz file of the network's inputs by name"
#: Of all inputs together.
_MOST_BYTES = 1 << 40


def lacking(dtype: str) -> str:
    """Which of both does not have a type that is none of `NUMPY_DTYPES`."""
    return "TVM" if dtype.startswith("complex") else "NumPy"


def seeded_inputs(
    specs: Iterable[TensorSpec], ranges: Sequence[IntegerRange | None] = ()
) -> tuple[np.ndarray, ...]:
    """Standard normal numbers for floats; integers of `ranges`, and zeros and ones for integers
    of no range and for booleans. Raises InputError for shapes that nobody means.
    """
    specs = tuple(specs)
    size = sum(math.prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in specs)
    if size > _MOST_BYTES:
        raise InputError(
            f"the inputs have {size / 2**40:,.0f} TiB, more than any machine holds",
            cure="give smaller shapes: --shape, --dim",
        )
    rng = np.random.default_rng(0)
    return tuple(_one(rng, *each) for each in zip_longest(specs, ranges))


def _one(rng: np.random.Generator, spec: TensorSpec, within: IntegerRange | None) -> np.ndarray:
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "f":
        return rng.standard_normal(spec.shape).astype(dtype)
    within = within or UNKNOWN_RANGE
    return rng.integers(within.least, within.most, spec.shape, dtype, endpoint=True)


def with_examples(imported: ImportedNetwork, files: Sequence[InputFile]) -> ImportedNetwork:
    """The network with the example inputs of the file that has its shapes, its own, or drawn ones;
    and with the ranges of its integer inputs. Raises InputError where no file fits."""
    specs = imported.info.inputs
    ranges = integer_ranges(imported.mod, specs)
    if files:
        given = _given(imported, files)
    elif imported.drawn:
        given = seeded_inputs(specs, ranges)
    else:
        given = imported.example_inputs
    if files or not imported.drawn:
        ranges = tuple(map(_seen, ranges, given))
    return replace(imported, example_inputs=given, info=replace(imported.info, ranges=ranges))


def _seen(within: IntegerRange | None, given: np.ndarray) -> IntegerRange | None:
    """What the network does with an input says more than its example, unless it says nothing."""
    if within != UNKNOWN_RANGE or given.size == 0:
        return within
    return IntegerRange(int(given.min()), int(given.max()))


def _given(imported: ImportedNetwork, files: Sequence[InputFile]) -> tuple[np.ndarray, ...]:
    specs = imported.info.inputs
    wanted = [spec.shape for spec in specs]
    found = []
    for file in files:
        by_name = named_arrays(Path(file.path), [spec.name for spec in specs], _CURE)
        arrays = [by_name[spec.name] for spec in specs]
        if [array.shape for array in arrays] == wanted:
            return tuple(cast_inputs(arrays, [Signature(specs, ())])[0])
        found.append(arrays)
    spec, shape = next(
        (spec, array.shape)
        for spec, array in zip(specs, found[-1], strict=True)
        if array.shape != spec.shape
    )
    raise InputError(
        f"{shown(Path(files[-1].path))}: {spec.name} has shape {list(shape)}, the network takes "
        f"{list(spec.shape)}",
        cure="give inputs of the network's shapes, or choose its shapes by --shape and --dim",
    )
