"""How far what was learned reaches: programs of devices that none has recorded.

A committee whose members lack a device each (`_forest.py`) ranks the programs of just that device.
How well it does depends on how much of them is new to it: what one tuner's programs taught says
nothing of another's, or the contrary of what is true. `known` is the slope of a line through
the origin, pairs ordered right beyond chance over the share of pairs of rows that were known, from
which follows what to expect of a device that no member has seen. Other programs of known devices
are points of the line too: where a device has nothing in common with the others, they alone tell.

One thing holds for programs that are all new too: extremes are rarely good. A program is the more
typical the nearer it is to the mean of those that it is compared with, and what that is worth
is measured on the same devices. Scores and typicality are weighed by what is expected of each, as
the best linear mixture of two predictors that do not depend on one another would weigh them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel import metrics
from tunefleet.costmodel._base import LabelledPrograms, ProgramRows, Scores
from tunefleet.costmodel._domains import PLACES
from tunefleet.costmodel._forest import Table
from tunefleet.costmodel._lists import groups_of
from tunefleet.costmodel._rows import DistinctRows

Codes = NDArray[np.int64]

#: Of fewer programs an order says little.
_LEAST = 5
#: How much more a score weighs than its pairs say: all of a model know more than a member.
_SAID = 4.0
#: What is typical decides where neither was worth anything: an order is asked for in any case.
_LITTLE = 1e-3


@dataclass(frozen=True)
class Reach:
    """`words` (distinct rows,) are digests of the rows that were learned; `known` and `typical`
    what share of pairs is ordered right beyond a half: by a committee, of programs whose rows it
    all knows, and by what is typical."""

    words: Codes
    known: float
    typical: float

    @classmethod
    def of(
        cls,
        given: LabelledPrograms,
        parts: Sequence[Codes],
        told: NDArray[np.float64],
        held: LabelledPrograms,
        of_held: Scores,
    ) -> Self:
        """`told` (members, programs) are the labels that each member of a committee predicts, which
        has not learned the part of the same number; `of_held` those that all members together,
        who have learned all that is `given`, predict of other programs of the same devices."""
        rows = _Rows.of(given.programs)
        everywhere = rows.counts(np.arange(len(given.programs)))
        tests = _Tests()
        for part, labels in zip(parts, told, strict=False):
            shares = rows.shares(everywhere > rows.counts(part))
            tests.add(given.take(part), labels[part], shares[part])
        devices = tests.typical()
        tests.add(held, of_held, _Rows.of(held.programs).known(rows.digests))
        return cls(rows.digests, tests.slope(), devices)

    def familiar(self, programs: Sequence[ProgramRows]) -> Scores:
        """(programs,): the share of each program's rows that were learned."""
        return _Rows.of(programs).known(self.words)

    def mixed(self, scores: Scores, programs: Sequence[ProgramRows], agreed: float) -> Scores:
        """Scores of programs of one task of a device that none has recorded, about as large as
        they were. Members of the committee agree on the share `agreed` of what they say."""
        known = min(0.5, self.known * float(self.familiar(programs).mean()) ** 2)
        mixture = _SAID * agreed * known * _standard(scores)
        mixture += max(self.typical, _LITTLE) * _standard(typical(programs))
        spread = float(scores.std()) or _LITTLE
        mixed: Scores = scores.mean() + spread * _standard(mixture)
        return mixed

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As they are saved."""
        return {"words": self.words, "worth": np.array([self.known, self.typical])}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """What `arrays` gave. Raises KeyError and ValueError for anything else."""
        words, (known, of_typical) = arrays["words"], arrays["worth"].tolist()
        if words.dtype != np.int64 or words.ndim != 1:
            raise ValueError("words of another form")
        if not (0 <= known < np.inf and 0 <= of_typical <= 0.5):
            raise ValueError("more pairs than there are")
        return cls(words, known, of_typical)


def typical(programs: Sequence[ProgramRows]) -> Scores:
    """(programs,): how near each is to the mean of all, 0 for the nearest that can be. A number
    counts by how many deviations it is off, all numbers alike."""
    rows = Table.of(programs).rows(programs).astype(np.float64)
    deviation = rows.std(axis=0)
    rows, deviation = rows[:, deviation > 10.0**-PLACES], deviation[deviation > 10.0**-PLACES]
    if not rows.shape[1]:
        return np.zeros(len(programs))
    away: Scores = (((rows - rows.mean(axis=0)) / deviation) ** 2).mean(axis=1)
    return -away


@dataclass(frozen=True)
class _Rows:
    """Rows of programs but for their first, which tells of task and device: `digests` of distinct
    ones; row i is number `which[i]` of them, in program `owner[i]`."""

    digests: Codes
    which: Codes
    owner: Codes
    programs: int

    @classmethod
    def of(cls, programs: Sequence[ProgramRows]) -> Self:
        data = DistinctRows.of(programs)
        owner = np.repeat(np.arange(len(programs)), data.sizes)
        later = np.ones(len(owner), bool)
        later[data.starts] = False
        used, which = np.unique(data.row[later], return_inverse=True)
        # Adding zero makes a zero of a negative one.
        rounded = np.round(data.distinct[used], PLACES) + np.float32(0)
        digests = [
            int.from_bytes(blake2b(row.tobytes(), digest_size=8).digest(), "little", signed=True)
            for row in rounded
        ]
        told_apart, number = np.unique(np.array(digests, np.int64), return_inverse=True)
        return cls(told_apart, number[which], owner[later], len(programs))

    def known(self, words: Codes) -> Scores:
        """(programs,): the share of each program's rows whose digest is among `words`."""
        return self.shares(np.isin(self.digests, words))

    def counts(self, chosen: Codes) -> Codes:
        """(distinct,): how often each is in these programs."""
        inside = np.zeros(self.programs, bool)
        inside[chosen] = True
        return np.bincount(self.which[inside[self.owner]], minlength=len(self.digests))

    def shares(self, known: NDArray[np.bool_]) -> Scores:
        """(programs,): the share of each program's rows that are `known` (distinct,). Of a program
        that has none nothing is new."""
        rows = np.bincount(self.owner, minlength=self.programs)
        found = np.bincount(self.owner, known[self.which], minlength=self.programs)
        return np.where(rows > 0, found / np.maximum(rows, 1), 1.0)


