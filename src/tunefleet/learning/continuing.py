"""A version of a cost model that learns on from another, and what it forgets by that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tunefleet.costmodel import CostModel
from tunefleet.costmodel.card import DeviceMetrics
from tunefleet.costmodel.registry import Registry, RegistryEntry
from tunefleet.dataset.division import Division
from tunefleet.dataset.splits import SplitRows, divide
from tunefleet.learning import evaluation, growing, inputs, training, versions
from tunefleet.learning.inputs import Examples
from tunefleet.learning.progress import ReportProgress
from tunefleet.learning.records import Records


@dataclass(frozen=True)
class Continued:
    """A trained version before it is kept. `test` are the records that trained neither it nor its
    parent, whose members are `start`."""

    parent: RegistryEntry
    records: Records
    division: Division
    divided: SplitRows
    start: Sequence[CostModel]
    trained: training.Trained
    test: Examples
    recalls: tuple[growing.Recall, ...]

    def tested(self) -> tuple[DeviceMetrics, ...]:
        """The metrics of the new version on the test part. Raises InputError where it has no valid
        trial."""
        return evaluation.evaluate(self.trained.members, self.test)

    def tested_before(self) -> tuple[DeviceMetrics, ...]:
        """Those of its parent."""
        return evaluation.evaluate(self.start, self.test)

    def publish(
        self, registry: Registry, name: str, tested: Sequence[DeviceMetrics], created: float
    ) -> RegistryEntry:
        """Keep it; `created` is in seconds since the epoch. Raises SetupError."""
        schema = self.parent.card.features
        origin = versions.Origin(
            name, schema, self.records, self.division, self.divided, self.parent.card
        )
        return versions.publish(registry, origin, self.trained, tested, created)


def continued(
    parent: RegistryEntry,
    records: Records,
    division: Division,
    options: training.Options,
    progress: ReportProgress,
) -> Continued:
    """Train a version on more records. Raises InputError for a parent whose forgetting cannot be
    measured, and for records that it was trained on."""
    kind, schema = parent.card.kind, parent.card.features
    start = versions.start_of(parent, kind, records)
    divided = divide(records.rows, division)
    drawn = inputs.Inputs.of(records, inputs.all_rows(divided), schema, progress)
    parts = drawn.parts(kind, divided)
    trained = training.train(
        kind, parts.train, parts.validation, seeds=len(start), options=options, progress=progress,
        start=start,
    )  # fmt: skip
    recalls = growing.recalled(start, trained.members)
    return Continued(parent, records, division, divided, start, trained, parts.test, recalls)
