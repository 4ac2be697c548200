"""kill -9 at any moment, then the same again: nothing lost, nothing measured twice."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.networks import write_small
from tunefleet.store import open_store

pytestmark = pytest.mark.tvm

TRIALS = 18
KILLS = 3


def start(home: Path) -> subprocess.Popen[str]:
    networks = [str(home / f"{name}.onnx") for name in "ab"]
    command = [sys.executable, "-m", "tests.fleet.jobs", str(home), str(TRIALS), *networks]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_killed_jobs_end_with_exactly_their_trials(tmp_path: Path) -> None:
    generator = random.Random(7)
    for channels, name in ((8, "a"), (4, "b")):
        write_small(tmp_path / f"{name}.onnx", channels)
    for _ in range(KILLS):
        with start(tmp_path) as process:
            assert process.stdout is not None
            for _ in range(generator.randint(2, 6)):  # some stages, then within the next
                if not process.stdout.readline():
                    break
            process.kill()
    with start(tmp_path) as process:
        output = process.communicate(timeout=240)[0]
    assert output.count(f"all {TRIALS} trials are done") == 2
    store = open_store(tmp_path)
    jobs = store.jobs.page()
    trials = [store.records.trials(job.job_id) for job in jobs]
    measured = [
        {
            (w.task.task_id, t.candidate.candidate_id)
            for w in store.work.tasks(job.job_id)
            for t in store.records.trials(job.job_id, w.task.task_id)
        }
        for job in jobs
    ]
    keys = [run.key for job in jobs for run in store.work.stages(job.job_id)]
    store.close()
    assert [len(of) for of in trials] == [TRIALS, TRIALS]
    assert [len(of) for of in measured] == [TRIALS, TRIALS]
    assert len(set(keys)) == len(keys)
