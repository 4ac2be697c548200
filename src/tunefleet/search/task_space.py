"""The decision space of a task with the inputs of its cost model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tunefleet.features.tilings import Array, Encoded, Encoder
from tunefleet.search.decisions import DecisionSpace
from tunefleet.search.population import Population
from tunefleet.search.sketch import Sketch


class TaskSpace:
    """The decision space of a task and the features of its programs."""

    def __init__(self, sketches: Sequence[Sketch], shapes: tuple[tuple[int, ...], ...]) -> None:
        """`shapes` are those of the program's arguments, outputs included."""
        self.decisions = DecisionSpace.of(sketches)
        self.shapes = shapes
        self._encoders = [
            Encoder(s.instructions, s.positions, [choice.options for choice in s.choices])
            for s in self.decisions.sketches
        ]
        self._read = lru_cache(maxsize=4096)(self._parsed)

    def read(self, traces: Iterable[str]) -> Population:
        """The programs of measured traces; a trace outside this space is adapted to it."""
        return self._joined(map(self._read, traces))

    def adapted(self, traces: Iterable[str]) -> Population:
        """Programs of this task adapted from traces of others."""
        return self._joined(map(self.decisions.adapt, traces))

    def _joined(self, populations: Iterable[Population]) -> Population:
        return Population.concat([Population.empty(self.decisions.choices), *populations])

    def _parsed(self, trace: str) -> Population:
        exact = self.decisions.read(trace)
        if exact is not None:
            return exact
        adapted = self.decisions.adapt(trace)
        return adapted.take(np.arange(min(1, len(adapted))))

    def encoded(
        self, population: Population, numbers: Array
    ) -> Iterator[tuple[NDArray[np.intp], Encoded]]:
        """The features of the programs of each sketch, and their rows in the population."""
        for sketch, encoder in enumerate(self._encoders):
            members = population.rows(sketch)
            if len(members):
                choices = len(self.decisions.sketches[sketch].choices)
                picks = population.picks[members, :choices].astype(np.int64)
                yield members, encoder.encode(picks, numbers)
