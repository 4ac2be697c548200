"""What every executor does, wherever its stages run."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tunefleet.core.budget import Budget
from tunefleet.core.events import Event
from tunefleet.core.identity import DeviceIdentity, ToolchainIdentity
from tunefleet.core.job import Job, JobSpec
from tunefleet.core.network import NetworkInfo, TensorSpec
from tunefleet.core.settings import TuneSettings
from tunefleet.core.stage import StageKey, StageKind, StageRun, UpdateResult
from tunefleet.core.step import StepRun
from tunefleet.core.target import CpuTarget
from tunefleet.core.task import Task, WeightedTask
from tunefleet.errors import DeviceError, InputError, StoreBusyError
from tunefleet.fleet.executor import Assignment, Executor, Report
from tunefleet.fleet.leases import Leases
from tunefleet.scheduler.values import End
from tunefleet.stages.place import JobTask, LostInputError, StepRequest
from tunefleet.store import Store

#: Seconds after which something that should happen has not.
_LIMIT_S = 30.0
_LOOK_S = 0.01

TASK = WeightedTask(Task("task", "conv", "conv2d", "1x3x8x8", 1e6, "program"), 1)
#: What a stage that ends so raises.
ERRORS: dict[str, Exception] = {
    "input": InputError("the file is damaged", cure="write it again"),
    "device": DeviceError("the clock stands still", cure="reset the device"),
    "lost": LostInputError(StageKind.SELECT, "what was selected is gone"),
    "bug": ValueError("nobody foresaw this"),
}


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + _LIMIT_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {_LIMIT_S} s")
        time.sleep(_LOOK_S)


class Gate:
    """Stages that begin and end when a test says so: files in a folder which the process that runs
    them sees too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, key: StageKey) -> None:
        self._file("begun", key).touch()

    def has_begun(self, key: StageKey) -> bool:
        return self._file("begun", key).exists()

    def end(self, key: StageKey, how: str = "") -> None:
        """Let a stage, and each later attempt at it, end: with an error of `ERRORS` where one is
        named."""
        draft = self._file("draft", key)
        draft.write_text(how, encoding="utf-8")
        draft.rename(self._file("ended", key))

    def how(self, key: StageKey) -> str:
        """Wait for `end`."""
        place = self._file("ended", key)
        until(place.exists)
        return place.read_text(encoding="utf-8")

    def _file(self, what: str, key: StageKey) -> Path:
        return self._folder / f"{what}-{key.iteration}"


