"""Free dimensions of inputs: the user's values, those that are safe to assume, and what is said of
the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tunefleet.compiler.frontends.spec import listed
from tunefleet.core.network import TensorSpec
from tunefleet.core.printing import quoted
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError, OptionsNeededError

#: Names that people and exporters give to the number of samples.
_BATCH = re.compile(r"(?i)^(n|b|bs|bsz|batch.*|.*batch(_?size)?|num_samples)$")
#: Names that exporters make up: they say nothing of what a dimension is.
_MADE_UP = re.compile(r"^(s\d+|unk__\d+|dynamic_axes_\w+|\?|-1|None|dim_?\d*|d\d+|.+\.\d+)$")


@dataclass(frozen=True, slots=True)
class FreeInput:
    """An input before its shape is fixed. An extent is a number, the name of a dimension, or None
    for a dimension that has no name."""

    name: str
    extents: tuple[int | str | None, ...]
    dtype: str

    def dim(self, axis: int) -> str:
        """What a user calls the free dimension of an axis."""
        extent = self.extents[axis]
        return extent if isinstance(extent, str) else f"{self.name}.{axis}"


@dataclass(frozen=True, slots=True)
class FixedInputs:
    """Inputs with static shapes, the value of each dimension that was free, by name, and what the
    user should know of values that they did not give."""

    specs: tuple[TensorSpec, ...]
    dims: dict[str, int]
    notes: tuple[str, ...]


def fixed_inputs(
    inputs: Sequence[FreeInput],
    request: ShapeRequest,
    what: str,
    defaults: Mapping[str, int] | None = None,
) -> FixedInputs:
    """The inputs of `what` (a path to show) with every dimension fixed.

    The user's values go first, then `defaults`, which the network itself knows; a leading batch
    dimension becomes 1. Raises InputError for names that the network does not have, for values
    that contradict it, and for dimensions that stay free, all of them at once.
    """
    if request.constants:
        raise InputError(
            f"{what}: an input can be made constant in ONNX files only",
            cure="export the network without it",
        )
    _check_names(inputs, request, what)
    dims = _given(inputs, request, what)
    notes = []
    for name, value in (defaults or {}).items():
        if name in _free_names(inputs) and name not in dims:
            dims[name] = value
            notes.append(f"{name} is {value}, as the network itself says")
    for name in _batches(inputs):
        if name not in dims:
            dims[name] = 1
            notes.append(f"the batch dimension {name} is 1 (--dim {quoted(f'{name}=N')})")
    _check_all_fixed(inputs, dims, what)
    specs = tuple(
        TensorSpec(
            spec.name,
            tuple(
                e if isinstance(e, int) else dims[spec.dim(axis)]
                for axis, e in enumerate(spec.extents)
            ),
            spec.dtype,
        )
        for spec in inputs
    )
    return FixedInputs(specs, dims, tuple(notes))


def _free_names(inputs: Sequence[FreeInput]) -> list[str]:
    names = [i.dim(a) for i in inputs for a, e in enumerate(i.extents) if not isinstance(e, int)]
    return list(dict.fromkeys(names))


def _check_names(inputs: Sequence[FreeInput], request: ShapeRequest, what: str) -> None:
    have = [spec.name for spec in inputs]
    for name, _ in request.shapes:
        if name not in have:
            raise InputError(f"{what} has no input {name}", cure=f"its inputs: {listed(have)}")
    free = _free_names(inputs)
    for name, _ in request.dims:
        if name not in free:
            raise InputError(
                f"{what} has no free dimension {name}",
                cure=f"its free dimensions: {listed(free)}" if free else "all its shapes are fixed",
            )


def _given(inputs: Sequence[FreeInput], request: ShapeRequest, what: str) -> dict[str, int]:
    """The values that the user gave, by dimension."""
    dims = {name: values[0] for name, values in request.dims}
    for spec in inputs:
        shape = request.shape_of(spec.name)
        if shape is None:
            continue
        if len(shape) != len(spec.extents):
            raise InputError(
                f"{what}: input {spec.name} has {len(spec.extents)} dimensions, "
                f"{len(shape)} were given",
                cure=f"its shape is {_shown(spec)}",
            )
        for axis, (value, extent) in enumerate(zip(shape, spec.extents, strict=True)):
            known = extent if isinstance(extent, int) else dims.setdefault(spec.dim(axis), value)
            if known != value:
                raise InputError(
                    f"{what}: axis {axis} of input {spec.name} is {known}, not {value}",
                    cure=f"its shape is {_shown(spec)}",
                )
    return dims


def _shown(spec: FreeInput) -> str:
    extents = [str(e) if isinstance(e, int) else spec.dim(a) for a, e in enumerate(spec.extents)]
    return ",".join(extents)


def _batches(inputs: Sequence[FreeInput]) -> list[str]:
    """Dimensions that are the number of samples by their place and, if they have one, name."""
    batches = []
    for spec in inputs:
        if not spec.extents or isinstance(spec.extents[0], int):
            continue
        name = spec.extents[0]
        said = name is not None and _BATCH.match(name)
        # A vector of unknown length is no batch, unless it says so.
        silent = len(spec.extents) > 1 and (name is None or _MADE_UP.match(name))
        if said or silent:
            batches.append(spec.dim(0))
    return list(dict.fromkeys(batches))


def _check_all_fixed(inputs: Sequence[FreeInput], dims: Mapping[str, int], what: str) -> None:
    places: dict[str, list[str]] = {}
    examples: dict[str, int] = {}
    for spec in inputs:
        for axis, extent in enumerate(spec.extents):
            name = spec.dim(axis)
            if isinstance(extent, int) or name in dims:
                continue
            places.setdefault(name, []).append(f"axis {axis} of {spec.name}")
            examples.setdefault(name, _example(spec, axis))
    if not places:
        return
    told = [f"{name} ({', '.join(where[:2])})" for name, where in places.items()]
    options = [f"--dim {quoted(f'{name}={examples[name]}')}" for name in places]
    # A path that was cut short for the message is not one to copy.
    network = "NETWORK" if what.startswith("...") else quoted(what)
    raise OptionsNeededError(
        f"{what} has free dimensions: {', '.join(told)}",
        cure=f"say what they are, such as: tunefleet tune {network} {' '.join(options)}",
    )


def _example(spec: FreeInput, axis: int) -> int:
    """A value to put into a command that is to be copied and changed."""
    if len(spec.extents) == 4:
        return 3 if axis == 1 else 224 if axis else 1
    return 128
