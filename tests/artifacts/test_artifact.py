"""An artifact is published whole or not at all, however its process ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tvm

#: Publishes an artifact anew and is ended, by `how`, when all but its last file is written.
PUBLISH = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from tunefleet.artifacts import artifact as room

def kill(written):
    os.kill(os.getpid(), signal.SIGKILL)

def stop(written):
    raise KeyboardInterrupt

how, source, place = sys.argv[1:]
found = room.read_artifact(Path(source))
if how != "whole":
    room._to_json = {"kill": kill, "stop": stop}[how]
room.write_artifact(
    replace(found, path=Path(place)), module=found.module, records=[], report=""
)
"""


def publish(how: str, source: Path, place: Path) -> int:
    command = [sys.executable, "-c", PUBLISH, how, str(source), str(place)]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode


def test_what_was_half_written_when_it_was_stopped_is_gone(artifact: Path, tmp_path: Path) -> None:
    assert publish("stop", artifact, tmp_path / "run") != 0
    assert list(tmp_path.iterdir()) == []


def test_what_was_half_written_when_it_was_killed_goes_with_the_next_one(
    artifact: Path, tmp_path: Path
) -> None:
    assert publish("kill", artifact, tmp_path / "run") == -9
    (draft,) = tmp_path.iterdir()
    assert draft.name != "run"
    assert publish("whole", artifact, tmp_path / "other") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_an_artifact_of_the_same_run_is_replaced(artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "old").touch()
    assert publish("whole", artifact, tmp_path / "run") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert not (tmp_path / "run" / "old").exists()
