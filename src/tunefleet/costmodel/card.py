"""The card of a trained cost model: where it comes from and how good it is (lineage).

A card is JSON of the schema `tunefleet-costmodel/1`. Its id is a digest of everything else on it,
the digests of the model's files included, so an id names one model and a damaged card shows.
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

#: What is measured of a model on each device, in the order in which it is shown.
METRICS = ("top1", "top5", "pca", "rmse", "r2")

Setting = str | int | float | bool | None


@dataclass(frozen=True)
class RecordsUsed:
    """A file of records by name and content, and how many of it are in the three parts.

    `formats` are the tuners that wrote them: another one's programs have other words.
    """

    file: str
    sha256: str
    used: int
    formats: tuple[str, ...]
    devices: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True)
class Learned:
    """A kind of programs that trained a model: the architecture that they ran on
    (`hardware.llvm_names`, "" where no record told), and what numbers they compute in
    (`core.precision`)."""

    architecture: str
    precision: str
    records: int


@dataclass(frozen=True)
class SplitUsed:
    """How the records were split; the counts are those of records after `max_records`.

    `networks` are the workloads of the networks that were held out, where a file listed them.
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
    """Test results on one device, all programs of the test part that were measured there.

    `members` has a value for each member under each name of `METRICS`; `random` what a random
    ranking is expected to reach, of those for which that is known.
    """

    device: str
    records: int
    tasks: int
    members: Mapping[str, tuple[float, ...]]
    random: Mapping[str, float]

    def median(self, name: str) -> float:
        return median(self.members[name])

    def to_json(self) -> dict[str, Any]:
        """Everything, and median, low and high over the members."""
        summary = {
            name: {"median": median(values), "low": min(values), "high": max(values)}
            for name, values in self.members.items()
        }
        return {**asdict(self), "summary": summary}


@dataclass(frozen=True)
class Card:
    """What is known of one version of a model. `created` is in seconds since the epoch.

    `files` are the SHA-256 of its members' bytes, one member for each of `seeds`; `settings` are
    the other parameters of their constructor; `inherited` the SHA-256 of the files that the weights
    it went on from had learnt. `learned` is what these weights and its own records had in them, and
    empty on a card that was written before cards told. Raises ValueError for values that cannot be.
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
        # The id is a digest of the text: 5 and 5.0 would be two.
        object.__setattr__(self, "created", float(self.created))
        if not self.files or len(self.files) != len(self.seeds):
            raise ValueError(f"{len(self.files)} files and {len(self.seeds)} seeds")
        for device in self.metrics:
            lengths = {len(values) for values in device.members.values()}
            if lengths != {len(self.files)} or device.members.keys() != set(METRICS):
                raise ValueError(f"metrics of {device.device!r} are not those of its members")

    @property
    def digest(self) -> str:
        """What the id has to be."""
        return digest(replace(self, id="").to_json())

    @property
    def taught_by(self) -> tuple[str, ...]:
        """The SHA-256 of every file that it knows something of."""
        return (*self.inherited, *(used.sha256 for used in self.records))

    def has_learned(self, architecture: str, precision: str) -> bool:
        """Whether it may steer searches among such programs: of what is not told it may."""
        if not self.learned or not precision:
            return True
        return any(
            each.precision == precision
            and ("" in (architecture, each.architecture) or each.architecture == architecture)
            for each in self.learned
        )

    @property
    def architectures(self) -> tuple[str, ...]:
        """Those that it has learned; empty where it is not told of all that it has."""
        told = tuple(dict.fromkeys(each.architecture for each in self.learned))
        return () if "" in told else told

    def with_id(self) -> Card:
        return replace(self, id=self.digest)

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        stored: dict[str, Any] = msgspec.to_builtins(self)
        # A card of before these could be keeps its id.
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
        """Raises ValueError for what is no card, a damaged one, or one of another version."""
        schema = msgspec.json.decode(data, type=_Schema).schema
        if schema != SCHEMA:
            raise ValueError(f"its schema is {schema!r}, this tunefleet reads {SCHEMA!r}")
        card = msgspec.json.decode(data, type=cls)
        if card.id != card.digest:
            raise ValueError("its content does not fit its id")
        return card


class _Schema(msgspec.Struct):
    schema: str


def check_name(name: str) -> str:
    """Refuse with a ValueError what is no name of a model: it stands in paths and tables."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,99}", name, re.ASCII):
        raise ValueError(f"{name[:100]!r} is no name: use letters, digits, and . _ + - within it")
    return name
