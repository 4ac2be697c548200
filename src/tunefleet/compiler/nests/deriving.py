"""The behaviours of a sketch's programs from their decisions."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tunefleet.compiler.nests.program import Program
from tunefleet.compiler.nests.reading import template_of
from tunefleet.compiler.nests.statements import statements
from tunefleet.compiler.nests.template import Template, Unanswered
from tunefleet.core.target import Target
from tunefleet.features.behaviours import Statement
from tunefleet.search.choices import Ints, Location
from tunefleet.search.sketch import Sketch

#: Of a compute location.
_INLINED = -2


class Derived:
    """What the programs of a sketch do."""

    def __init__(self, module: Any, target: Target, sketch: Sketch) -> None:
        self._module = module
        self._target = target
        self._sketch = sketch
        self._located = next(
            (i for i, c in enumerate(sketch.choices) if isinstance(c, Location)), None
        )
        #: By whether a block with a location is inlined; why there is none, where there is none.
        self._templates: dict[bool, Template | Unanswered] = {}
        self.why: Counter[str] = Counter()

    def statements(self, picks: Ints) -> list[list[Statement] | None]:
        """Of programs (programs, choices); None where it cannot be told from the decisions."""
        values = [v.tolist() for v in self._sketch.values(self._sketch.settled(picks))]
        return [self._one([v[i] for v in values]) for i in range(len(picks))]

    def _one(self, values: Any) -> list[Statement] | None:
        inlined = self._located is not None and values[self._located][0] == _INLINED
        try:
            return statements(Program(self._template(inlined), values))
        except Unanswered as reason:
            self.why[str(reason)] += 1
            return None

    def _template(self, inlined: bool) -> Template:
        if inlined not in self._templates:
            try:
                self._templates[inlined] = template_of(
                    self._module, self._target, self._sketch, inlined=inlined
                )
            except Unanswered as reason:
                self._templates[inlined] = reason
        template = self._templates[inlined]
        if isinstance(template, Unanswered):
            raise template
        return template
