"""A trained model as a version in the registry: its members and their card."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata

from tunefleet.costmodel import MODELS, CostModel
from tunefleet.costmodel.card import Card, DeviceMetrics
from tunefleet.costmodel.registry import Registry, RegistryEntry
from tunefleet.dataset.division import Division
from tunefleet.dataset.splits import SplitRows
from tunefleet.errors import InputError
from tunefleet.learning.inputs import all_rows
from tunefleet.learning.learned import learned
from tunefleet.learning.lineage import split_used
from tunefleet.learning.records import Records
from tunefleet.learning.training import Trained, settings_of

_LIBRARIES = ("tunefleet", "numpy", "torch", "xgboost", "lightgbm", "safetensors", "apache-tvm")


@dataclass(frozen=True)
class Origin:
    """The lineage of a version apart from the training itself."""

    name: str
    features: str
    records: Records
    division: Division
    split: SplitRows
    parent: Card | None = None
    limits: str = ""


def check_parent(parent: Card, features: str) -> None:
    """Refuse a parent with other features: its successor could not replace it."""
    if parent.features != features:
        raise InputError(
            f"the parent {parent.name} uses the features {parent.features}, not {features}",
            cure=f"train on {parent.features}, or choose another parent",
        )


def start_of(parent: RegistryEntry, kind: str, records: Records) -> Sequence[CostModel]:
    """The members whose weights a new version starts from; none if its kind trains from scratch.

    Raises InputError for records that they were trained on: the test part would not be unseen.
    """
    if not MODELS[kind].learns_on or parent.card.kind != kind:
        return ()
    taught = set(parent.card.taught_by)
    known = [file.name for file in records.files if file.sha256 in taught]
    if known:
        raise InputError(
            f"the parent {parent.card.name} was trained on {', '.join(known)}, so these records "
            "cannot test its successor",
            cure="give other records, or train from scratch",
        )
    return parent.load()


def publish(
    registry: Registry,
    origin: Origin,
    trained: Trained,
    tested: Sequence[DeviceMetrics],
    created: float,
) -> RegistryEntry:
    """Add a version; `created` is in seconds since the epoch. Raises SetupError."""
    members = [member.save() for member in trained.members]
    used = origin.records.used(all_rows(origin.split))
    ancestor = origin.parent if trained.went_on else None
    card = Card(
        name=origin.name,
        kind=trained.kind,
        features=origin.features,
        created=created,
        records=used,
        split=split_used(origin.division, origin.split),
        seeds=trained.seeds,
        files=tuple(sha256(data).hexdigest() for data in members),
        metrics=tuple(tested),
        settings=settings_of(trained.members[0]),
        toolchain=toolchain(),
        parent=origin.parent.id if origin.parent else None,
        inherited=ancestor.taught_by if ancestor else (),
        limits=origin.limits or _limits(origin, tested),
        learned=learned(origin.records, origin.split.train, ancestor),
    )
    return registry.add(card, members)


def toolchain() -> dict[str, str]:
    """Versions of Python and of the installed libraries."""
    versions = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _limits(origin: Origin, tested: Sequence[DeviceMetrics]) -> str:
    """The limits that hold for every model."""
    return (
        f"Scores compare programs of one task only. Tested on "
        f"{', '.join(device.device for device in tested)} with programs of "
        f"{', '.join(origin.records.formats)}; nothing is known of others."
    )
