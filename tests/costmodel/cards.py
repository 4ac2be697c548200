"""Cards of models that nobody trained."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from tunefleet.costmodel.card import METRICS, Card, DeviceMetrics, RecordsUsed, SplitUsed

MEMBERS = (b"random/0", b"random/1")


def a_card(members: tuple[bytes, ...] = MEMBERS, **given: Any) -> Card:
    """A card of random models with two members; its id is still to be worked out."""
    found: dict[str, Any] = {
        "name": "mine",
        "kind": "random",
        "features": "sequences/1",
        "created": 1.7e9,
        "records": (
            RecordsUsed("a.parquet", "ab" * 32, 10, ("auto_scheduler",), ("v100",), ("cuda",)),
        ),
        "split": SplitUsed("within_task", 0, 0.1, 0.1, train=8, validation=1, test=1),
        "seeds": tuple(range(len(members))),
        "files": tuple(sha256(data).hexdigest() for data in members),
        "metrics": (
            DeviceMetrics(
                "v100",
                records=1,
                tasks=1,
                members={name: (0.25, 0.75)[: len(members)] for name in METRICS},
                random={"top1": 0.5, "top5": 0.6, "pca": 0.5},
            ),
        ),
        "settings": {"rounds": 3, "rate": 0.5, "deep": True, "mode": "a", "none": None},
        "toolchain": {"python": "3.11.7"},
        **given,
    }
    return Card(**found)
