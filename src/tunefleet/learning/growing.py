"""Continued training of a model on a new device or instruction, with a check for forgetting.

The check ranks the programs that the model kept of each earlier training (`CostModel.remembered`)
before and after. They trained neither version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from tunefleet.costmodel import MODELS, CostModel, metrics
from tunefleet.costmodel._lists import groups_of, numbers_of
from tunefleet.costmodel.card import Card
from tunefleet.errors import InputError

#: The metrics compared before and after.
SCORES = ("top1", "top5")


@dataclass(frozen=True)
class Recall:
    """Metrics of the model's training `number` (from 1) before and after it was trained further, by
    name, as means over members. `has_order`: whether there is a ranking that could be forgotten,
    which needs tasks with several records."""

    number: int
    records: int
    before: dict[str, float]
    after: dict[str, float]
    has_order: bool = True

    @property
    def loss(self) -> float:
        """The largest loss of a metric; negative if all gained."""
        return max(self.before[name] - self.after[name] for name in SCORES)


def check_learns(card: Card, members: Sequence[CostModel]) -> None:
    """Refuse a model whose forgetting cannot be measured. Raises InputError."""
    if not MODELS[card.kind].learns_on or not all(member.remembered for member in members):
        raise InputError(
            f"cost model {card.name} is of the kind {card.kind}, which keeps no programs to test "
            "what it forgets",
            cure="choose a model of the kind unified, or use `costmodel train --parent`",
        )


def recalled(before: Sequence[CostModel], after: Sequence[CostModel]) -> tuple[Recall, ...]:
    """The metrics of members before and after further training; member i of `after` was trained
    from `before[i % len(before)]`."""
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
    """The metrics of `model` on the programs of each training that `knew` kept."""
    return [
        asdict(metrics.ranking(of.labels, model.predict(of.programs), numbers_of(of.tasks)))
        if of.labels.max() > 0
        else dict.fromkeys(SCORES, 0.0)
        for of in knew.remembered
    ]


def check_recall(name: str, recalls: Sequence[Recall], most_loss: float) -> None:
    """Refuse a model that loses more than `most_loss` of any metric. Raises InputError."""
    worst = max(recalls, key=lambda recall: recall.loss)
    if worst.loss > most_loss:
        score = max(SCORES, key=lambda each: worst.before[each] - worst.after[each])
        raise InputError(
            f"{name}: {score} on what it learned {_ordinal(worst.number)} would fall from "
            f"{worst.before[score]:.3f} to {worst.after[score]:.3f}, by more than {most_loss:g}",
            cure="allow more with --most-loss, use fewer --epochs, or train a model that replays "
            "programs (--replay)",
        )


def _ordinal(number: int) -> str:
    names = {1: "first", 2: "second", 3: "third"}
    return names.get(number, f"{number}th")
