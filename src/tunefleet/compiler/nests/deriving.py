"""The behaviours of a sketch's programs from their decisions."""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.nests.program import Program
from tunefleet.compiler.nests.reading import template_of
from tunefleet.compiler.nests.statements import statements
from tunefleet.compiler.nests.template import Unanswered
from tunefleet.features.behaviours import Statement
from tunefleet.search.choices import Ints
from tunefleet.search.sketch import Sketch


class Derived:
    """What the programs of a sketch do."""

    def __init__(self, module: Any, sketch: Sketch) -> None:
        self.sketch = sketch
        self.why = ""
        try:
            self.template = template_of(module, sketch)
        except Unanswered as reason:
            self.template, self.why = None, str(reason)

    def statements(self, picks: Ints) -> list[list[Statement] | None]:
        """Of programs (programs, choices); None where it cannot be told from the decisions."""
        if self.template is None:
            return [None] * len(picks)
        values = [v.tolist() for v in self.sketch.values(self.sketch.settled(picks))]
        return [self._one([v[i] for v in values]) for i in range(len(picks))]

    def _one(self, values: Any) -> list[Statement] | None:
        try:
            return statements(Program(self.template, values))
        except Unanswered as reason:
            self.why = str(reason)
            return None
