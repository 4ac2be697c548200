"""A chapter of a unified model: one training, and the network that scores its programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel._base import LabelledPrograms, Scores
from tunefleet.costmodel._domains import Domains
from tunefleet.costmodel._forest import Forest
from tunefleet.costmodel._lists import numbers_of, pairs_ordered
from tunefleet.costmodel._reach import Reach
from tunefleet.costmodel._sample import Sample
from tunefleet.costmodel._tensors import arrays_below, arrays_in
from tunefleet.costmodel.attention import AttentionModel

#: Alternatives to the usual share of the network in the score, and the minimum number of programs
#: to choose between them: the same programs stopped the network's training, so few would be biased.
_SHARES, _TELLING = (0.25, 0.5, 0.75, 0.0, 1.0), 400

#: The network of a chapter whose file names none.
_LAST = np.array([-1])


@dataclass(frozen=True)
class Chapter:
    """One training: its trees, devices and tasks, its reach, the network that scores its programs
    with its share of the score, and held-out programs to test later what was forgotten."""

    forest: Forest
    domains: Domains
    reach: Reach
    network: AttentionModel
    share: float
    known: Sample

    def scored_by(self, network: AttentionModel) -> Self:
        """This chapter after a later one was trained: scored by the current network if that orders
        at least as many pairs of its programs correctly as the network before."""
        if not self.known.programs:
            return self
        known = self.known.measured()
        of_trees = self.forest.predict(known.programs)
        (before, _), (after, share) = (
            best_share(known, of.predict(known.programs), of_trees, usual_share(self.forest))
            for of in (self.network, network)
        )
        return replace(self, network=network, share=share) if after >= before else self

    def arrays(self) -> dict[str, NDArray[Any]]:
        arrays = {"share": np.array([self.share])} | arrays_in("known", self.known.arrays())
        return arrays | self.forest.arrays() | self.domains.arrays() | self.reach.arrays()

    @classmethod
    def of_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], networks: Sequence[AttentionModel]
    ) -> Self:
        (share,), (number,) = arrays["share"].tolist(), arrays.get("network", _LAST).tolist()
        network = networks[number]
        columns = len(network.weights["mean"])
        forest, known = Forest.of_arrays(arrays), Sample.of_arrays(arrays_below(arrays, "known"))
        if forest.table.columns != columns or not 0 <= share <= 1:
            raise ValueError("a chapter with other columns")
        domains, reach = Domains.of_arrays(arrays, columns), Reach.of_arrays(arrays)
        return cls(forest, domains, reach, network, share, known)


def usual_share(forest: Forest) -> float:
    """The default share of the network in the score."""
    return 1 / 2 if forest.beside is None else 1 / 3


def best_share(
    held: LabelledPrograms, of_net: Scores, of_trees: Scores, usual: float
) -> tuple[float, float]:
    """The number of correctly ordered pairs with the best share of the network, and that share."""
    numbers = numbers_of(held.tasks)
    shares = (usual, *(_SHARES if len(held.programs) >= _TELLING else ()))
    ordered = [
        pairs_ordered(held.labels, share * of_net + (1.0 - share) * of_trees, numbers)
        for share in shares
    ]
    best = int(np.argmax(ordered))
    return ordered[best], shares[best]
