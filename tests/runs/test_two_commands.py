"""Two commands of one home on one machine: what one measures, the other does not disturb."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tunefleet.core.stage import StageKind
from tunefleet.runs.context import BenchmarkContext
from tunefleet.store import open_store

from ..networks import small_beside

pytestmark = [pytest.mark.tvm, pytest.mark.slow]


def tuning(home: Path, seed: int) -> subprocess.Popen[str]:
    """A command whose hosts and device have the same core, as those of every other."""
    core = str(min(os.sched_getaffinity(0)))
    command = [sys.executable, "-m", "tunefleet", "tune", small_beside(home), "--home", str(home)]
    command += ["--host-cores", core, "--device-cores", core, "--trials", "12", "--batch", "2"]
    return subprocess.Popen(
        [*command, "--seed", str(seed)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
def test_no_stage_of_one_command_runs_while_the_other_measures(tmp_path: Path) -> None:
    with tuning(tmp_path, 1) as one, tuning(tmp_path, 2) as two:
        errors = [process.communicate(timeout=400)[1] for process in (one, two)]
    assert [one.returncode, two.returncode] == [0, 0], errors
    with closing(open_store(tmp_path)) as store:
        first, second = store.jobs.page()
        spans = store.work.stages_between(0.0, 1e12)
        assert store.coordination.claims() == []
    of_first = [span for span in spans if span.key.job_id == first.job_id]
    of_second = [span for span in spans if span.key.job_id == second.job_id]
    # Or the test shows nothing: both tuned at the same time.
    assert of_first[0].started_at < of_second[-1].ended_at
    assert of_second[0].started_at < of_first[-1].ended_at
    overlaps = [
        (one.key, two.key)
        for one in of_first
        for two in of_second
        if StageKind.PROFILE in (one.key.kind, two.key.kind)
        and one.started_at < two.ended_at
        and two.started_at < one.ended_at
    ]
    assert overlaps == []


_BEGINNING = """
import multiprocessing.forkserver as forkserver, os, sys
from pathlib import Path
from tunefleet.runs.context import BenchmarkContext, fleet_of
before = os.sched_getaffinity(0)
fleet = fleet_of(BenchmarkContext(threads=1, home=Path(sys.argv[1])))
print(*os.sched_getaffinity(forkserver._forkserver._forkserver_pid))
assert os.sched_getaffinity(0) == before
fleet.close()
"""


def test_a_command_begins_on_the_cores_of_its_host(tmp_path: Path) -> None:
    """It loads compilers for seconds, before it has a lease."""
    host = BenchmarkContext(threads=1, home=tmp_path).layout.host_cores
    began = subprocess.run(
        [sys.executable, "-c", _BEGINNING, str(tmp_path)], capture_output=True, text=True
    )
    assert began.returncode == 0, began.stderr
    assert {int(core) for core in began.stdout.split()} == set(host)
