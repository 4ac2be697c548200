"""Features of records for cost models, by feature schema: `SCHEMAS` has an extractor for each.

An extractor raises InputError for records without the information that its schema needs. The
extracted features serve every kind of model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel import MODELS, InputForm, LabelledPrograms, ProgramRows
from tunefleet.dataset.formats import METASCHEDULE
from tunefleet.dataset.rows import Codes, Vector, Words
from tunefleet.dataset.splits import SplitRows
from tunefleet.errors import InputError
from tunefleet.features import behaviours, per_store, sequences, tilings
from tunefleet.features.sequences import Sequences
from tunefleet.features.tilings import Tilings
from tunefleet.learning.contexts import contexts
from tunefleet.learning.progress import ReportProgress, paced
from tunefleet.learning.records import Records


class Extracted(Protocol):
    """The features of some records."""

    def programs(self, form: InputForm) -> Sequence[ProgramRows]:
        """The program of each record in the input form of a model."""


class Extractor(Protocol):
    """Turns records into the features of one schema.

    Extractors are stateless and raise InputError for records that the schema cannot describe.
    """

    name: str

    def extract(self, records: Records, numbers: Codes, progress: ReportProgress) -> Extracted:
        """The features of these rows in order."""


@dataclass(frozen=True)
class _Primitives:
    found: Sequences | Tilings

    def programs(self, form: InputForm) -> Sequence[ProgramRows]:
        return self.found.flat() if form is InputForm.FLAT else self.found.ragged()


class TilingExtractor:
    """`tilings/1`: any record, no compiler."""

    name = tilings.SCHEMA

    def extract(self, records: Records, numbers: Codes, progress: ReportProgress) -> Extracted:
        steps = records.rows.steps.take(numbers)
        context = contexts(records, numbers)
        try:
            extracted = Tilings.of(steps.words.names, steps.words.codes, steps.lengths, context)
        except ValueError as error:
            raise _not_primitives(self.name, error) from error
        return _Primitives(extracted)


class SequenceExtractor:
    """`sequences/1`: any record, no compiler."""

    name = sequences.SCHEMA

    def extract(self, records: Records, numbers: Codes, progress: ReportProgress) -> Extracted:
        steps = records.rows.steps.take(numbers)
        try:
            extracted = Sequences.of(steps.words.names, steps.words.codes, steps.lengths)
        except ValueError as error:
            raise _not_primitives(self.name, error) from error
        return _Primitives(extracted)


def _not_primitives(schema: str, error: ValueError) -> InputError:
    return InputError(f"the records do not fit {schema}: {error}", cure="import them again")


@dataclass(frozen=True)
class _Rows:
    found: tuple[ProgramRows, ...]

    def programs(self, form: InputForm) -> Sequence[ProgramRows]:
        return self.found


class _Lowered(ABC):
    """Records of MetaSchedule with their module, lowered by the compiler."""

    name = ""

    def extract(self, records: Records, numbers: Codes, progress: ReportProgress) -> Extracted:
        self._check(records)
        context = contexts(records, numbers)
        programs = []
        report = paced(progress)
        # One row at a time: all of them as Python objects would not fit into memory.
        for done, number in enumerate(numbers.tolist()):
            (row,) = records.table.slice(number, 1).to_pylist()
            if not row["definition"]:
                raise self._unfit(f"but {row['source']}, line {row['line']} has none")
            try:
                programs.append(self.of_row(row, context[done]))
            except ValueError as error:
                cause = f"and not {row['source']}, line {row['line']}: {error}"
                raise self._unfit(cause) from error
            report(f"{self.name}: {done + 1:,} of {len(numbers):,} programs")
        return _Rows(tuple(programs))

    @abstractmethod
    def of_row(self, row: Mapping[str, Any], context: NDArray[np.float32]) -> ProgramRows:
        """The program of a record; `context` (32,) are its task and device features."""

    def _check(self, records: Records) -> None:
        others = set(records.formats) - {METASCHEDULE}
        if others:
            raise self._unfit(f"but there are records of {', '.join(sorted(others))}")

    def _unfit(self, cause: str) -> InputError:
        return InputError(
            f"{self.name} describes programs of MetaSchedule with a module, {cause}",
            cure=f"give such records, or use features of {TilingExtractor.name}",
        )


class PerStoreExtractor(_Lowered):
    """`per-store/1`: needs the compiler."""

    name = per_store.SCHEMA

    def of_row(self, row: Mapping[str, Any], context: NDArray[np.float32]) -> ProgramRows:
        from tunefleet.compiler.code.recorded import per_store_features

        return per_store_features(row["workload"], row["definition"], row["target"], row["steps"])


class BehaviourExtractor(_Lowered):
    """`behaviours/1`: needs the compiler."""

    name = behaviours.SCHEMA

    def of_row(self, row: Mapping[str, Any], context: NDArray[np.float32]) -> ProgramRows:
        from tunefleet.compiler.code.recorded import statements

        return behaviours.encode(
            statements(row["workload"], row["definition"], row["steps"]), context
        )


SCHEMAS: Mapping[str, Extractor] = {
    extractor.name: extractor
    for extractor in (
        TilingExtractor(),
        SequenceExtractor(),
        PerStoreExtractor(),
        BehaviourExtractor(),
    )
}


#: The default schema of a model: that of a search.
DEFAULT = tilings.SCHEMA


def extractor(name: str) -> Extractor:
    """Raises InputError for an unknown schema."""
    if name not in SCHEMAS:
        raise InputError(
            f"unknown feature schema {name!r}", cure=f"choose one of {', '.join(SCHEMAS)}"
        )
    return SCHEMAS[name]


@dataclass(frozen=True)
class Examples:
    """Programs of some records with label, task and device of each."""

    programs: Sequence[ProgramRows]
    labels: Vector
    tasks: Codes
    devices: Words

    def take(self, places: Codes) -> Examples:
        return Examples(
            [self.programs[place] for place in places.tolist()],
            self.labels[places],
            self.tasks[places],
            self.devices.take(places),
        )

    def check(self, part: str) -> None:
        """Raises InputError if no record is valid, so that there is no ranking."""
        if not self.labels.max(initial=0) > 0:
            raise InputError(
                f"no record of the {part} part has a valid latency",
                cure="give records that did not fail",
            )

    def measured(self) -> LabelledPrograms:
        names = self.devices.names
        return LabelledPrograms(
            self.programs,
            self.labels,
            self.tasks.astype(str).tolist(),
            [names[code] for code in self.devices.codes.tolist()],
        )


@dataclass(frozen=True)
class Parts:
    """The examples of a split. Raises InputError for parts that cannot train or test a model."""

    train: Examples
    validation: Examples
    test: Examples

    def __post_init__(self) -> None:
        self.train.check("train")
        self.validation.check("validation")
        self.test.check("test")
        if np.ptp(self.train.labels) == 0:
            raise InputError(
                "no record of the train part is faster than another of its task",
                cure="give records of tasks whose programs differ in latency",
            )


@dataclass(frozen=True)
class Inputs:
    """The features of some rows of records; `examples` converts them for a kind of model."""

    records: Records
    numbers: Codes
    features: Extracted

    @classmethod
    def of(cls, records: Records, numbers: Codes, schema: str, progress: ReportProgress) -> Inputs:
        """The features of rows with ascending numbers. Raises InputError."""
        return cls(records, numbers, extractor(schema).extract(records, numbers, progress))

    def examples(self, kind: str) -> Examples:
        """All rows for a kind of model. Labels are relative to the best of all records."""
        rows = self.records.rows
        return Examples(
            self.features.programs(MODELS[kind].input_form),
            rows.labels[self.numbers],
            rows.task[self.numbers],
            self.records.devices.take(self.numbers),
        )

    def parts(self, kind: str, split: SplitRows) -> Parts:
        """The examples of a split, whose rows are among these."""
        examples = self.examples(kind)
        return Parts(
            **{
                name: examples.take(self.numbers.searchsorted(numbers))
                for name, numbers in split.parts().items()
            }
        )


def all_rows(split: SplitRows) -> Codes:
    """The rows of all parts, ascending."""
    return np.sort(np.concatenate(list(split.parts().values())))
