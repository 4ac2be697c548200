"""What the programs of a sketch do, from their decisions alone, where that is exact."""

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

#: Of a compute location: the block is inlined.
_INLINED = -2
#: Programs that are lowered before a template is believed.
_CHECKED = 2


class Derived:
    """The statements of a sketch's programs (schema `behaviours/1`) from their decisions.

    A template says which blocks and loops the programs have and which part of which tile each loop
    is; extents and strides follow (`program.py`). There is another one where a block is inlined.
    `read(inlined)` makes a template; it raises Unanswered. `lowered(picks)` are the statements of
    one program as they are lowered, None for one that TVM rejects: a template that says otherwise
    of one of the first programs is given up. `why` counts the reasons of what was not answered.
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
        """Of settled picks (programs, choices); None where it does not follow from them."""
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
