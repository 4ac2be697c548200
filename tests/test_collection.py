"""Collecting records on this machine, interrupted and continued."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tunefleet import BenchmarkContext
from tunefleet.collection import collect
from tunefleet.core.events import Event, Observer, StageFinished
from tunefleet.errors import InputError
from tunefleet.store import open_store

SMALL, LARGER = "zoo:tiny_cnn", "zoo:tiny_cnn?classes=11"


def context(home: Path, target: str = "native") -> BenchmarkContext:
    return BenchmarkContext(target, threads=1, home=home)


def stopping_after(stages: int) -> Callable[[int], Observer]:
    finished: list[Event] = []

    def observe(event: Event) -> None:
        if isinstance(event, StageFinished):
            finished.append(event)
            if len(finished) == stages:
                raise KeyboardInterrupt

    return lambda index: observe


@pytest.mark.tvm
@pytest.mark.slow
def test_every_task_gets_its_programs_once_also_when_interrupted(tmp_path: Path) -> None:
    contexts = [context(tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        collect([SMALL, LARGER], contexts, 3, observer=stopping_after(6))
    first, second, unknown = collect([SMALL, LARGER, "zoo:nothing"], contexts, 3)
    assert (first.error, second.error) == ("", "")
    # All tasks but the classifier's are those of the first network.
    assert first.tasks > second.tasks >= 1
    store = open_store(tmp_path)
    try:
        trials = [
            (w.task.task_id, len(store.trials(job.job_id, w.task.task_id)))
            for job in store.jobs()
            for w in store.tasks(job.job_id)
        ]
    finally:
        store.close()
    assert len({task for task, _ in trials}) == len(trials) == first.tasks + second.tasks
    assert sum(count for _, count in trials) == first.trials + second.trials
    assert all(1 <= count <= 3 for _, count in trials)
    assert "no network" in unknown.error

    again = collect([SMALL, LARGER], contexts, 3)
    assert [g.skipped for g in again] == [True, True]
    assert [g.trials for g in again] == [first.trials, second.trials]


@pytest.mark.tvm
def test_a_collection_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="twice"):
        collect([SMALL, SMALL], [context(tmp_path)], 3)
    with pytest.raises(InputError, match="0 programs"):
        collect([SMALL], [context(tmp_path)], 0)
