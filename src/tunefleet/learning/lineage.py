"""How records were divided, as the card of a cost model tells it, and back."""

from __future__ import annotations

from tunefleet.costmodel.card import SplitUsed
from tunefleet.dataset.division import Division, Shares
from tunefleet.dataset.splits import SplitRows


def split_used(division: Division, split: SplitRows) -> SplitUsed:
    """As a card tells it: of networks that a file listed, those that were held out."""
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
    """The division that a card tells of: of the same records it makes the same parts."""
    shares = Shares(used.test_share, used.validation_share)
    return Division(
        used.name, used.hold_out, used.seed, shares, used.max_records, used.networks or None
    )
