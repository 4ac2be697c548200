"""The search space of a task as arrays of decisions: thousands of programs without TVM.

Sampling, mutating and crossing programs is arithmetic on indices, and so is writing a trace. TVM
sees only a program that is built, which is then the one MetaSchedule makes of these decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.core.forms import is_winograd
from tunefleet.core.ids import canonical_json
from tunefleet.search.adapt import TransferSource, adapted, build_of
from tunefleet.search.choices import Ints
from tunefleet.search.population import Population
from tunefleet.search.sketch import Sketch


@dataclass(frozen=True, slots=True, eq=False)
class DecisionSpace:
    """All programs of a task on a target, but for how many of the outer loops are run in parallel
    and how long vectors get at most: these two are constants of the sketches here.
    """

    sketches: tuple[Sketch, ...]
    #: Of each, the number of the task's form that it schedules (`forms.py`).
    forms: NDArray[np.int64]
    #: Their instructions as canonical JSON, and what transfer sources must have in common.
    _texts: tuple[str, ...]
    _builds: tuple[list[Any] | None, ...]

    @classmethod
    def of(cls, sketches: Sequence[Sketch]) -> DecisionSpace:
        """The space that sketches span, without instructions that change nothing."""
        texts = tuple(canonical_json(sketch.instructions) for sketch in sketches)
        forms = np.array([is_winograd(text) for text in texts], dtype=np.int64)
        builds = tuple(build_of(sketch.instructions) for sketch in sketches)
        return cls(tuple(sketches), forms, texts, builds)

    @property
    def choices(self) -> int:
        """The most choices of a sketch: the width of a population's picks."""
        return max(len(sketch.choices) for sketch in self.sketches)

    def sample(self, count: int, rng: np.random.Generator) -> Population:
        """Random programs, as MetaSchedule samples them: each sketch is as likely."""
        sketch = rng.integers(len(self.sketches), size=count)
        return self._each(sketch, lambda s, rows: self.sketches[s].sample(len(rows), rng))

    def mutate(self, population: Population, rng: np.random.Generator) -> Population:
        """One random decision of each program changes.

        A tile moves a prime factor from one part to another or, every other time, becomes any
        other one. A compute location that the new tile rules out changes along, as in TVM.
        """
        return self._each(
            population.sketch,
            lambda s, rows: self.sketches[s].mutate(self._picks(population, s, rows), rng),
        )

    def cross(self, a: Population, b: Population, rng: np.random.Generator) -> Population:
        """Each program of `a` with a random one of `b` of the same sketch, decision by decision.

        One without such a partner stays as it is.
        """

        def child(s: int, rows: Ints) -> Ints:
            picks, others = self._picks(a, s, rows), self._picks(b, s, b.rows(s))
            if not len(others):
                return picks
            partners = others[rng.integers(len(others), size=len(picks))]
            return self.sketches[s].cross(picks, partners, rng)

        return self._each(a.sketch, child)

    def values(self, population: Population, sketch: int) -> list[Ints]:
        """What the programs of one sketch decide, in the order of `population.rows(sketch)`.

        One array (programs, parts) per choice: the factors of a tile, outermost first, the value
        of a category, the index of a location (parts = 1).
        """
        picks = self._picks(population, sketch, population.rows(sketch))
        return self.sketches[sketch].values(picks)

    def read(self, trace: str) -> Population | None:
        """The program that a trace of this task makes; None when it is none of this space's.

        A trace with another parallel extent (MetaSchedule's own search changes it now and then)
        or of another version of the search space is none; `adapt` takes the next of kin.
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
        """Programs of this task after the trace of a similar one; empty when no sketch is built
        like it. At most two: nearest in the inner tile factors, and in the outermost besides; what
        breaks this task's limits is none.
        """
        populations = [Population.empty(self.choices)]
        source = TransferSource.parse(trace)
        build = build_of(source.instructions) if source else None
        if source is None or build is None:
            return populations[0]
        for s, sketch in enumerate(self.sketches):
            picks = adapted(source, sketch) if build == self._builds[s] else None
            if picks is not None:
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
        """A population with these sketches; `make` gives a sketch's picks for some of its rows."""
        picks = np.full((len(sketch), self.choices), -1, dtype=np.int32)
        for s in range(len(self.sketches)):
            rows = np.flatnonzero(sketch == s)
            if len(rows):
                made = make(s, rows)
                picks[rows, : made.shape[1]] = made
        return Population(sketch.astype(np.int32), picks)
