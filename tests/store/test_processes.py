"""Several processes on one file, and processes that are killed."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tunefleet.core.stage import ProfileResult, StageKind
from tunefleet.store import SqlStore

pytestmark = pytest.mark.slow

BATCH = 6


def committer(path: Path, first: int, count: int) -> AbstractContextManager[subprocess.Popen[str]]:
    return process_of("committer.py", str(path), str(first), str(count))


@contextmanager
def process_of(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process of a script beside this file that waits for its start."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def start(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def committed_iterations(path: Path) -> list[int]:
    """The iterations profiled, after checking that the file is sound and each of them whole."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    with closing(SqlStore.open(path)) as store:
        runs = store.work.stages("job")
        trials = store.records.trials("job")
        [job] = store.jobs.page()
        spans = store.work.stages_between(0.0, 1000.0)
    iterations = [run.key.iteration for run in runs if run.key.kind is StageKind.PROFILE]
    reported = [
        name
        for run in runs
        if isinstance(run.result, ProfileResult)
        for name, _, _ in run.result.measured
    ]
    assert len(reported) == BATCH * len(iterations)
    assert list(dict.fromkeys(reported)) == [trial.candidate.candidate_id for trial in trials]
    assert len({(run.key.iteration, run.key.kind) for run in runs}) == len(runs)
    assert job.elapsed_s == max(run.key.iteration for run in runs)
    assert len(spans) == len(runs)
    return iterations


def test_two_processes_lose_and_double_nothing(tmp_path: Path) -> None:
    """Both create the file, open the same job and commit the same stages at the same time."""
    path = tmp_path / "new.sqlite"
    with committer(path, 0, 20) as one, committer(path, 0, 20) as two:
        start(one)
        start(two)
        outputs = [process.communicate(timeout=60)[0].split() for process in (one, two)]
        assert [one.returncode, two.returncode] == [0, 0]
    for first, second in zip(outputs[0][1::2], outputs[1][1::2], strict=True):
        assert {first, second} == {"0", "1"}
    assert committed_iterations(path) == list(range(20))


def test_what_was_acknowledged_survives_a_kill(path: Path) -> None:
    acknowledged: list[int] = []
    for round_ in range(4):
        with committer(path, 10_000 * round_, 10_000) as process:
            start(process)
            assert process.stdout is not None
            acknowledged.append(int(process.stdout.readline().split()[0]))
            time.sleep(random.uniform(0, 0.15))
            process.kill()
            rest = process.stdout.read().splitlines()
        acknowledged += [int(line.split()[0]) for line in rest if line.endswith((" 0", " 1"))]
        found = committed_iterations(path)
        assert set(acknowledged) <= set(found)
        # One commit may have been finished and not yet told.
        assert len(found) <= len(acknowledged) + round_ + 1


def test_two_processes_never_have_a_unit_at_once(path: Path) -> None:
    count = 40
    with (
        process_of("claimer.py", str(path), "a", str(count)) as one,
        process_of("claimer.py", str(path), "b", str(count)) as two,
    ):
        start(one)
        start(two)
        outputs = [process.communicate(timeout=60)[0].splitlines() for process in (one, two)]
    leases = sorted(
        (int(began), int(ended), int(epoch))
        for lines in outputs
        for epoch, began, ended in map(str.split, lines)
    )
    assert len(leases) == 2 * count
    for before, after in pairwise(leases):
        assert before[1] <= after[0]
        assert before[2] < after[2]
