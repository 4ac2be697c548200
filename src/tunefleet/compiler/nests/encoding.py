"""Encodes many programs of a task as `behaviours/1`, lowering only few of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.code.loop_nests import statements_of
from tunefleet.compiler.code.replay import replay
from tunefleet.compiler.nests.deriving import Derived
from tunefleet.compiler.nests.reading import template_of
from tunefleet.compiler.space.opening import task_space
from tunefleet.compiler.space.padded_rows import form_of
from tunefleet.compiler.toolchain.programs import load_program
from tunefleet.core.ids import canonical_json
from tunefleet.core.target import Target
from tunefleet.errors import raise_mistake
from tunefleet.features.behaviours import Statement, encode
from tunefleet.search.choices import Category, Ints
from tunefleet.search.population import Population

Array = NDArray[np.float32]

_UNROLLED = ("meta_schedule.unroll_explicit", "meta_schedule.unroll_implicit")


@dataclass
class Counts:
    """Numbers of programs by the source of their statements."""

    derived: int = 0
    remembered: int = 0
    lowered: int = 0
    rejected: int = 0


@dataclass
class TaskBehaviours:
    """The behaviours of a task's programs on a target. Not thread-safe.

    Statements are derived from the decisions where that is exact (`Derived`). Otherwise a program
    is lowered, once for all programs that differ only in the number of unrolled steps. `counts` and
    `why` (by sketch) are statistics.
    """

    program: str
    target: Target
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self._space = task_space(self.program, self.target).decisions
        self._derived: dict[int, Derived] = {}
        self._remembered: dict[tuple[int, bytes], list[Statement] | None] = {}

    def encode(self, population: Population, context: Array) -> list[Array | None]:
        """(rows, WIDTH) of each program, equal to those of its lowered form; None if TVM rejects
        it. `context` (32,) are the task and device features."""
        rows: list[Array | None] = [None] * len(population.sketch)
        for number, sketch in enumerate(self._space.sketches):
            members = population.rows(number)
            if not len(members):
                continue
            picks = population.picks[members, : len(sketch.choices)].astype(np.int64)
            for place, found in zip(members, self.statements(number, picks), strict=True):
                rows[place] = None if found is None else encode(found, context)
        return rows

    def statements(self, number: int, picks: Ints) -> list[list[Statement] | None]:
        """Statements of programs (programs, choices) of a sketch; None if TVM rejects one."""
        settled = self._space.sketches[number].settled(picks)
        found = self.derived(number).statements(settled)
        self.counts.derived += sum(each is not None for each in found)
        return [
            self._remember(number, one) if each is None else each
            for each, one in zip(found, settled, strict=True)
        ]

    def derived(self, number: int) -> Derived:
        """The derivation for sketch `number`."""
        if number not in self._derived:
            sketch = self._space.sketches[number]
            form = form_of(load_program(self.program), canonical_json(sketch.instructions))
            self._derived[number] = Derived(
                sketch,
                partial(template_of, form, self.target, sketch),
                partial(self.lowered, number),
            )
        return self._derived[number]

    def lowered(self, number: int, picks: Ints) -> list[Statement] | None:
        """The statements of one lowered program (choices,) of a sketch; takes some 20 ms."""
        (trace,) = self._space.traces(self._space.population(number, picks[None]))
        try:
            schedule = replay(load_program(self.program), self.target, trace)
            return statements_of(schedule.mod)
        except Exception as error:
            raise_mistake(error)
            return None

    def _remember(self, number: int, picks: Ints) -> list[Statement] | None:
        key = number, self._distinguishing(number, picks)
        if key in self._remembered:
            self.counts.remembered += 1
        else:
            self._remembered[key] = self.lowered(number, picks)
            self.counts.lowered += 1
        self.counts.rejected += self._remembered[key] is None
        return self._remembered[key]

    def _distinguishing(self, number: int, picks: Ints) -> bytes:
        """Picks with the number of unrolled steps reduced to whether any are unrolled: the loops
        here do not depend on the number."""
        sketch = self._space.sketches[number]
        named = {
            str(inputs[1])
            for kind, inputs, attributes, _ in sketch.instructions
            if kind == "Annotate" and attributes[0] in _UNROLLED
        }
        reduced = picks.copy()
        for i, (choice, position) in enumerate(zip(sketch.choices, sketch.positions, strict=True)):
            if isinstance(choice, Category) and sketch.instructions[position][3][0] in named:
                reduced[i] = choice.options[picks[i], 0] > 0
        return reduced.tobytes()
