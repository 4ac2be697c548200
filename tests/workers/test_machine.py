from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path

import pytest

from tunefleet.compiler.toolchain.host import native_target
from tunefleet.core.layout import MachineLayout
from tunefleet.core.settings import TuneSettings
from tunefleet.errors import SetupError
from tunefleet.workers.machine import Machine
from tunefleet.workers.pool import _LEAST_FILES

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
    target = native_target(1)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_LEAST_FILES - 1, files[1]))
    try:
        with pytest.raises(SetupError, match="a pool of workers needs"):
            Machine(target, TuneSettings(), layout)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
    assert cores == os.sched_getaffinity(0)
    assert list(tmp_path.iterdir()) == []
