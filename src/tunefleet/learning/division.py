"""How records are divided for a model: the split by name, and no more than a number of records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tunefleet.costmodel.card import SplitUsed
from tunefleet.dataset import splits
from tunefleet.dataset.rows import Rows
from tunefleet.dataset.splits import Shares, Split
from tunefleet.errors import InputError

WITHIN_TASK, BY_TASK, BY_TARGET, BY_NETWORK = NAMES = (
    "within_task", "by_task", "by_target", "by_network",
)  # fmt: skip
_HELD_OUT = {BY_TARGET: "device", BY_NETWORK: "network"}


@dataclass(frozen=True)
class Division:
    """A split of `tunefleet.dataset.splits` by its name.

    `hold_out` names the device that tests, or the networks with commas between, for splits that
    need it. Of the parts at
    most `max_records` train, half as many test and a quarter validate, drawn at random. Raises
    InputError for what does not go together.
    """

    name: str = WITHIN_TASK
    hold_out: str | None = None
    seed: int = 0
    shares: Shares = splits.DEFAULT
    max_records: int | None = None

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise InputError(f"{self.name!r} is no split", cure=f"choose of {', '.join(NAMES)}")
        wanted = _HELD_OUT.get(self.name)
        if wanted is not None and self.hold_out is None:
            raise InputError(
                f"the split {self.name} needs the {wanted} that tests",
                cure="name it with --hold-out",
            )
        if wanted is None and self.hold_out is not None:
            raise InputError(
                f"the split {self.name} holds nothing out by name",
                cure=f"choose {BY_TARGET} or {BY_NETWORK}",
            )

    def of(self, rows: Rows) -> Split:
        """Raises InputError where a part would be empty."""
        return self._capped(self._whole(rows))

    def _whole(self, rows: Rows) -> Split:
        held = self.hold_out or ""
        if self.name == WITHIN_TASK:
            return splits.within_task(rows, self.shares, self.seed)
        if self.name == BY_TASK:
            return splits.by_task(rows, self.shares, self.seed)
        if self.name == BY_TARGET:
            return splits.by_target(rows, held, self.shares, self.seed)
        logs = splits.networks_by_log(rows)
        workloads = {w for name in held.split(",") for w in splits.workloads_of(logs, name)}
        return splits.by_network(rows, workloads, self.shares, self.seed)

    def _capped(self, split: Split) -> Split:
        if self.max_records is None:
            return split
        room = {
            "train": self.max_records,
            "validation": self.max_records // 4,
            "test": self.max_records // 2,
        }
        generator = np.random.default_rng(self.seed)
        return Split(
            **{
                name: np.sort(generator.choice(part, min(room[name], len(part)), replace=False))
                for name, part in split.parts().items()
            }
        )

    def used(self, split: Split) -> SplitUsed:
        """As a card tells it."""
        return SplitUsed(
            name=self.name,
            hold_out=self.hold_out,
            seed=self.seed,
            test_share=self.shares.test,
            validation_share=self.shares.validation,
            max_records=self.max_records,
            **{name: len(part) for name, part in split.parts().items()},
        )

    @classmethod
    def of_card(cls, used: SplitUsed) -> Division:
        """The division that a card tells of."""
        shares = Shares(used.test_share, used.validation_share)
        return cls(used.name, used.hold_out, used.seed, shares, used.max_records)