class GatedRunner:
    """A runner of update stages that does nothing until its gate ends them."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def run(self, lane: JobTask, key: StageKey, batch: int) -> StageRun:
        assert lane.task == TASK.task
        self._gate.begin(key)
        how = self._gate.how(key)
        if how:
            raise ERRORS[how]
        return StageRun(key, UpdateResult(b"model", 3), time.time(), 0.5, "as the gate said")

    def run_step(self, request: StepRequest) -> StepRun:
        raise AssertionError("no step is given here")


class Bench(ABC):
    """An executor with its store, and a job of one task. What the executor reports goes to
    `report`; its stages are run by a `GatedRunner` of `gate`."""

    #: Seconds after which it is known where a stage runs that it was abandoned.
    heard_s = 0.2

    executor: Executor
    leases: Leases
    store: Store

    def __init__(self, folder: Path) -> None:
        self.gate = Gate(folder)
        self.reports: list[Report] = []
        #: What was committed of each stage when its report came.
        self.committed: list[StageRun | None] = []

    @abstractmethod
    def lose(self) -> None:
        """Let what runs the stages show no more signs of life."""

    @abstractmethod
    def rejoin(self) -> None:
        """Let it be there again, under the same name."""

    @abstractmethod
    def reopen(self) -> None:
        """Close the store, and open it again for an executor that knows of no stage yet."""

    @abstractmethod
    def close(self) -> None:
        """End everything."""

    def report(self, report: Report) -> None:
        self.committed.append(self.store.work.stage(report.assignment.key))
        self.reports.append(report)

    def open_job(self) -> Job:
        tensor = TensorSpec("x", (1, 3, 8, 8), "float32")
        device = DeviceIdentity("cpu", "any", (), 1, (), 1)
        spec = JobSpec(
            NetworkInfo("net", "zoo", "digest", (tensor,), (tensor,)),
            CpuTarget("skylake", 1),
            device,
            ToolchainIdentity("0.1.0", "0.27.0", "20.1", 1),
            Budget(trials=8),
            TuneSettings(),
        )
        job = self.store.jobs.open(spec, job_id="job", now=0.0)
        self.store.work.put_tasks("job", [TASK])
        return job

    def assignment(self, iteration: int, lease: int, attempt: int = 1) -> Assignment:
        job = self.store.jobs.get("job")
        key = StageKey("job", TASK.task.task_id, iteration, StageKind.UPDATE)
        return Assignment(key, lease, attempt, JobTask(job, TASK.task), elapsed_s=10.0)

    def begin(self, iteration: int = 0, lease: int = 1, attempt: int = 1) -> StageKey:
        """Start a stage, and wait until it has begun."""
        assignment = self.assignment(iteration, lease, attempt)
        self.executor.start(assignment)
        until(lambda: self.gate.has_begun(assignment.key))
        return assignment.key

    def reports_of(self, lease: int) -> list[Report]:
        return [report for report in self.reports if report.assignment.lease == lease]

    def reported(self, lease: int) -> Report:
        """Wait for the report of a lease."""
        until(lambda: bool(self.reports_of(lease)))
        return self.reports_of(lease)[0]

    def done_again(self, key: StageKey, lease: int) -> StageRun:
        """Start a stage once more that may end now; what is then committed."""
        self.executor.start(self.assignment(key.iteration, lease, attempt=2))
        report = self.reported(lease)
        assert report.end is End.DONE
        return self.the_commit(key, report)

    def the_commit(self, key: StageKey, report: Report) -> StageRun:
        """What is committed of a stage, once, as a report says."""
        run = self.store.work.stage(key)
        assert run is not None
        assert report.run == run
        assert [run.key] == [s.key for s in self.store.work.stages("job") if s.key == key]
        return run


class ExecutorConformance:
    """A subclass gives a fixture `make`, which makes a Bench; one for each test."""

    @pytest.fixture
    def bench(self, make: Callable[[], Bench]) -> Iterator[Bench]:
        made = make()
        made.open_job()
        yield made
        made.close()

    def test_a_result_is_in_the_store_before_the_stage_is_done(self, bench: Bench) -> None:
        key = bench.begin()
        assert bench.store.work.stage(key) is None
        bench.gate.end(key)
        report = bench.reported(1)
        run = bench.the_commit(key, report)
        assert report.end is End.DONE
        assert report.error is None
        assert [run] == bench.committed
        assert run.result == UpdateResult(b"model", 3)
        assert run.resource_id == bench.executor.resource.resource_id
        assert bench.store.jobs.get("job").elapsed_s == pytest.approx(10.5)

    def test_an_abandoned_stage_leaves_no_trace(self, bench: Bench) -> None:
        key = bench.begin()
        bench.executor.abandon(1)
        time.sleep(bench.heard_s)
        bench.gate.end(key)
        assert bench.reported(1).end is End.ABANDONED
        assert bench.store.work.stage(key) is None

    def test_what_is_done_cannot_be_abandoned(self, bench: Bench) -> None:
        key = bench.begin()
        bench.gate.end(key)
        bench.reported(1)
        bench.executor.abandon(1)
        later = bench.begin(iteration=1, lease=2)
        bench.gate.end(later)
        bench.reported(2)
        assert [report.end for report in bench.reports_of(1)] == [End.DONE]
        assert bench.store.work.stage(key) is not None

    @pytest.mark.parametrize(
        ("how", "end"),
        [("input", End.FAILED), ("device", End.AWAY), ("lost", End.LOST), ("bug", End.FAILED)],
    )
    def test_errors_are_reported_as_what_they_are(self, bench: Bench, how: str, end: End) -> None:
        bench.gate.end(bench.assignment(0, 1).key, how)
        bench.begin()
        report, expected = bench.reported(1), ERRORS[how]
        assert report.end is end
        if isinstance(expected, LostInputError):
            assert report.lost is not None
            assert (expected.kind, str(expected)) == (report.lost.kind, str(report.lost))
        elif how == "bug":
            assert str(expected) in str(report.error)
            assert getattr(report.error, "exit_code", 70) == 70
        else:
            assert type(expected) is type(report.error)
            assert str(expected) == str(report.error)

    def test_it_is_responsive_at_rest_and_at_work(self, bench: Bench) -> None:
        until(bench.executor.responsive)
        key = bench.begin()
        until(bench.executor.responsive)
        bench.gate.end(key)
        bench.reported(1)

    def test_a_lost_stage_is_given_again_to_who_joins_under_the_same_name(
        self, bench: Bench
    ) -> None:
        key = bench.begin()
        bench.lose()
        until(lambda: not bench.executor.responsive())
        bench.executor.abandon(1)
        bench.gate.end(key)
        assert bench.reported(1).end is not End.DONE
        bench.rejoin()
        until(bench.executor.responsive)
        assert bench.done_again(key, 2).attempt == 2
        assert len(bench.reports) == 2

    def test_a_stage_is_reported_once_whoever_was_replaced(self, bench: Bench) -> None:
        key = bench.begin()
        bench.lose()
        bench.rejoin()
        bench.gate.end(key)
        bench.reported(1)
        bench.done_again(key, 2)
        assert len(bench.reports) == 2

    def test_a_report_after_completion_counts_once(self, bench: Bench) -> None:
        key = bench.begin()
        bench.executor.start(bench.assignment(0, 2, attempt=2))
        bench.gate.end(key)
        first, second = bench.reported(1), bench.reported(2)
        assert [first.end, second.end] == [End.DONE, End.DONE]
        assert bench.the_commit(key, first) == bench.the_commit(key, second)

    def test_a_commit_of_a_job_that_another_process_has_taken_is_refused(
        self, bench: Bench
    ) -> None:
        with bench.leases.job(bench.store.jobs.get("job").spec.fingerprint) as lease:
            key = bench.begin()
            bench.store.coordination.release(lease.claim.claim_id)
            bench.gate.end(key)
            report = bench.reported(1)
        assert isinstance(report.error, StoreBusyError)
        assert bench.store.work.stage(key) is None

    def test_a_restart_of_the_store_loses_no_stage(self, bench: Bench) -> None:
        first, second = bench.begin(), bench.begin(iteration=1, lease=2)
        bench.reopen()
        for key in (first, second):
            bench.gate.end(key)
        bench.done_again(first, 3)
        bench.done_again(second, 4)

    def test_a_restart_of_the_store_in_a_recovery_loses_no_stage(self, bench: Bench) -> None:
        key = bench.begin()
        bench.lose()
        until(lambda: not bench.executor.responsive())
        bench.executor.abandon(1)
        bench.reopen()
        bench.rejoin()
        until(bench.executor.responsive)
        bench.gate.end(key)
        bench.done_again(key, 2)

    def test_closing_gives_up_what_runs(self, bench: Bench) -> None:
        key = bench.begin()
        threading.Timer(bench.heard_s, bench.gate.end, (key,)).start()
        bench.executor.close()
        assert bench.reported(1).end is End.ABANDONED
        assert bench.store.work.stage(key) is None


def unheard(job_id: str, event: Event) -> None:
    """Nobody watches the jobs of a bench."""
