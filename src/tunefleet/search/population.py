"""Many programs of a task as arrays of decisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """N programs. `sketch` (N,) are indices into the space's sketches. `picks` (N, max choices)
    are indices into the options of each choice of that sketch, and -1 beyond its choices.
    """

    sketch: Ints
    picks: Ints

    def __post_init__(self) -> None:
        if self.sketch.ndim != 1 or self.picks.ndim != 2 or len(self.sketch) != len(self.picks):
            raise ValueError(f"sketches {self.sketch.shape} and picks {self.picks.shape} disagree")

    @classmethod
    def empty(cls, choices: int) -> Population:
        return cls(np.zeros(0, dtype=np.int32), np.zeros((0, choices), dtype=np.int32))

    @classmethod
    def concat(cls, populations: Sequence[Population]) -> Population:
        """Concatenate one or more populations of the same space."""
        return cls(
            np.concatenate([p.sketch for p in populations]),
            np.concatenate([p.picks for p in populations]),
        )

    def __len__(self) -> int:
        return len(self.sketch)

    def __iter__(self) -> Iterator[Population]:
        """The programs, each as a population of one."""
        return (self.take(np.array([i])) for i in range(len(self)))

    def take(self, indices: NDArray[np.integer] | NDArray[np.bool_]) -> Population:
        return Population(self.sketch[indices], self.picks[indices])

    def rows(self, sketch: int) -> NDArray[np.intp]:
        """Indices of the programs of one sketch."""
        return np.flatnonzero(self.sketch == sketch)

    def keys(self) -> list[bytes]:
        """One key per program, equal for equal decisions."""
        width = self.picks.shape[1] + 1
        table = np.ascontiguousarray(np.column_stack([self.sketch, self.picks]), dtype=np.int32)
        keys: list[bytes] = table.view(f"V{4 * width}").ravel().tolist()
        return keys

    def not_in(self, other: Population) -> NDArray[np.bool_]:
        """(N,) whether the program is missing in `other`, of the same space."""
        known = set(other.keys())
        return np.array([key not in known for key in self.keys()], dtype=bool)

    def distinct(self) -> Population:
        """The population without duplicates, in the order of first occurrence."""
        seen = {key: i for i, key in reversed(list(enumerate(self.keys())))}
        return self.take(np.array(sorted(seen.values()), dtype=np.int64))
