"""The kinds of programs that a model was trained on, for its card; searches check them."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tunefleet.core.precision import precision_of
from tunefleet.costmodel.card import Card, Learned
from tunefleet.dataset.rows import Codes
from tunefleet.learning.contexts import described
from tunefleet.learning.records import Records


def learned(records: Records, numbers: Codes, parent: Card | None = None) -> tuple[Learned, ...]:
    """The kinds of these rows, and those of a `parent` whose weights were reused; the most frequent
    first.

    Empty if the parent's card has none: the new model then knows more than its own records.
    """
    if parent is not None and not parent.learned:
        return ()
    descriptions, inverse = described(records, numbers)
    kinds: Counter[tuple[str, str]] = Counter()
    counts = np.bincount(inverse, minlength=len(descriptions)).tolist()
    for each, count in zip(descriptions, counts, strict=True):
        kinds[each.place.architecture, precision_of(each.types)] += count
    for known in parent.learned if parent else ():
        kinds[known.architecture, known.precision] += known.records
    return tuple(Learned(*kind, records=count) for kind, count in sorted(kinds.items(), key=_order))


def _order(item: tuple[tuple[str, str], int]) -> tuple[int, tuple[str, str]]:
    kind, count = item
    return -count, kind
