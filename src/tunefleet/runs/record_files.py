"""Measured programs of files that others wrote: `records.jsonl`, Parquet of `dataset gather`, and
databases of MetaSchedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from tunefleet.artifacts.artifact import MANIFEST, read_artifact
from tunefleet.core.forms import tile_of
from tunefleet.core.identity import DeviceIdentity, ToolchainIdentity
from tunefleet.core.ids import canonical_json, digest
from tunefleet.core.job import BESIDE_OTHERS
from tunefleet.core.known import RECORD
from tunefleet.core.target import Target
from tunefleet.core.task import WeightedTask
from tunefleet.core.trial import Candidate, Measurement, Trial
from tunefleet.dataset import codecs, files, reading
from tunefleet.dataset.codecs import strict_json
from tunefleet.dataset.codecs.codec import LineError
from tunefleet.dataset.formats import METASCHEDULE
from tunefleet.errors import InputError
from tunefleet.store import store_path
from tunefleet.system.files import check_regular

_LINES = "records.jsonl"
#: Rows that are Python objects at once.
_ROWS = 64
#: Items of a step that is an instruction; one more is its decision.
_INSTRUCTION = 4

_NOT_OF_NETWORK = "its task is none of the network's"
_UNKNOWN_PLACE = "it does not say what it was measured on"


@dataclass(frozen=True, slots=True)
class MeasuredProgram:
    """A program of a task and its latencies. `device` and `toolchain` are who measured it, None
    where nobody says; `checks` are those that chose it, None where none did."""

    task_id: str
    trial: Trial
    device: DeviceIdentity | None = None
    toolchain: ToolchainIdentity | None = None
    checks: Any = None

    @property
    def is_verified(self) -> bool:
        return isinstance(self.checks, Mapping) and self.checks.get("verified") is True

    def measured_by(
        self, device: DeviceIdentity, toolchain: ToolchainIdentity
    ) -> tuple[DeviceIdentity, ToolchainIdentity]:
        """Who measured it; where nobody says, somebody like who asks, and never the same."""
        return (
            self.device or replace(device, name="unknown", key="unknown"),
            self.toolchain or replace(toolchain, measure_version=0),
        )


class _Line(msgspec.Struct, frozen=True):
    """A line of `records.jsonl`; identities are whole in what `records export` wrote, and digests
    in an artifact, whose manifest has them."""

    schema: str
    task_id: str
    candidate_id: str
    trace: str
    latencies_s: tuple[float, ...]
    device: str | DeviceIdentity
    toolchain: str | ToolchainIdentity
    checks: Any = None
    shared: bool = False


def is_home(path: Path) -> bool:
    """Whether a folder is a home with a store."""
    return path.is_dir() and store_path(path).is_file()


def read_programs(
    path: Path, tasks: Sequence[WeightedTask], target: Target, refused: Counter[str]
) -> Iterator[MeasuredProgram]:
    """The measured programs of these tasks in a file or folder; what else is there is counted by
    the reason why it is `refused`. Raises InputError for what is no such file."""
    if path.is_dir() and (path / MANIFEST).is_file():
        path = path / _LINES
    if path.suffix == ".jsonl":
        yield from _lines(path, {weighted.task.task_id for weighted in tasks}, refused)
        return
    workloads = _Workloads(tasks, target)

    def bad(line: codecs.BadLine) -> None:
        refused[line.reason] += 1

    found = list(reading.find_files([path]))
    if not found:
        raise InputError(f"there are no records in {path}", cure="see docs/guide/known.md")
    for file, format in found:
        for batch in reading.read(file, format, device="", on_bad=bad):
            for start in range(0, batch.num_rows, _ROWS):
                for row in batch.slice(start, _ROWS).to_pylist():
                    program = _of_row(row, workloads, refused)
                    if program is not None:
                        yield program


def own_trace(steps: Sequence[Any]) -> str:
    """The trace of a search: the instructions before MetaSchedule's postprocessing;
    raises LineError for steps that are none."""
    from tunefleet.compiler.toolchain.programs import POSTPROCESSED

    instructions: list[Any] = []
    decisions: list[Any] = []
    for place, step in enumerate(steps):
        if not isinstance(step, list) or len(step) not in (_INSTRUCTION, _INSTRUCTION + 1):
            raise LineError("not a trace")
        if step[0] == POSTPROCESSED:
            break
        instructions.append(step[:_INSTRUCTION])
        decisions += [[place, decision] for decision in step[_INSTRUCTION:]]
    return canonical_json([instructions, decisions])


def _lines(path: Path, task_ids: set[str], refused: Counter[str]) -> Iterator[MeasuredProgram]:
    check_regular(path)
    identities = _identities_of(path.parent)
    try:
        for _, lines in files.line_chunks(path):
            for line in filter(None, map(bytes.strip, lines)):
                try:
                    yield _of_line(line, task_ids, identities)
                except LineError as error:
                    refused[str(error)] += 1
    except files.BrokenFileError as error:
        refused[error.reason] += 1


def _identities_of(folder: Path) -> dict[str, Any]:
    """The identities of the artifact in a folder, by their digests."""
    if not (folder / MANIFEST).is_file():
        return {}
    artifact = read_artifact(folder)
    return {each.exact: each for each in (artifact.device, artifact.toolchain)}


def _of_line(line: bytes, task_ids: set[str], identities: Mapping[str, Any]) -> MeasuredProgram:
    """Raises LineError with the reason why a line is refused."""
    try:
        value = msgspec.convert(strict_json.loads(line), _Line)
    except (msgspec.ValidationError, ValueError) as error:
        raise LineError(f"not a record: {error}") from error
    if value.schema != RECORD:
        raise LineError(f"a record of schema {value.schema[:40]}")
    if value.task_id not in task_ids:
        raise LineError(_NOT_OF_NETWORK)
    if value.shared:
        raise LineError(BESIDE_OTHERS)
    device: Any = value.device
    toolchain: Any = value.toolchain
    if isinstance(device, str):
        device = identities.get(device)
    if isinstance(toolchain, str):
        toolchain = identities.get(toolchain)
    if device is None or toolchain is None:
        raise LineError(_UNKNOWN_PLACE)
    trial = _trial(_steps_of(value.trace), value.latencies_s)
    if trial.candidate.candidate_id != value.candidate_id:
        raise LineError("its trace is not the one that was measured")
    return MeasuredProgram(value.task_id, trial, device, toolchain, value.checks)


def _steps_of(trace: str) -> list[Any]:
    from tunefleet.dataset.codecs.metaschedule import steps_of

    return [strict_json.loads(step.encode()) for step in steps_of(trace)]


def _trial(steps: Sequence[Any], latencies_s: Sequence[float]) -> Trial:
    try:
        measurement = Measurement(tuple(latencies_s))
    except ValueError as error:
        raise LineError(f"not a record: {error}") from error
    trace = own_trace(steps)
    return Trial(Candidate(digest(trace), trace), 0, measurement)


class _Workloads:
    """The tasks of a network by their ids, and by what MetaSchedule calls them."""

    def __init__(self, tasks: Sequence[WeightedTask], target: Target) -> None:
        from tunefleet.compiler.graph.forms import forms
        from tunefleet.compiler.toolchain.host import target_json
        from tunefleet.compiler.toolchain.programs import database_entry, load_program

        self.target = target_json(target)
        self.task_ids = {weighted.task.task_id for weighted in tasks}
        self._tasks = [weighted.task for weighted in tasks]
        self._tiles: set[tuple[int, int]] = set()
        self._by_hash = {
            database_entry(form)[0]: weighted.task.task_id
            for weighted in tasks
            for form in forms(load_program(weighted.task.program))
        }

    def task_id(self, workload: str, steps: Sequence[Any]) -> str | None:
        """The task of a workload that MetaSchedule names; None for one of no task here."""
        tile = tile_of(canonical_json(steps))
        if workload not in self._by_hash and tile[0] and tile not in self._tiles:
            self._tiles.add(tile)
            self._by_hash |= self._padded(*tile)
        return self._by_hash.get(workload)

    def _padded(self, height: int, lanes: int) -> dict[str, str]:
        """The tasks by their forms in tiles of a height, each a workload of its own."""
        from tunefleet.compiler.graph.forms import forms
        from tunefleet.compiler.space.padded_rows import with_padded_rows
        from tunefleet.compiler.toolchain.programs import database_entry, load_program

        found = {}
        for task in self._tasks:
            for form in forms(load_program(task.program)):
                padded = with_padded_rows(form, height, lanes)
                if padded is not None:
                    found[database_entry(padded)[0]] = task.task_id
        return found


def _of_row(
    row: Mapping[str, Any], workloads: _Workloads, refused: Counter[str]
) -> MeasuredProgram | None:
    """A row of `tunefleet-records/1`, or None with its reason counted."""
    try:
        return _program_of(row, workloads)
    except LineError as error:
        refused[str(error)] += 1
        return None


def _program_of(row: Mapping[str, Any], workloads: _Workloads) -> MeasuredProgram:
    if row["format"] != METASCHEDULE:
        raise LineError(f"a record of {row['format']}: its programs are none of TVM's schedules")
    if row["error_no"]:
        raise LineError("it failed where it was measured")
    extra = strict_json.loads(row["extra"].encode())
    if not isinstance(extra, dict):
        raise LineError("not a record")
    steps = [strict_json.loads(step.encode()) for step in row["steps"]]
    task_id = extra.get("task_id") or workloads.task_id(row["workload"], steps)
    if task_id not in workloads.task_ids:
        raise LineError(_NOT_OF_NETWORK)
    trial = _trial(steps, row["costs_s"])
    if "device" in extra and "toolchain" in extra:
        device = _identity(DeviceIdentity.from_json, extra["device"])
        toolchain = _identity(ToolchainIdentity.from_json, extra["toolchain"])
        return MeasuredProgram(task_id, trial, device, toolchain)
    if strict_json.loads(row["target"].encode()) != workloads.target:
        raise LineError("measured for another target, nobody says where")
    return MeasuredProgram(task_id, trial)


def _identity(read: Callable[[dict[str, Any]], Any], value: Any) -> Any:
    try:
        return read(value)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise LineError(_UNKNOWN_PLACE) from error
