from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tunefleet.system import scratch


def left_behind(folder: Path) -> Path:
    """A folder of a process that was killed."""
    code = (
        "import os, signal; from tunefleet.system.scratch import scratch_folder; "
        "f = scratch_folder('test'); print(f.name, flush=True); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = [sys.executable, "-c", code]
    told = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"TMPDIR": str(folder)}
    )
    return Path(told.stdout.strip())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch._sweep_once.cache_clear()
    return tmp_path


def test_what_a_killed_process_left_is_removed(temporary: Path) -> None:
    old = left_behind(temporary)
    assert old.is_dir()
    assert old.parent == temporary
    with scratch.scratch_folder("test") as own:
        assert not old.exists()
        scratch._sweep_once.cache_clear()
        with scratch.scratch_folder("other"):
            assert Path(own).is_dir()


def test_what_is_not_known_to_be_ours_stays(temporary: Path) -> None:
    names = ["tunefleet-", "tunefleet-my-notes", "tunefleet-test-1-2-3"]
    # Of another space of process numbers, as a container's.
    names.append("tunefleet-test-1-999999-5-abc")
    for name in names:
        (temporary / name).mkdir()
    with scratch.scratch_folder("test"):
        assert all((temporary / name).is_dir() for name in names)


@pytest.mark.frameworks
def test_torch_leaves_no_cache_behind(tmp_path: Path) -> None:
    code = (
        "import torch; from tunefleet.system.scratch import torch_cache\n"
        "with torch_cache(): torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TORCHINDUCTOR_CACHE_DIR"}
    environment["TMPDIR"] = str(tmp_path)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_ends_itself_removes_its_own(temporary: Path) -> None:
    other = temporary / "tunefleet-test-1-2-3-abc"
    other.mkdir()
    with scratch.scratch_folder("test") as own, scratch.scratch_folder("other") as more:
        scratch.remove_own()
        assert not Path(own).exists()
        assert not Path(more).exists()
    assert other.is_dir()
