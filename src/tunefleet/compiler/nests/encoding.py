"""The behaviours (`behaviours/1`) of many programs of a task, few of which are lowered."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.code.loop_nests import statements_of
from tunefleet.compiler.code.replay import replay
from tunefleet.compiler.graph.forms import forms
from tunefleet.compiler.nests.deriving import Derived
from tunefleet.compiler.nests.reading import template_of
from tunefleet.compiler.space.opening import task_space
from tunefleet.compiler.toolchain.programs import load_program
from tunefleet.core.target import Target
from tunefleet.errors import raise_mistake
from tunefleet.features.behaviours import Statement, encode
from tunefleet.search.choices import Category, Ints
from tunefleet.search.population import Population

Array = NDArray[np.float32]

_UNROLLED = ("meta_schedule.unroll_explicit", "meta_schedule.unroll_implicit")


@dataclass
class Counts:
    """Programs by where their statements are from."""

    derived: int = 0
    remembered: int = 0
    lowered: int = 0
    rejected: int = 0


@dataclass
class TaskBehaviours:
    """The behaviours of a task's programs on a target. Not for several threads at once.

    What a program does follows from its decisions where that is exact (`Derived`). Where it is
    not, a program is lowered, once for all that differ from it in how many steps are unrolled.
    `counts` and `why` (by sketch) tell of what was asked so far.
    """

    program: str
    target: Target
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self._space = task_space(self.program, self.target).decisions
        self._derived: dict[int, Derived] = {}
        self._remembered: dict[tuple[int, bytes], list[Statement] | None] = {}

    def encode(self, population: Population, told: Array) -> list[Array | None]:
        """Of each program (rows, WIDTH), equal to those of its lowered form; None for one that TVM
        rejects. `told` (32,) is their context."""
        rows: list[Array | None] = [None] * len(population.sketch)
        for number, sketch in enumerate(self._space.sketches):
            members = population.rows(number)
            if not len(members):
                continue
            picks = population.picks[members, : len(sketch.choices)].astype(np.int64)
            for place, found in zip(members, self.statements(number, picks), strict=True):
                rows[place] = None if found is None else encode(found, told)
        return rows

    def statements(self, number: int, picks: Ints) -> list[list[Statement] | None]:
        """Of programs (programs, choices) of sketch `number`; None for one that TVM rejects."""
        settled = self._space.sketches[number].settled(picks)
        found = self.derived(number).statements(settled)
        self.counts.derived += sum(each is not None for each in found)
        return [
            self._remember(number, one) if each is None else each
            for each, one in zip(found, settled, strict=True)
        ]

    def derived(self, number: int) -> Derived:
        """What tells the programs of sketch `number` from their decisions."""
        if number not in self._derived:
            sketch = self._space.sketches[number]
            form = forms(load_program(self.program))[self._space.forms[number]]
            self._derived[number] = Derived(
                sketch,
                partial(template_of, form, self.target, sketch),
                partial(self.lowered, number),
            )
        return self._derived[number]

    def lowered(self, number: int, picks: Ints) -> list[Statement] | None:
        """Of one program (choices,) of sketch `number`, as it is lowered; some 20 ms."""
        (trace,) = self._space.traces(self._space.population(number, picks[None]))
        try:
            schedule = replay(load_program(self.program), self.target, trace)
            return statements_of(schedule.mod)
        except Exception as error:
            raise_mistake(error)
            return None

    def _remember(self, number: int, picks: Ints) -> list[Statement] | None:
        key = number, self._telling(number, picks)
        if key in self._remembered:
            self.counts.remembered += 1
        else:
            self._remembered[key] = self.lowered(number, picks)
            self.counts.lowered += 1
        self.counts.rejected += self._remembered[key] is None
        return self._remembered[key]

    def _telling(self, number: int, picks: Ints) -> bytes:
        """Picks, but of how many steps are unrolled whether any are: no loop that is lowered here
        differs by their number."""
        sketch = self._space.sketches[number]
        named = {
            str(inputs[1])
            for kind, inputs, attributes, _ in sketch.instructions
            if kind == "Annotate" and attributes[0] in _UNROLLED
        }
        told = picks.copy()
        for i, (choice, position) in enumerate(zip(sketch.choices, sketch.positions, strict=True)):
            if isinstance(choice, Category) and sketch.instructions[position][3][0] in named:
                told[i] = choice.options[picks[i], 0] > 0
        return told.tobytes()
