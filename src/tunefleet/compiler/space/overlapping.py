"""Vectors over columns that they do not divide: the last one begins earlier, so some columns are
computed twice, alike, and no vector is cut."""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.toolchain import load_tvm

tirx = load_tvm().tirx


class OtherColumns(Exception):
    """A statement reads other columns than the one that it computes."""


class Overlapping:
    """Vectors of `lanes` over so many columns; `computed` are those that they have in all."""

    def __init__(self, columns: int, lanes: int, index_type: str) -> None:
        self._columns, self._lanes = columns, lanes
        self.computed = -(-columns // lanes) * lanes
        #: The column of a statement that is computed in the vectors, until it is known.
        self.variable = tirx.Var("v_column", index_type)

    def column(self, place: Any) -> Any:
        """The column that is computed at a place of the vectors."""
        first = tirx.floordiv(place, self._lanes) * self._lanes
        return tirx.min(first, self._columns - self._lanes) + tirx.floormod(place, self._lanes)

    def place(self, column: Any, place: Any) -> Any:
        """Where the column that is computed at a place lies: there. Raises OtherColumns for
        another one, which may lie anywhere."""
        if not column.same_as(self.variable):
            raise OtherColumns
        return place
