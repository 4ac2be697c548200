"""Collecting records on this machine, interrupted and continued."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tunefleet import BenchmarkContext
from tunefleet.core.events import Event, Observer, StageCommitted
from tunefleet.costmodel import InputForm
from tunefleet.dataset import codecs, parquet
from tunefleet.dataset.codecs.metaschedule import steps_of
from tunefleet.errors import InputError
from tunefleet.features import unpack
from tunefleet.features.words import KINDS
from tunefleet.learning.inputs import Inputs
from tunefleet.learning.records import read_records
from tunefleet.runs.collected import write_ended, write_jobs
from tunefleet.runs.collection import collect
from tunefleet.store import open_store

SMALL, LARGER = "zoo:tiny_cnn", "zoo:tiny_cnn?classes=11"


def context(home: Path, target: str = "native") -> BenchmarkContext:
    return BenchmarkContext(target, threads=1, home=home)


def stopping_after(stages: int) -> Callable[[int], Observer]:
    finished: list[Event] = []

    def observe(event: Event) -> None:
        if isinstance(event, StageCommitted):
            finished.append(event)
            if len(finished) == stages:
                raise KeyboardInterrupt

    return lambda index: observe


def check_written(home: Path, job_ids: list[str], trials: int) -> None:
    """The trials are records, and those TVM's own database."""
    import tvm

    store = open_store(home)
    try:
        jobs = [job for job in store.jobs.page() if job.job_id in job_ids]
        count = write_jobs(home / "records.parquet", store, jobs)
    finally:
        store.close()
    table = parquet.read_table(home / "records.parquet")
    assert count == trials == table.num_rows
    for row in table.to_pylist():
        assert (row["error_no"] == 0) == bool(row["costs_s"])
        assert {"task_id", "flops", "operator"} <= set(json.loads(row["extra"]))
    codecs.write(table.to_batches(), home / "database", "metaschedule")
    names = ("database_workload.json", "database_tuning_record.json")
    database = tvm.s_tir.meta_schedule.database.JSONDatabase(
        *(str(home / "database" / name) for name in names)
    )
    assert len(database.get_all_tuning_records()) == trials


def check_ended(home: Path, ended: int, *, running: bool) -> None:
    """Each job that has ended is a file of its own, whose bytes are the same every time."""
    store = open_store(home)
    try:
        told = []
        for name in ("once", "twice"):
            (home / name).mkdir(exist_ok=True)
            files, left_out = write_ended(home / name, store)
            told.append({path.name: path.read_bytes() for path in files})
    finally:
        store.close()
    assert (ended, running) == (len(told[0]), left_out > 0)
    assert told[0] == told[1]


def check_features(home: Path) -> None:
    """A model that learns from the records sees what the search saw, which scores decisions."""
    from tunefleet.compiler.code.replay import completed

    store = open_store(home)
    try:
        selected = {
            (
                w.task.task_id,
                completed(w.task.program, job.spec.target, trial.candidate.trace),
            ): unpack(trial.candidate.features)
            for job in store.jobs.page()
            for w in store.work.tasks(job.job_id)
            for trial in store.records.trials(job.job_id, w.task.task_id)
        }
        write_jobs(home / "all.parquet", store, reversed(store.jobs.page()))
    finally:
        store.close()
    records = read_records(
        [home / "all.parquet"], device="", on_bad=lambda bad: None, progress=lambda text: None
    )
    numbers = np.arange(len(records.rows))
    features = Inputs.of(records, numbers, "tilings/1", lambda text: None).features
    learnt = features.programs(InputForm.ROWS)
    of_record = {
        (json.loads(row["extra"])["task_id"], tuple(row["steps"])): rows
        for row, rows in zip(records.table.to_pylist(), learnt, strict=True)
    }
    assert len(selected) == len(of_record) == len(numbers)
    for (task_id, trace), rows in selected.items():
        same = of_record[task_id, tuple(steps_of(trace))]
        # Where TVM lowers a compute location on replay, the trace has what it became.
        locations = rows[:, 1 + KINDS.index("location")] == 1.0
        assert rows.shape == same.shape
        np.testing.assert_allclose(rows[1:][~locations[1:]], same[1:][~locations[1:]], rtol=1e-5)
        np.testing.assert_allclose(rows[0, :51], same[0, :51], rtol=1e-5)


@pytest.mark.tvm
@pytest.mark.slow
def test_every_task_gets_its_programs_once_also_when_interrupted(tmp_path: Path) -> None:
    contexts = [context(tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        collect([SMALL, LARGER], contexts, 3, observer=stopping_after(6))
    check_ended(tmp_path, 0, running=True)
    first, second, unknown = collect([SMALL, LARGER, "zoo:nothing"], contexts, 3)
    assert (first.error, second.error) == ("", "")
    # All tasks but the classifier's are those of the first network.
    assert first.tasks > second.tasks >= 1
    store = open_store(tmp_path)
    try:
        trials = [
            (w.task.task_id, len(store.records.trials(job.job_id, w.task.task_id)))
            for job in store.jobs.page()
            for w in store.work.tasks(job.job_id)
        ]
    finally:
        store.close()
    assert len({task for task, _ in trials}) == len(trials) == first.tasks + second.tasks
    assert sum(count for _, count in trials) == first.trials + second.trials
    assert all(1 <= count <= 3 for _, count in trials)
    assert "no network" in unknown.error
    check_written(tmp_path, [first.job_id, second.job_id], first.trials + second.trials)
    check_ended(tmp_path, 2, running=False)
    check_features(tmp_path)

    again = collect([SMALL, LARGER], contexts, 3)
    assert [g.skipped for g in again] == [True, True]
    assert [g.trials for g in again] == [first.trials, second.trials]


@pytest.mark.tvm
def test_a_collection_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="twice"):
        collect([SMALL, SMALL], [context(tmp_path)], 3)
    with pytest.raises(InputError, match="0 programs"):
        collect([SMALL], [context(tmp_path)], 0)


@pytest.mark.tvm
@pytest.mark.frameworks
def test_only_what_tensor_instructions_compute_is_collected_when_asked(tmp_path: Path) -> None:
    (gathered,) = collect([f"{SMALL}?precision=int8"], [context(tmp_path)], 6, tensorised=True)
    assert gathered.error == ""
    assert gathered.trials >= 6
    store = open_store(tmp_path)
    try:
        (job,) = store.jobs.page()
        operators = {w.task.operator for w in store.work.tasks(job.job_id)}
        write_jobs(tmp_path / "records.parquet", store, [job])
    finally:
        store.close()
    assert operators <= {"conv2d", "matmul"}
    rows = parquet.read_table(tmp_path / "records.parquet").to_pylist()
    intrinsics = [json.loads(row["extra"]).get("intrinsic", "") for row in rows]
    for row, intrinsic in zip(rows, intrinsics, strict=True):
        assert any('"Tensorize"' in step for step in row["steps"]) == bool(intrinsic)
    # Plain programs of the same tasks stand beside them.
    assert {bool(each) for each in intrinsics} == {True, False}


@pytest.mark.tvm
def test_a_target_without_tensor_instructions_has_nothing_to_collect(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tensor instructions"):
        collect([SMALL], [context(tmp_path, "nehalem")], 3, tensorised=True)
