"""A sample of training programs kept with a model, for replay or to test it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel._base import LabelledPrograms, ProgramRows, Scores
from tunefleet.costmodel._lists import groups_of, numbers_of
from tunefleet.costmodel._rows import DistinctRows


@dataclass(frozen=True)
class Sample:
    """`tasks` are the task indices of the programs."""

    programs: Sequence[ProgramRows] = ()
    labels: Scores = field(default_factory=lambda: np.zeros(0))
    tasks: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of(cls, given: LabelledPrograms, most: int, longest: int, seed: int) -> Self:
        """At most `most` programs, `longest` per task: fewer tasks rather than shorter lists."""
        generator = np.random.default_rng(seed)
        groups = groups_of(given.tasks)
        chosen = np.zeros(0, np.int64)
        for number in generator.permutation(len(groups)).tolist():
            own = generator.permutation(groups[number])[: min(longest, most - len(chosen))]
            chosen = np.concatenate([chosen, own])
        if not len(chosen):
            return cls()
        drawn = given.take(chosen)
        return cls(drawn.programs, np.asarray(drawn.labels, float), numbers_of(drawn.tasks))

    def beside(self, other: Sample) -> Sample:
        """The union of both samples."""
        first = int(self.tasks.max(initial=-1)) + 1
        return Sample(
            [*self.programs, *other.programs],
            np.concatenate([self.labels, other.labels]),
            np.concatenate([self.tasks, first + other.tasks]),
        )

    def at_most(self, most: int, seed: int) -> Sample:
        """Random whole lists with at most `most` programs in total."""
        if len(self.programs) <= most:
            return self
        lists = groups_of([str(task) for task in self.tasks])
        order = np.random.default_rng(seed).permutation(len(lists))
        count = int(np.searchsorted(np.cumsum([len(lists[i]) for i in order]), most, "right"))
        chosen = np.concatenate([np.zeros(0, np.int64), *(lists[i] for i in sorted(order[:count]))])
        return Sample([self.programs[i] for i in chosen], self.labels[chosen], self.tasks[chosen])

    def measured(self, prefix: str = "") -> LabelledPrograms:
        """The programs with labels. Raises ValueError if there are none."""
        return LabelledPrograms(
            self.programs, self.labels, [f"{prefix}{task}" for task in self.tasks]
        )

    def among(self, given: LabelledPrograms) -> LabelledPrograms:
        """`given` together with these programs."""
        if not self.programs:
            return given
        own, others = self.measured("kept "), [f"new {task}" for task in given.tasks]
        return LabelledPrograms(
            [*given.programs, *own.programs],
            np.concatenate([given.labels, own.labels]),
            [*others, *own.tasks],
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays in a saved file, with each distinct row once."""
        if not self.programs:
            return {}
        data = DistinctRows.of(self.programs)
        return {
            "rows": data.distinct,
            "row": data.row.astype(np.int32),
            "sizes": data.sizes,
            "labels": self.labels,
            "tasks": self.tasks,
        }

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The inverse of `arrays`. Raises KeyError, IndexError and ValueError for other arrays."""
        if not arrays:
            return cls()
        rows, sizes = arrays["rows"][arrays["row"]], arrays["sizes"]
        labels, tasks = arrays["labels"], arrays["tasks"]
        if sizes.sum() != len(rows) or not len(sizes) == len(labels) == len(tasks):
            raise ValueError("kept programs with other lengths")
        programs = np.split(rows.astype(np.float32), np.cumsum(sizes)[:-1])
        return cls(programs, labels.astype(np.float64), tasks)
