"""Values that a user chooses for the free dimensions of a network, and constant inputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

#: The most shapes of one artifact: each adds the tuning time of its tasks.
MOST_VARIANTS = 16

Extents = tuple[int, ...]
#: The values of a constant input in row-major order.
Constants = tuple[tuple[str, tuple[float, ...]], ...]


@dataclass(frozen=True, slots=True)
class ShapeRequest:
    """Values for free dimensions, by the names of inputs and of dimensions.

    `shapes` are whole shapes of inputs, `dims` values of single dimensions. An unnamed dimension is
    called `INPUT.AXIS`. Several values for one name request one artifact for all of them.
    `constants` replaces inputs by constant values, by name.
    """

    shapes: tuple[tuple[str, tuple[Extents, ...]], ...] = ()
    dims: tuple[tuple[str, tuple[int, ...]], ...] = ()
    constants: Constants = ()

    def __post_init__(self) -> None:
        for name, alternatives in self.shapes:
            if not alternatives or any(e < 0 for extents in alternatives for e in extents):
                raise ValueError(f"shape of {name}: give at least one; no extent is negative")
        for name, values in self.dims:
            if not values or min(values) < 0:
                raise ValueError(f"dimension {name}: give at least one value; none is negative")
        if any(not values for _, values in self.constants):
            raise ValueError("a constant needs at least one value")
        for name, numbers in self.constants:
            if not all(-math.inf < number < math.inf for number in numbers):
                raise ValueError(f"constant {name}: values must be finite numbers")
        for given in (self.shapes, self.dims, self.constants):
            names = [name for name, _ in given]
            if len(set(names)) != len(names):
                raise ValueError("a name is given twice")

    def __bool__(self) -> bool:
        return bool(self.shapes or self.dims or self.constants)

    @classmethod
    def of(
        cls,
        shapes: Iterable[tuple[str, Extents]] = (),
        dims: Iterable[tuple[str, Iterable[int]]] = (),
        constants: Iterable[tuple[str, Iterable[float]]] = (),
    ) -> ShapeRequest:
        """From (name, value) pairs; a name may occur several times."""
        by_input: dict[str, list[Extents]] = {}
        for name, extents in shapes:
            alternatives = by_input.setdefault(name, [])
            if tuple(extents) not in alternatives:
                alternatives.append(tuple(extents))
        by_dim: dict[str, list[int]] = {}
        for name, values in dims:
            by_dim[name] = list(dict.fromkeys([*by_dim.get(name, []), *values]))
        return cls(
            tuple((name, tuple(choices)) for name, choices in by_input.items()),
            tuple((name, tuple(numbers)) for name, numbers in by_dim.items()),
            tuple((name, tuple(values)) for name, values in constants),
        )

    def variants(self) -> list[ShapeRequest]:
        """Every combination of the values, each a request with one value for each name."""
        by_input = [[(name, (value,)) for value in values] for name, values in self.shapes]
        by_dim = [[(name, (value,)) for value in values] for name, values in self.dims]
        return [
            ShapeRequest(shapes, dims, self.constants)
            for shapes in itertools.product(*by_input)
            for dims in itertools.product(*by_dim)
        ]

    def shape_of(self, name: str) -> Extents | None:
        """The single shape of an input, None if it is not given."""
        return next((alternatives[0] for n, alternatives in self.shapes if n == name), None)
