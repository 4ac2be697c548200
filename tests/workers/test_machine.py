from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from tunefleet.core.layout import MachineLayout
from tunefleet.errors import SetupError
from tunefleet.workers import pool
from tunefleet.workers.machine import Machine

pytestmark = pytest.mark.tvm


def test_a_machine_whose_workers_cannot_start_leaves_the_thread_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("a thread that has one core cannot be kept off another")
    one = (min(cores),)
    unit = frozenset({"core"})
    layout = MachineLayout(one, one, unit, unit)
    # No lower limit instead: the process of the tests may have more files open than that.
    monkeypatch.setattr(pool, "_LEAST_FILES", sys.maxsize)
    with pytest.raises(SetupError, match="a pool of workers needs"):
        Machine(layout)
    assert cores == os.sched_getaffinity(0)
    assert list(tmp_path.iterdir()) == []
