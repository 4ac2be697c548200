from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.store.values import make_spec
from tunefleet.artifacts.blobs import FolderBlobs
from tunefleet.core.home import Home
from tunefleet.core.importing import NetworkSource
from tunefleet.core.job import JobState
from tunefleet.runs.disk import DiskPart, disk_usage, prune
from tunefleet.store import open_store

DEAD = 4_000_000  # more than any process's number


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with a job that goes on, one that has ended, and an artifact; each has a quantised
    network, and a fourth is nobody's."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(temporary))
    home = Home(tmp_path / "home")
    store = open_store(home.root)
    for job in ("open", "ended"):
        place = str(home.quantized / f"network-of-{job}" / "net.onnx")
        spec = replace(make_spec(job), source=NetworkSource(place, job, "digest"))
        store.jobs.open(spec, job_id=job, now=1.0)
        write(home.objects / job / "module.so", 1000)
    store.jobs.finish("ended", JobState.SUCCEEDED, {})
    store.close()
    for name in ("open", "ended", "artifact", "nobody"):
        write(home.quantized / f"network-of-{name}" / "net.onnx", 100, old=True)
    write(
        home.artifacts / "run" / "artifact.json", 0, text='{"at": "network-of-artifact/net.onnx"}'
    )
    namespace = os.stat("/proc/self/ns/pid").st_ino
    write(temporary / f"tunefleet-apart-{namespace}-{DEAD}-1-x" / "big", 5000)
    write(temporary / "somebody-else" / "big", 5000)
    return home


def write(path: Path, size: int, *, text: str = "", old: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or "x" * size, encoding="utf-8")
    if old:
        os.utime(path.parent, (1.0, 1.0))


def can_go(parts: list[DiskPart]) -> set[str]:
    names = {path.name for part in parts for path in part.can_go}
    return {name if not name.startswith("tunefleet-") else "temporary" for name in names}


GOES = {"ended", "network-of-ended", "network-of-nobody", "temporary"}


def test_what_only_ended_jobs_and_killed_processes_made_can_go(home: Home) -> None:
    parts = {part.name: part for part in disk_usage(home.root)}
    assert can_go([*parts.values()]) == GOES
    assert parts["temporary files"].can_go_size == 5000
    assert parts["modules on their way"].size == 2000
    assert parts["modules on their way"].can_go_size == 1000
    assert parts["quantised networks"].can_go_size == 200


def test_looking_changes_nothing(home: Home) -> None:
    before = sorted(str(path) for path in home.root.parent.rglob("*"))
    disk_usage(home.root)
    now = sorted(str(path) for path in home.root.parent.rglob("*"))
    assert [path for path in before if "store.sqlite" not in path] == [
        path for path in now if "store.sqlite" not in path
    ]


def test_pruning_removes_exactly_that(home: Home) -> None:
    assert can_go(prune(home.root)) == GOES
    assert can_go(disk_usage(home.root)) == set()
    assert {path.name for path in home.quantized.iterdir()} == {
        "network-of-open",
        "network-of-artifact",
    }
    assert [path.name for path in home.objects.iterdir()] == ["open"]
    assert (home.artifacts / "run" / "artifact.json").is_file()
    assert [path.name for path in (home.root.parent / "tmp").iterdir()] == ["somebody-else"]


def test_outputs_go_once_their_job_has_gone(home: Home) -> None:
    outputs = home.outputs_of("ann")
    for job in ("ended", "gone"):
        write(outputs / job / "output.npy", 500)
    prune(home.root)
    assert [folder.name for folder in outputs.iterdir()] == ["ended"]


def test_what_somebody_uses_stays(home: Home) -> None:
    with FolderBlobs(home.objects / "ended").in_use():
        assert can_go(prune(home.root)) == {"temporary"}
        assert (home.objects / "ended" / "module.so").is_file()


def test_a_network_that_was_just_made_stays(home: Home) -> None:
    write(home.quantized / "network-of-nobody" / "other.onnx", 1)
    assert "network-of-nobody" not in can_go(disk_usage(home.root))


def test_an_artifact_that_cannot_be_read_may_need_anything(home: Home) -> None:
    (home.artifacts / "run" / "artifact.json").unlink()
    assert can_go(disk_usage(home.root)) == {"ended", "temporary"}


def test_a_home_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    prune(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
