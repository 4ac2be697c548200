"""What is known is built without a search, and found again where it was built before."""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fleet.jobs import SETTINGS
from tests.runs.served import served
from tunefleet import BenchmarkContext, Session, build, run_artifact
from tunefleet.core.budget import NO_SEARCH
from tunefleet.core.coordination import ProcessIdentity
from tunefleet.core.events import Event, JobEnded, JobHeld, PhaseStarted
from tunefleet.core.importing import ImportOptions
from tunefleet.core.job import Building
from tunefleet.core.known import KnownProgram, module_id
from tunefleet.core.network import SEGMENT_PREFIX
from tunefleet.core.phases import PHASE_OF
from tunefleet.core.precision import FLOAT32
from tunefleet.core.settings import TuneSettings
from tunefleet.core.step import Compiled, StepKind
from tunefleet.core.task import Task, WeightedTask
from tunefleet.core.trial import Candidate, Measurement, Trial
from tunefleet.errors import InputError
from tunefleet.fleet.leases import Leases
from tunefleet.runs import known
from tunefleet.runs.jobs import list_jobs
from tunefleet.runs.request import SearchRequest, job_spec, shape_request, source_of
from tunefleet.runs.run_log import log_file, read_log
from tunefleet.stages.known import known_share
from tunefleet.store import open_store

NETWORK = "zoo:tiny_cnn"


def program(trace: str) -> KnownProgram:
    return KnownProgram("j" * 32, Trial(Candidate("c", trace), 0, Measurement((1e-6,))), {})


def task(task_id: str) -> WeightedTask:
    return WeightedTask(Task(task_id, task_id, "add", "", 1.0, ""), 1)


def test_the_known_share_is_of_what_the_tasks_take() -> None:
    kernels = {"a": 3.0, "b": 1.0, f"{SEGMENT_PREFIX}0": 4.0}
    tasks, compiled = [task("a"), task("b")], Compiled("", ("b",))
    assert known_share(tasks, {"a": program("[]")}, compiled, kernels) == 0.75
    assert known_share(tasks, {"a": program("[]")}, compiled, {}) is None
    assert known_share(tasks, {}, Compiled("", ("a", "b")), {}) == 0.0
    assert known_share(tasks[:1], {"a": program("[]")}, Compiled(""), {}) == 1.0


def context(home: Path, **given: Any) -> BenchmarkContext:
    return BenchmarkContext("cpu", threads=1, home=home, **given)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("known")


@pytest.fixture(scope="module")
def job(home: Path) -> str:
    """A job whose artifact was delivered."""
    with Session(context(home)) as session:
        session.from_network(NETWORK).autotune(trials=8, settings=SETTINGS).build().save()
        result = session.result()
    assert result.job is not None
    return result.job


@pytest.fixture
def without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> None:
        raise AssertionError("nothing is to be run")

    monkeypatch.setattr(known, "fleet_of", refuse)


@pytest.mark.tvm
class TestBuild:
    @pytest.mark.usefixtures("without_workers")
    def test_the_artifact_of_a_job_is_found(self, home: Path, job: str) -> None:
        result = build(NETWORK, context=context(home))
        assert str(home / "artifacts" / job) == result.artifact
        assert job == build(NETWORK, from_job=job[:8], context=context(home)).run

    @pytest.mark.usefixtures("without_workers")
    def test_programs_of_another_device_are_refused(self, home: Path, job: str) -> None:
        with pytest.raises(InputError, match="was measured on another device"):
            build(NETWORK, from_job=job, context=context(home, device_key="another"))

    def test_what_a_run_did_is_in_its_log(self, home: Path, job: str) -> None:
        told = "\n".join(read_log(log_file(home, job[:8])))
        assert f" of job {job[:8]}: " in told
        assert f"publish of {job[:8]}: " in told

    def test_what_was_built_once_is_found(
        self, home: Path, job: str, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        home = shutil.copytree(home, tmp_path / "home")
        shutil.rmtree(home / "artifacts" / job)
        built = build(NETWORK, context=context(home))
        assert built.job is None
        assert 0 < (built.known_share or 0.0) <= 1
        folder = Path(built.artifact or "")
        records = (folder / "records.jsonl").read_text().splitlines()
        assert built.reused == len(records)
        assert {json.loads(record)["task_id"] for record in records} == {
            each.task_id for each in built.tasks if each.source == "reused"
        }
        assert run_artifact(folder, [np.zeros((1, 3, 16, 16), "float32")])[0].shape == (1, 10)
        request.getfixturevalue("without_workers")
        again = build(NETWORK, context=context(home))
        assert (built.artifact, built.known_share) == (again.artifact, again.known_share)

    def test_a_build_is_a_job_which_the_server_of_a_home_does(self, tmp_path: Path) -> None:
        told: list[Event] = []
        with served(tmp_path):
            result = build(NETWORK, context=context(tmp_path), observer=told.append)
        (job,) = list_jobs(tmp_path)
        assert (job["kind"], job["state"], job["trials"]) == ("build", "succeeded", 0)
        assert result.run == job["run"] == Path(result.artifact or "").name
        assert PhaseStarted(PHASE_OF[StepKind.COMPILE]) in told
        assert JobEnded() == told[-1]

    @pytest.mark.long
    def test_a_module_that_another_job_of_the_server_makes_is_waited_for(
        self, tmp_path: Path
    ) -> None:
        told: list[Event] = []
        with served(tmp_path), ThreadPoolExecutor() as pool:
            both = [
                pool.submit(
                    build,
                    NETWORK,
                    measure=measure,
                    context=context(tmp_path),
                    observer=told.append,
                )
                for measure in (False, True)
            ]
            results = [each.result() for each in both]
        assert len({result.artifact for result in results}) == 1
        assert results[1].tuned_ms is not None
        assert JobHeld("another job makes the same module now") in told
        assert [JobEnded()] * 2 == [event for event in told if isinstance(event, JobEnded)]
        assert [job["state"] for job in list_jobs(tmp_path)] == ["succeeded"] * 2

    def test_a_build_that_another_command_does_is_waited_for(self, tmp_path: Path) -> None:
        told: list[Event] = []
        options = shape_request()
        source = source_of(NETWORK, ImportOptions(options), context(tmp_path), FLOAT32, None)
        request = SearchRequest(NO_SEARCH, TuneSettings(), building=Building("", False))
        spec = job_spec(context(tmp_path), source, request)
        elsewhere = ProcessIdentity("elsewhere", "elsewhere", 1, 1)
        with (
            closing(open_store(tmp_path)) as store,
            closing(Leases(store.coordination, process=elsewhere)) as leases,
            ThreadPoolExecutor() as pool,
        ):
            with leases.job(spec.fingerprint):
                ours = pool.submit(build, NETWORK, context=context(tmp_path), observer=told.append)
                while not [event for event in told if isinstance(event, JobHeld)]:
                    assert not ours.done()
                    time.sleep(0.1)
                assert list_jobs(tmp_path) == []
            assert ours.result().delivered

    def test_without_records_the_module_is_plain(self, tmp_path: Path) -> None:
        result = build(NETWORK, context=context(tmp_path))
        assert result.known_share == 0.0
        assert Path(result.artifact or "", "module.so").is_file()


def test_other_programs_are_another_module() -> None:
    class Prepared:
        id = "p"

    ids = {module_id(Prepared(), {"a": program(t)}) for t in ("[1]", "[2]", "[1]")}  # type: ignore[arg-type]
    assert len(ids) == 2
