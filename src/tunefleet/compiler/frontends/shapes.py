"""Fixed shapes for inputs that a file leaves free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tunefleet.compiler.frontends.spec import listed
from tunefleet.errors import InputError

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]

#: Extents as a file has them; None where one is free.
FreeShape = Sequence[int | None]


def fixed_shapes(inputs: Mapping[str, FreeShape], given: Shapes, what: str) -> dict[str, Shape]:
    """The static shape of every input: as `given`, else as in the file with a batch of 1.

    The batch is the first axis. Raises one InputError that lists whatever else is free, and one
    for a shape that is given for no input, or that the file contradicts.
    """
    unknown = sorted(given.keys() - inputs.keys())
    if unknown:
        raise InputError(
            f"{what} has no input {listed(unknown)}", cure=f"its inputs are {listed(list(inputs))}"
        )
    for name, shape in given.items():
        _check_fits(name, inputs[name], shape, what)
    shapes = {name: tuple(given.get(name, _with_batch(shape))) for name, shape in inputs.items()}
    free = {name: shape for name, shape in shapes.items() if None in shape}
    if free:
        raise InputError(
            f"{what}: dimensions are free: {listed([f'{n} {_shown(s)}' for n, s in free.items()])}",
            cure="give the shape of each of these inputs",
        )
    return {name: tuple(extent for extent in shape if extent) for name, shape in shapes.items()}


def _with_batch(shape: FreeShape) -> FreeShape:
    return (1, *shape[1:]) if shape and shape[0] is None else shape


def _check_fits(name: str, free: FreeShape, shape: Shape, what: str) -> None:
    same_rank = len(free) == len(shape)
    if not same_rank or any(f not in (None, s) or s < 1 for f, s in zip(free, shape, strict=True)):
        raise InputError(
            f"{what}: input {name} is {_shown(free)}, which the shape {_shown(shape)} does not fit",
            cure="give a positive extent for each ?, and the other extents as they are",
        )


def _shown(shape: FreeShape) -> str:
    return "(" + ", ".join("?" if extent is None else str(extent) for extent in shape) + ")"
