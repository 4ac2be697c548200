"""Specification of a split of records into training, validation and test parts.

This module imports no library; `tunefleet.dataset.splits` computes the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tunefleet.errors import InputError

WITHIN_TASK, IN_ORDER, BY_TASK, BY_TARGET, BY_NETWORK = SPLITS = (
    "within_task", "within_task_in_order", "by_task", "by_target", "by_network",
)  # fmt: skip
#: The kind of name that is held out.
_HELD_OUT = {BY_TARGET: "device", BY_NETWORK: "network"}


@dataclass(frozen=True)
class Shares:
    """The shares of the records (or of each task's records) for test and validation."""

    test: float = 0.1
    validation: float = 0.1

    def __post_init__(self) -> None:
        if not (self.test > 0 and self.validation > 0 and self.test + self.validation < 1):
            raise InputError(
                f"shares of {self.test:g} to test and {self.validation:g} to validation leave no "
                "split",
                cure="give two positive shares of less than 1 together",
            )


DEFAULT = Shares()


@dataclass(frozen=True)
class Division:
    """A split of `tunefleet.dataset.splits` by name, with its parameters.

    `hold_out` is the test device, or a comma-separated list of test networks, for splits that need
    it. `networks` are the workloads of each network; by default the names of the logs identify the
    networks. At most `max_records` random records train, half as many test and a quarter validate.
    Raises InputError for parameters that do not fit together.
    """

    name: str = WITHIN_TASK
    hold_out: str | None = None
    seed: int = 0
    shares: Shares = DEFAULT
    max_records: int | None = None
    networks: Mapping[str, tuple[str, ...]] | None = None

    def __post_init__(self) -> None:
        if self.name not in SPLITS:
            raise InputError(
                f"{self.name!r} is not a split", cure=f"choose one of {', '.join(SPLITS)}"
            )
        wanted = _HELD_OUT.get(self.name)
        if wanted is not None and self.hold_out is None:
            raise InputError(
                f"the split {self.name} needs a test {wanted}",
                cure="give it with --hold-out",
            )
        if wanted is None and self.hold_out is not None:
            raise InputError(
                f"the split {self.name} holds nothing out by name",
                cure=f"choose {BY_TARGET} or {BY_NETWORK}",
            )
        if self.name != BY_NETWORK and self.networks is not None:
            raise InputError(
                f"the split {self.name} holds no networks out",
                cure=f"choose {BY_NETWORK}, or leave --networks out",
            )

    @property
    def held_networks(self) -> tuple[str, ...]:
        """The test networks of a split by networks."""
        return tuple((self.hold_out or "").split(",")) if self.name == BY_NETWORK else ()
