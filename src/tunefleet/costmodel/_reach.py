"""Reach of a training: how well it ranks programs of devices without records.

A committee whose members lack one device each (`_forest.py`) ranks the programs of that device. Its
accuracy depends on the share of new rows in them: the programs of one tuner may say nothing about
those of another, or mislead. `known` is the slope of a line through the origin, correctly ordered
pairs beyond chance over the share of pairs of rows that were known. The line gives the expected
accuracy on a device that no member has seen. Other programs of known devices are points of the
line too; they are the only ones if a device has nothing in common with the others.

Even for programs with only new rows, extremes are rarely fast. A program is more typical the nearer
it is to the mean of the programs that it is compared with; the accuracy of this ranking is measured
on the same devices. Scores and typicality are weighted by their expected accuracy, like the best
linear combination of two independent predictors.
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

#: The order of fewer programs is not meaningful.
_LEAST = 5
#: Factor on the weight of a score: a full model knows more than a member.
_SAID = 4.0
#: Minimum weight of typicality: it decides if neither predictor is better than chance.
_LITTLE = 1e-3


@dataclass(frozen=True)
class Reach:
    """`words` (distinct rows,) are digests of the trained rows, sorted; `known` and `typical` are
    the shares of correctly ordered pairs beyond one half: by a committee for programs with known
    rows only, and by typicality."""

    words: Codes
    known: float
    typical: float

    @classmethod
    def of(
        cls,
        given: LabelledPrograms,
        parts: Sequence[Codes],
        by_member: NDArray[np.float64],
        held: LabelledPrograms,
        of_held: Scores,
    ) -> Self:
        """`by_member` (members, programs) are the labels predicted by each member of a committee,
        which was trained without the part of the same index; `of_held` are the labels of the full
        forest, trained on all of `given`, for other programs of the same devices."""
        rows = _Rows.of(given.programs)
        everywhere = rows.counts(np.arange(len(given.programs)))
        tests = _Tests()
        for part, labels in zip(parts, by_member, strict=False):
            shares = rows.shares(everywhere > rows.counts(part))
            tests.add(given.take(part), labels[part], shares[part])
        devices = tests.typical()
        tests.add(held, of_held, _Rows.of(held.programs).known(rows.digests))
        return cls(rows.digests, tests.slope(), devices)

    def familiar(self, programs: Sequence[ProgramRows]) -> Scores:
        """(programs,): the share of each program's rows that were trained on."""
        return _Rows.of(programs).known(self.words)

    def mixed(self, scores: Scores, programs: Sequence[ProgramRows], agreed: float) -> Scores:
        """Scores, of similar magnitude as before, for programs of one task on a device without
        records. `agreed` is the share of the variance on which the committee agrees."""
        known = min(0.5, self.known * float(self.familiar(programs).mean()) ** 2)
        mixture = _SAID * agreed * known * _standard(scores)
        mixture += max(self.typical, _LITTLE) * _standard(typical(programs))
        spread = float(scores.std()) or _LITTLE
        mixed: Scores = scores.mean() + spread * _standard(mixture)
        return mixed

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays in a saved file."""
        return {"words": self.words, "worth": np.array([self.known, self.typical])}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The inverse of `arrays`. Raises KeyError and ValueError for other arrays."""
        words, (known, of_typical) = arrays["words"], arrays["worth"].tolist()
        if words.dtype != np.int64 or words.ndim != 1:
            raise ValueError("words of another shape")
        if (words[1:] <= words[:-1]).any():
            raise ValueError("words that are not sorted")
        if not (0 <= known < np.inf and 0 <= of_typical <= 0.5):
            raise ValueError("shares of pairs out of range")
        return cls(words, known, of_typical)


def typical(programs: Sequence[ProgramRows]) -> Scores:
    """(programs,): the negative distance of each program to the mean of all, at most 0. All columns
    are standardised and weighted equally."""
    rows = Table.of(programs).rows(programs).astype(np.float64)
    deviation = rows.std(axis=0)
    rows, deviation = rows[:, deviation > 10.0**-PLACES], deviation[deviation > 10.0**-PLACES]
    if not rows.shape[1]:
        return np.zeros(len(programs))
    away: Scores = (((rows - rows.mean(axis=0)) / deviation) ** 2).mean(axis=1)
    return -away


@dataclass(frozen=True)
class _Rows:
    """Rows of programs without the first, which holds task and device features: `digests` of
    distinct rows; row i has index `which[i]` among them and is in program `owner[i]`."""

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
        # Adding zero turns -0.0 into 0.0.
        rounded = np.round(data.distinct[used], PLACES) + np.float32(0)
        digests = [
            int.from_bytes(blake2b(row.tobytes(), digest_size=8).digest(), "little", signed=True)
            for row in rounded
        ]
        by_member, number = np.unique(np.array(digests, np.int64), return_inverse=True)
        return cls(by_member, number[which], owner[later], len(programs))

    def known(self, words: Codes) -> Scores:
        """(programs,): the share of each program's rows whose digest is among `words`, which are
        sorted."""
        # Two searches in what is sorted: `np.isin` would sort all words each time.
        start = np.searchsorted(words, self.digests)
        return self.shares(np.searchsorted(words, self.digests, "right") > start)

    def counts(self, chosen: Codes) -> Codes:
        """(distinct,): the number of occurrences in these programs."""
        inside = np.zeros(self.programs, bool)
        inside[chosen] = True
        return np.bincount(self.which[inside[self.owner]], minlength=len(self.digests))

    def shares(self, known: NDArray[np.bool_]) -> Scores:
        """(programs,): the share of each program's rows that are `known` (distinct,); 1 for a
        program without rows."""
        rows = np.bincount(self.owner, minlength=self.programs)
        found = np.bincount(self.owner, known[self.which], minlength=self.programs)
        return np.where(rows > 0, found / np.maximum(rows, 1), 1.0)


class _Tests:
    """Statistics of ranked lists: their number, the share of known rows, and the correctly ordered
    pairs beyond chance, by the committee and by typicality."""

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
    """Standardised to mean 0 and deviation 1, or all 0."""
    spread = values.std()
    return (values - values.mean()) / spread if spread > 0 else np.zeros(len(values))
