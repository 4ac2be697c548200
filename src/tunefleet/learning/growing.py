"""A model that learns a device or an instruction more, unless it forgets too much of what it knew.

What it knew is tested by programs that it kept of each thing it learned (`CostModel.remembered`),
before and after: the same programs, which trained neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from tunefleet.costmodel import MODELS, CostModel, metrics
from tunefleet.costmodel._lists import groups_of, numbers_of
from tunefleet.costmodel.card import Card
from tunefleet.errors import InputError

#: What is compared before and after.
SCORES = ("top1", "top5")


@dataclass(frozen=True)
class Recall:
    """How well a model ranks what it learned first, second, ... (`number` from 1), before and after
    it learned more: by the name of each score, a mean over members. `tells` whether there is an
    order that could be forgotten: not where each task has one record."""

    number: int
    records: int
    before: dict[str, float]
    after: dict[str, float]
    tells: bool = True

    @property
    def loss(self) -> float:
        """The most that any score lost; negative where all gained."""
        return max(self.before[name] - self.after[name] for name in SCORES)


def check_learns(card: Card, members: Sequence[CostModel]) -> None:
    """Refuse a model that could not be told to have forgotten. Raises InputError."""
    if not MODELS[card.kind].learns_on or not all(member.remembered for member in members):
        raise InputError(
            f"cost model {card.name} is of the kind {card.kind}, which keeps nothing to tell "
            "whether it forgets",
            cure="name a model of the kind unified, or use `costmodel train --parent`",
        )


def recalled(before: Sequence[CostModel], after: Sequence[CostModel]) -> tuple[Recall, ...]:
    """What members rank before and after they learned more; member i of `after` went on from
    `before[i % len(before)]`."""
    earlier, later = [], []
    for number, member in enumerate(after):
        parent = before[number % len(before)]
        earlier.append(_scores(parent, parent))
        later.append(_scores(parent, member))
    return tuple(
        Recall(
            number + 1,
            len(of.labels),
            {name: float(np.mean([member[number][name] for member in earlier])) for name in SCORES},
            {name: float(np.mean([member[number][name] for member in later])) for name in SCORES},
            any(np.ptp(of.labels[own]) > 0 for own in groups_of(of.tasks)),
        )
        for number, of in enumerate(before[0].remembered)
    )


def _scores(knew: CostModel, model: CostModel) -> list[dict[str, float]]:
    """How well a model ranks each thing that another one knew."""
    return [
        asdict(metrics.ranking(of.labels, model.predict(of.programs), numbers_of(of.tasks)))
        if of.labels.max() > 0
        else dict.fromkeys(SCORES, 0.0)
        for of in knew.remembered
    ]


def check_recall(name: str, recalls: Sequence[Recall], most_loss: float) -> None:
    """Refuse what forgets more than `most_loss` of any score. Raises InputError."""
    worst = max(recalls, key=lambda recall: recall.loss)
    if worst.loss > most_loss:
        score = max(SCORES, key=lambda each: worst.before[each] - worst.after[each])
        raise InputError(
            f"{name} would rank what it learned {_ordinal(worst.number)} at "
            f"{worst.after[score]:.3f} instead of {worst.before[score]:.3f} ({score}), a loss of "
            f"more than {most_loss:g}",
            cure="allow more by --most-loss, learn fewer --epochs, or train a model that keeps "
            "programs to learn again (--replay)",
        )


def _ordinal(number: int) -> str:
    names = {1: "first", 2: "second", 3: "third"}
    return names.get(number, f"{number}th")
