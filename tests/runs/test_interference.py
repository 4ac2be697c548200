"""Several networks whose candidates are measured at once, on purpose."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fleet.jobs import SETTINGS
from tests.networks import write_small
from tests.store.values import make_spec
from tunefleet import BenchmarkContext, Session, build, tune
from tunefleet.core.job import BESIDE_OTHERS
from tunefleet.core.stage import StageKind, StageRun
from tunefleet.core.trial import Measurement
from tunefleet.errors import InputError
from tunefleet.runs.collected import write_ended
from tunefleet.runs.jobs import list_jobs
from tunefleet.runs.record_files import read_programs
from tunefleet.runs.records_import import import_records
from tunefleet.runs.request import job_spec, search_request
from tunefleet.store import open_store

pytestmark = pytest.mark.tvm

TRIALS = 6


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    networks = [str(write_small(folder / f"{n}.onnx", n)) for n in (8, 4)]
    outcomes = tune(
        networks,
        context=BenchmarkContext(home=folder, threads=1),
        policy="synchronous",
        allow_interference=True,
        trials=TRIALS,
        settings=SETTINGS,
    )
    for outcome in outcomes:
        assert outcome.result is not None
        assert outcome.result.shared
        assert outcome.result.verified
        assert BESIDE_OTHERS in outcome.result.warnings[0]
    return folder


def overlapping(runs: Sequence[StageRun]) -> list[tuple[str, str]]:
    """The kinds of two stages of different jobs that ran at once."""
    return [
        (str(one.key.kind), str(other.key.kind))
        for one, other in itertools.combinations(runs, 2)
        if one.started_at < other.started_at + other.seconds
        and other.started_at < one.started_at + one.seconds
        and one.key.job_id != other.key.job_id
    ]


def test_profile_stages_of_both_jobs_run_at_once_and_only_these(home: Path) -> None:
    with closing(open_store(home)) as store:
        runs = [run for job in store.jobs.page() for run in store.work.stages(job.job_id)]
    profile = [run for run in runs if run.key.kind is StageKind.PROFILE]
    assert {"shared device 1", "shared device 2"} == {run.resource_id for run in profile}
    assert {("profile", "profile")} == set(overlapping(runs))


def test_what_was_measured_at_once_is_marked_and_serves_no_other_job(
    home: Path, tmp_path: Path
) -> None:
    with closing(open_store(home)) as store:
        for job in store.jobs.page():
            trials = store.records.trials(job.job_id)
            assert len(trials) == TRIALS
            measured = [t.outcome for t in trials if isinstance(t.outcome, Measurement)]
            assert measured
            assert all(outcome.shared for outcome in measured)
        assert store.records.best_page() == []
        assert write_ended(tmp_path, store) == ([], 0)
    assert [job["reason"] for job in list_jobs(home)] == [BESIDE_OTHERS] * 2
    done = import_records(home, BenchmarkContext(home=tmp_path, threads=1))
    assert (done.refused, done.jobs) == ({BESIDE_OTHERS: 2 * TRIALS}, [])


def test_a_session_may_ask_for_it(tmp_path: Path) -> None:
    with Session(BenchmarkContext(home=tmp_path, threads=1)) as session:
        session.from_network(write_small(tmp_path / "small.onnx"))
        session.autotune(trials=2, settings=SETTINGS, allow_interference=True)
        result = session.result()
    assert result.shared
    with closing(open_store(tmp_path)) as store:
        outcomes = [trial.outcome for trial in store.records.trials(str(result.job))]
    assert [isinstance(o, Measurement) and o.shared for o in outcomes] == [True, True]


def test_such_a_job_is_nothing_to_build_from(home: Path) -> None:
    job = list_jobs(home)[0]["job"]
    with pytest.raises(InputError, match="is an experiment: its trials were measured at the same"):
        build(home / "8.onnx", from_job=job, context=BenchmarkContext(home=home, threads=1))


def test_a_record_of_an_artifact_is_refused_too(home: Path) -> None:
    with closing(open_store(home)) as store:
        for job in store.jobs.page():
            refused: Counter[str] = Counter()
            lines = home / "artifacts" / job.job_id / "records.jsonl"
            tasks = store.work.tasks(job.job_id)
            assert list(read_programs(lines, tasks, job.spec.target, refused)) == []
            count = len(lines.read_text().splitlines())
            assert ({BESIDE_OTHERS: count} if count else {}) == refused


def test_only_this_machines_processor_is_shared() -> None:
    context = BenchmarkContext()
    context._devices = (SimpleNamespace(name="board"),)  # type: ignore[assignment]
    request = replace(search_request(1), shared=True)
    source: Any = SimpleNamespace(identity="x", content="x")
    with pytest.raises(InputError, match="jobs cannot share board"):
        job_spec(context, source, request)


def test_such_a_job_is_never_continued_as_another_one() -> None:
    spec = make_spec()
    assert spec.fingerprint != replace(spec, shared=True).fingerprint
    assert spec.fingerprint == replace(spec, shared=False).fingerprint
