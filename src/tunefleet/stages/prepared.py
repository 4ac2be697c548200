"""A network as import and check left it, with its files where they lie here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from tunefleet.artifacts.arrays import Array, load_arrays
from tunefleet.artifacts.blobs import LostBlobError
from tunefleet.core.home import Home
from tunefleet.core.network import NetworkInfo
from tunefleet.core.step import Checked, Imported, Preparation, StepKey, StepKind, StepResult
from tunefleet.errors import InternalError, JobError
from tunefleet.stages.importing import PLAIN, PROGRAM
from tunefleet.stages.place import LostInputError, StageContext, Workplace
from tunefleet.workers.memory import gib, machine_memory
from tunefleet.workers.pool import CallEnd, CallFailure

R = TypeVar("R", bound=StepResult)
T = TypeVar("T")

_LIMIT_S = 900.0


def result_of(place: Workplace, owner: str, kind: StepKind, expected: type[R]) -> R:
    """The result of an earlier step. Raises InternalError where it is not committed."""
    run = place.store.work.step(StepKey(owner, kind))
    if run is None or not isinstance(run.result, expected):
        raise InternalError(f"{kind} of {owner[:8]} is not committed")
    return run.result


def object_of(place: Workplace, owner: str, name: str, kind: StepKind) -> Path:
    """Where an object lies that a step of this kind made. Raises LostInputError."""
    try:
        return place.objects(owner).path(name)
    except LostBlobError as error:
        raise LostInputError(kind, error.what) from error


@dataclass(frozen=True)
class PreparedNetwork:
    """The network `spec`: `imported` beside the folder of its modules, in a home."""

    imported: Imported
    folder: Path
    home: Home
    spec: str

    @property
    def info(self) -> NetworkInfo:
        return self.imported.info

    @property
    def plain(self) -> Path:
        return self.folder / PLAIN

    @property
    def program(self) -> Path:
        """What compiling reads, beside the weights of the plain module."""
        return self.folder / PROGRAM

    @property
    def references(self) -> tuple[Mapping[str, Any], ...]:
        """How the source framework is opened at each signature (`frontends.references`)."""
        return tuple(
            self.home.absolute_reference(each, self.spec) for each in self.imported.references
        )


@dataclass(frozen=True)
class Expectation:
    """What the source framework makes of the example inputs that were compared at."""

    checked: Checked
    _path: Path
    _count: int

    @cached_property
    def _lists(self) -> list[list[Array]]:
        return load_arrays(self._path, 2 * self._count)

    @property
    def inputs(self) -> list[list[Array]]:
        """For each signature."""
        return self._lists[: self._count]

    @property
    def expected(self) -> list[list[Array]]:
        """Outputs for each signature."""
        return self._lists[self._count :]


def prepared_of(place: Workplace, preparation: Preparation) -> PreparedNetwork:
    """Raises LostInputError where the import's modules are gone."""
    imported = result_of(place, preparation.id, StepKind.IMPORT, Imported)
    folder = object_of(place, preparation.id, imported.module, StepKind.IMPORT)
    return PreparedNetwork(imported, folder, place.home, preparation.source.spec)


def expectation_of(
    place: Workplace, preparation: Preparation, prepared: PreparedNetwork
) -> Expectation:
    """Raises LostInputError where what was compared is gone."""
    checked = result_of(place, preparation.id, StepKind.CHECK, Checked)
    path = object_of(place, preparation.id, checked.expected, StepKind.CHECK)
    return Expectation(checked, path, len(prepared.info.signatures))


def on_device(place: StageContext, what: str, function: Callable[..., T], *args: Any) -> T:
    """Call a function of `work` that runs a whole network on the device; once more, in a fresh
    worker with all of the machine's memory, where that of this machine's device died or met its
    limit. Raises JobError beginning with `what`.
    """
    cure = "try again, then report the network"
    return _called(
        place, what, cure, lambda: place.device.call(function, *args, timeout_s=_LIMIT_S)
    )


def beside_device(place: StageContext, what: str, function: Callable[..., T], *args: Any) -> T:
    """The same of a network in its source framework: on this machine, in the device's worker,
    wherever the device is."""
    pool, cure = (
        place.pool,
        "see whether it runs there with its example inputs, or give others",
    )
    return _called(place, what, cure, lambda: pool.call(function, *args, timeout_s=_LIMIT_S))


def _called(place: StageContext, what: str, cure: str, call: Callable[[], T | CallFailure]) -> T:
    outcome = call()
    ended = isinstance(outcome, CallFailure) and outcome.end in (CallEnd.MEMORY, CallEnd.CRASH)
    if ended and place.is_here:
        if place.remote is None:
            place.machine.grant_all()
        outcome = call()
    if isinstance(outcome, CallFailure):
        memory = machine_memory()
        # The kernel kills the process that has most when memory runs out.
        short = outcome.end is CallEnd.MEMORY or outcome.text.endswith("SIGKILL")
        raise JobError(
            f"{what}: {outcome.text}",
            cure=f"{gib(memory.available)} of memory are free: end what else uses it, then give "
            "the same command again, which goes on from its records"
            if short
            else cure,
        )
    return outcome
