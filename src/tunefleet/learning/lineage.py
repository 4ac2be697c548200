"""Converts divisions of records to and from the form on a cost model's card."""

from __future__ import annotations

from tunefleet.costmodel.card import SplitUsed
from tunefleet.dataset.division import Division, Shares
from tunefleet.dataset.splits import SplitRows


def split_used(division: Division, split: SplitRows) -> SplitUsed:
    """The form on a card; of the networks listed in a file only the held-out ones."""
    listed = division.networks or {}
    return SplitUsed(
        name=division.name,
        hold_out=division.hold_out,
        seed=division.seed,
        test_share=division.shares.test,
        validation_share=division.shares.validation,
        max_records=division.max_records,
        networks={name: listed[name] for name in division.held_networks if name in listed},
        **{name: len(part) for name, part in split.parts().items()},
    )


def division_of(used: SplitUsed) -> Division:
    """The division on a card; it splits the same records into the same parts."""
    shares = Shares(used.test_share, used.validation_share)
    return Division(
        used.name, used.hold_out, used.seed, shares, used.max_records, used.networks or None
    )
