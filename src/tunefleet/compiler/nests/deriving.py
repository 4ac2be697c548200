"""Derives the statements of a sketch's programs from their decisions, where that is exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from tunefleet.compiler.nests.program import TemplateProgram
from tunefleet.compiler.nests.statements import statements
from tunefleet.compiler.nests.template import Template, Unanswered
from tunefleet.features.behaviours import Statement
from tunefleet.search.choices import Ints, Location
from tunefleet.search.sketch import Sketch

#: The compute location of an inlined block.
_INLINED = -2
#: The number of lowered programs that validate a template.
_CHECKED = 2


class Derived:
    """The statements of a sketch's programs (schema `behaviours/1`) from their decisions.

    A template describes the blocks and loops of the programs, and the tile part of each loop;
    extents and strides follow from it (`program.py`). Programs with an inlined block have another
    template. `read(inlined)` creates a template; it raises Unanswered. `lowered(picks)` returns the
    statements of a lowered program, None if TVM rejects it; a template that disagrees with one of
    the first programs is discarded. `why` counts the reasons for underivable programs.
    """

    def __init__(
        self,
        sketch: Sketch,
        read: Callable[[bool], Template],
        lowered: Callable[[Ints], list[Statement] | None],
    ) -> None:
        self._sketch = sketch
        self._read = read
        self._lowered = lowered
        places = (i for i, c in enumerate(sketch.choices) if isinstance(c, Location))
        self._located = next(places, None)
        self._templates: dict[bool, Template | Unanswered] = {}
        self.why: Counter[str] = Counter()

    def statements(self, picks: Ints) -> list[list[Statement] | None]:
        """The statements for settled picks (programs, choices); None where not derivable."""
        values = [each.tolist() for each in self._sketch.values(picks)]
        return [self._told([each[i] for each in values]) for i in range(len(picks))]

    def _told(self, values: Sequence[Sequence[int]]) -> list[Statement] | None:
        inlined = self._located is not None and values[self._located][0] == _INLINED
        if inlined not in self._templates:
            self._templates[inlined] = self._believed(inlined)
        template = self._templates[inlined]
        try:
            if isinstance(template, Unanswered):
                raise template
            return statements(TemplateProgram(template, values))
        except Unanswered as reason:
            self.why[str(reason)] += 1
            return None

    def _believed(self, inlined: bool) -> Template | Unanswered:
        try:
            template = self._read(inlined)
        except Unanswered as reason:
            return reason
        drawn = self._sketch.settled(self._sketch.sample(64 * _CHECKED, np.random.default_rng(0)))
        if self._located is not None:
            places = self._sketch.values(drawn)[self._located][:, 0]
            drawn = drawn[(places == _INLINED) == inlined]
        for picks in drawn[:_CHECKED]:
            values = [each[0].tolist() for each in self._sketch.values(picks[None])]
            lowered = self._lowered(picks)
            try:
                if lowered is not None and statements(TemplateProgram(template, values)) != lowered:
                    return Unanswered("a program that was lowered does something else")
            except Unanswered:
                continue
        return template
