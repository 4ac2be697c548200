"""Every value reads back from every store as it was written."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tunefleet.core.job import JobState
from tunefleet.core.stage import (
    BuildResult,
    Profiled,
    ProfileResult,
    SelectResult,
    UpdateResult,
)
from tunefleet.core.trial import Failure, Measurement, Trial
from tunefleet.store import MemoryStore

from . import values as v

FRESH = count()
ROUND_TRIP = settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(params=["sql", "memory"])
def store(request: pytest.FixtureRequest) -> Any:
    return MemoryStore() if request.param == "memory" else request.getfixturevalue("sql_store")


@ROUND_TRIP
@given(spec=v.specs)
def test_a_spec_reads_back(store: Any, spec: Any) -> None:
    job = store.jobs.open(spec, job_id=f"job {next(FRESH)}", now=0.1)
    assert spec == job.spec == next(j.spec for j in store.jobs.page() if j.job_id == job.job_id)
    store.jobs.finish(job.job_id, JobState.SUCCEEDED, None)


@ROUND_TRIP
@given(put=st.lists(v.tasks, max_size=4, unique_by=lambda t: t.task.task_id))
def test_tasks_read_back(store: Any, put: Any) -> None:
    unique = f"#{next(FRESH)}"
    store.jobs.open(v.make_spec(unique), job_id=unique, now=1.0)
    put = [replace(t, task=replace(t.task, task_id=unique + t.task.task_id)) for t in put]
    store.work.put_tasks(unique, put)
    assert put == store.work.tasks(unique)


@ROUND_TRIP
@given(data=st.data(), chosen=v.distinct_candidates(), note=v.noise, seconds=v.positive)
def test_stages_and_trials_read_back(
    store: Any, data: Any, chosen: Any, note: str, seconds: float
) -> None:
    job_id = f"#{next(FRESH)}"
    v.open_with_task(store, job_id)
    outcomes = {c.candidate_id: data.draw(v.measurements | v.failures) for c in chosen}
    ok = {n: o for n, o in outcomes.items() if isinstance(o, Measurement)}
    bad = {n: o for n, o in outcomes.items() if isinstance(o, Failure)}
    results = (
        SelectResult(tuple(chosen), not chosen),
        BuildResult(v.built(*outcomes, build_s=seconds)),
        ProfileResult(tuple(Profiled(n, o, seconds) for n, o in ok.items()), tuple(bad.items())),
        UpdateResult(bytes(range(256)), 3),
    )
    runs = [
        replace(v.run_of(r, job_id, seconds=seconds), note=note, resource_id="gpu", attempt=7)
        for r in results
    ]
    assert [store.work.commit(run) for run in runs] == [True] * 4
    assert runs == [store.work.stage(run.key) for run in runs]
    assert {note} == {run.note for run in store.work.stages(job_id)}
    by_id = {c.candidate_id: c for c in chosen}
    expected = [Trial(by_id[n], 0, o, seconds, seconds) for n, o in ok.items()]
    expected += [Trial(by_id[n], 0, o, seconds, 0.0) for n, o in bad.items()]
    assert expected == store.records.trials(job_id)