class _Tests:
    """Lists of programs that were ranked: how many, what share of their rows was known, and pairs
    ordered right beyond chance by those who ranked them and by what is typical."""

    def __init__(self) -> None:
        self._found: list[tuple[float, float, float, float]] = []

    def add(self, given: LabelledPrograms, scores: Scores, shares: Scores) -> None:
        for own in groups_of(given.tasks):
            labels = given.labels[own]
            if len(own) < _LEAST or np.ptp(labels) == 0:
                continue
            of_list = typical([given.programs[number] for number in own])
            known, found = (
                metrics.pairwise_accuracy(labels, each) - 0.5 for each in (scores[own], of_list)
            )
            self._found.append((len(own), float(shares[own].mean()), known, found))

    def slope(self) -> float:
        size, share, known, _ = self._columns()
        pairs = share**2
        weight = float((size * pairs**2).sum())
        return max(0.0, float((size * pairs * known).sum()) / weight) if weight > 0 else 0.0

    def typical(self) -> float:
        size, *_, found = self._columns()
        return max(0.0, float((size * found).sum() / size.sum())) if len(size) else 0.0

    def _columns(self) -> NDArray[np.float64]:
        return np.array(self._found, float).reshape(-1, 4).T


def _standard(values: Scores) -> Scores:
    """Of mean 0 and deviation 1, or all 0."""
    spread = values.std()
    return (values - values.mean()) / spread if spread > 0 else np.zeros(len(values))
