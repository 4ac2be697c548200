"""The card of a trained cost model: its lineage and metrics.

A card is JSON of the schema `tunefleet-costmodel/1`. Its id is a digest of all other fields,
including the digests of the model's files, so an id identifies one model and reveals a damaged
card.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec

from tunefleet.core.ids import canonical_json, digest
from tunefleet.core.statistics import median

SCHEMA = "tunefleet-costmodel/1"

#: The metrics of a model on each device, in display order.
METRICS = ("top1", "top5", "pca", "rmse", "r2")

Setting = str | int | float | bool | None


@dataclass(frozen=True)
class RecordsUsed:
    """A file of records by name and content, with its number of records in each part.

    `formats` are the tuners that wrote them: programs of other tuners use other words.
    """

    file: str
    sha256: str
    used: int
    formats: tuple[str, ...]
    devices: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True)
class Learned:
    """A kind of programs that trained a model: the architecture (`hardware.llvm_names`, "" if
    unknown) and the precision (`core.precision`)."""

    architecture: str
    precision: str
    records: int


@dataclass(frozen=True)
class SplitUsed:
    """The split of the records; counts are after `max_records`.

    `networks` are the workloads of the held-out networks, if a file listed them.
    """

    name: str
    seed: int
    test_share: float
    validation_share: float
    train: int
    validation: int
    test: int
    hold_out: str | None = None
    max_records: int | None = None
    networks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class DeviceMetrics:
    """Test results for all programs of the test part that were measured on one device.

    `members` has a value per member under each name of `METRICS`; `random` is the expectation of a
    random ranking, for the metrics where it is known.
    """

    device: str
    records: int
    tasks: int
    members: Mapping[str, tuple[float, ...]]
    random: Mapping[str, float]

    def median(self, name: str) -> float:
        return median(self.members[name])

    def to_json(self) -> dict[str, Any]:
        """All fields, with median, low and high over the members."""
        summary = {
            name: {"median": median(values), "low": min(values), "high": max(values)}
            for name, values in self.members.items()
        }
        return {**asdict(self), "summary": summary}


@dataclass(frozen=True)
class Card:
    """Description of one version of a model. `created` is in seconds since the epoch.

    `files` are the SHA-256 of its members' bytes, one member per seed in `seeds`; `settings` are
    the other constructor parameters; `inherited` the SHA-256 of the files that its initial weights
    were trained on. `learned` are the kinds of programs in those files and its own; it is empty on
    cards of earlier versions. Raises ValueError for invalid values.
    """

    name: str
    kind: str
    features: str
    created: float
    records: tuple[RecordsUsed, ...]
    split: SplitUsed
    seeds: tuple[int, ...]
    files: tuple[str, ...]
    metrics: tuple[DeviceMetrics, ...]
    settings: Mapping[str, Setting] = field(default_factory=dict)
    toolchain: Mapping[str, str] = field(default_factory=dict)
    parent: str | None = None
    limits: str = ""
    schema: str = SCHEMA
    id: str = ""
    inherited: tuple[str, ...] = ()
    learned: tuple[Learned, ...] = ()

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"its schema is {self.schema!r}, not {SCHEMA!r}")
        check_name(self.name)
        # The id is a digest of the text, where 5 and 5.0 differ.
        object.__setattr__(self, "created", float(self.created))
        if not self.files or len(self.files) != len(self.seeds):
            raise ValueError(f"{len(self.files)} files and {len(self.seeds)} seeds")
        for device in self.metrics:
            lengths = {len(values) for values in device.members.values()}
            if lengths != {len(self.files)} or device.members.keys() != set(METRICS):
                raise ValueError(f"metrics of {device.device!r} are not those of its members")

    @property
    def digest(self) -> str:
        """The expected id."""
        return digest(replace(self, id="").to_json())

    @property
    def taught_by(self) -> tuple[str, ...]:
        """The SHA-256 of all files that it was trained on, directly or by inheritance."""
        return (*self.inherited, *(used.sha256 for used in self.records))

    def has_learned(self, architecture: str, precision: str) -> bool:
        """Whether searches may use it for such programs; true if its card lists no kinds."""
        if not self.learned or not precision:
            return True
        return any(
            each.precision == precision
            and ("" in (architecture, each.architecture) or each.architecture == architecture)
            for each in self.learned
        )

    @property
    def architectures(self) -> tuple[str, ...]:
        """The architectures that it was trained on; empty if not all are known."""
        known = tuple(dict.fromkeys(each.architecture for each in self.learned))
        return () if "" in known else known

    def with_id(self) -> Card:
        return replace(self, id=self.digest)

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        stored: dict[str, Any] = msgspec.to_builtins(self)
        # Cards from before these fields keep their id.
        for name in ("inherited", "learned"):
            if not getattr(self, name):
                stored.pop(name, None)
        if not self.split.networks:
            stored["split"].pop("networks", None)
        return stored

    def to_bytes(self) -> bytes:
        return msgspec.json.format(canonical_json(self.to_json()).encode(), indent=1)

    @classmethod
    def from_bytes(cls, data: bytes) -> Card:
        """Raises ValueError for other data, a damaged card, or another version."""
        schema = msgspec.json.decode(data, type=_Schema).schema
        if schema != SCHEMA:
            raise ValueError(f"its schema is {schema!r}, this tunefleet reads {SCHEMA!r}")
        card = msgspec.json.decode(data, type=cls)
        if card.id != card.digest:
            raise ValueError("its content does not match its id")
        return card


class _Schema(msgspec.Struct):
    schema: str


def check_name(name: str) -> str:
    """Raises ValueError for an invalid model name; names are used in paths and tables."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,99}", name, re.ASCII):
        raise ValueError(f"{name[:100]!r} is not a valid name: use letters, digits and . _ + -")
    return name
