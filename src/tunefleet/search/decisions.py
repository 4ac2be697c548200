"""The search space of a task as arrays of decisions: thousands of programs without TVM.

Sampling, mutating, crossing and writing traces are arithmetic on indices. TVM sees only programs
that are built, and replays the same program as MetaSchedule for these decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.core.forms import WINOGRAD, kind_of
from tunefleet.core.ids import canonical_json
from tunefleet.search.adapt import TransferSource, adapted, build_of
from tunefleet.search.choices import Ints
from tunefleet.search.population import Population
from tunefleet.search.sketch import Sketch

#: The share of random programs with register tiles of a designed size, where there are any. The
#: median of the other random programs takes ten times as long (docs/benchmarks.md, search).
_DESIGNED_SHARE = 0.75


def _likelihoods(designed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(sketches,) of random programs."""
    shares = np.where(designed, _DESIGNED_SHARE, 1 - _DESIGNED_SHARE)
    counts = np.where(designed, designed.sum(), (~designed).sum())
    likelihoods: NDArray[np.float64] = shares / counts / np.sum(shares / counts)
    return likelihoods


@dataclass(frozen=True, slots=True, eq=False)
class DecisionSpace:
    """All programs of a task on a target. The number of parallel outer loops and the maximum vector
    length are not searched: they are constants of the sketches.
    """

    sketches: tuple[Sketch, ...]
    #: For each sketch the kind of its programs (`core.forms.kind_of`).
    forms: NDArray[np.int64]
    #: The sketches' instructions as canonical JSON, and the structure that transfer sources share.
    _texts: tuple[str, ...]
    _builds: tuple[list[Any], ...]
    _likelihoods: NDArray[np.float64]

    @classmethod
    def of(cls, sketches: Sequence[Sketch]) -> DecisionSpace:
        """The space of some sketches, without their no-op instructions."""
        texts = tuple(canonical_json(sketch.instructions) for sketch in sketches)
        forms = np.array([kind_of(text) for text in texts], dtype=np.int64)
        builds = tuple(build_of(sketch.instructions) for sketch in sketches)
        return cls(tuple(sketches), forms, texts, builds, _likelihoods(forms > WINOGRAD))

    @property
    def choices(self) -> int:
        """The maximum number of choices of a sketch: the width of a population's picks."""
        return max(len(sketch.choices) for sketch in self.sketches)

    def sample(self, count: int, rng: np.random.Generator) -> Population:
        """Random programs. Tiles are sampled as by MetaSchedule; of sketches those with register
        tiles of a designed size are preferred, all of a group equally."""
        sketch = rng.choice(len(self.sketches), size=count, p=self._likelihoods)
        return self._each(sketch, lambda s, rows: self.sketches[s].sample(len(rows), rng))

    def mutate(self, population: Population, rng: np.random.Generator) -> Population:
        """Change one random decision of each program.

        A tile moves a prime factor between two parts or, with probability 1/2, becomes any other
        option. A compute location that the new tile makes invalid is lowered, as in TVM.
        """
        return self._each(
            population.sketch,
            lambda s, rows: self.sketches[s].mutate(self._picks(population, s, rows), rng),
        )

    def cross(self, a: Population, b: Population, rng: np.random.Generator) -> Population:
        """Uniform crossover of each program of `a` with a random one of `b` of the same sketch.

        A program without a partner is unchanged.
        """

        def child(s: int, rows: Ints) -> Ints:
            picks, others = self._picks(a, s, rows), self._picks(b, s, b.rows(s))
            if not len(others):
                return picks
            partners = others[rng.integers(len(others), size=len(picks))]
            return self.sketches[s].cross(picks, partners, rng)

        return self._each(a.sketch, child)

    def values(self, population: Population, sketch: int) -> list[Ints]:
        """The decisions of the programs of one sketch, in the order of `population.rows(sketch)`.

        One array (programs, parts) per choice: the factors of a tile, outermost first; the value of
        a category or the index of a location (parts = 1).
        """
        picks = self._picks(population, sketch, population.rows(sketch))
        return self.sketches[sketch].values(picks)

    def read(self, trace: str) -> Population | None:
        """The program of a trace of this task; None if it is not in this space.

        A trace with another parallel extent (MetaSchedule's search mutates it sometimes) or of
        another version of the search space is not; use `adapt` for those.
        """
        source = TransferSource.parse(trace)
        if source is None:
            return None
        text = canonical_json(source.instructions)
        for s, sketch in enumerate(self.sketches):
            if self._texts[s] == text:
                picks = sketch.find(source.decisions)
                return None if picks is None else self.population(s, picks[None])
        return None

    def adapt(self, trace: str) -> Population:
        """Programs of this task derived from the trace of a similar one; empty if no sketch has its
        structure. At most two: closest in the inner tile factors, and closest also in the outermost
        ones. Programs that violate this task's limits are dropped.
        """
        populations = [Population.empty(self.choices)]
        source = TransferSource.parse(trace)
        if source is None:
            return populations[0]
        build = build_of(source.instructions)
        for s, sketch in enumerate(self.sketches):
            if build == self._builds[s]:
                picks = adapted(source, sketch)
                populations.append(self.population(s, picks[sketch.keeps(picks)]))
        return Population.concat(populations).distinct()

    def traces(self, population: Population) -> list[str]:
        """The trace of each program as canonical JSON, without postprocessing (`replay.py`)."""
        traces = []
        for s, picks in zip(population.sketch, population.picks, strict=True):
            sketch = self.sketches[s]
            decisions = sketch.decisions(picks[: len(sketch.choices)])
            made = canonical_json([[i, decision] for i, decision in decisions.items()])
            traces.append(f"[{self._texts[s]},{made}]")
        return traces

    def _picks(self, population: Population, sketch: int, rows: NDArray[np.integer]) -> Ints:
        choices = len(self.sketches[sketch].choices)
        return population.picks[rows, :choices].astype(np.int64)

    def population(self, sketch: int, picks: Ints) -> Population:
        """Programs of one sketch, (programs, its choices)."""
        sketches = np.full(len(picks), sketch)
        return self._each(sketches, lambda s, rows: picks[rows])

    def _each(self, sketch: NDArray[np.integer], make: Callable[[int, Ints], Ints]) -> Population:
        """A population with these sketches; `make(sketch, rows)` returns the picks of its rows."""
        picks = np.full((len(sketch), self.choices), -1, dtype=np.int32)
        for s in range(len(self.sketches)):
            rows = np.flatnonzero(sketch == s)
            if len(rows):
                made = make(s, rows)
                picks[rows, : made.shape[1]] = made
        return Population(sketch.astype(np.int32), picks)
