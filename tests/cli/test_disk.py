from __future__ import annotations

import json
from pathlib import Path

import pytest

from tunefleet.store import open_store

from .conftest import Invoke


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with the modules of a job that nobody knows."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    home = tmp_path / "home"
    open_store(home).close()
    modules = home / "objects" / "gone"
    modules.mkdir(parents=True)
    (modules / "module.so").write_text("x" * (2 << 20), encoding="utf-8")
    return home


def test_disk_shows_what_can_go(invoke: Invoke, home: Path) -> None:
    ended = invoke("disk", "--home", str(home))
    assert (ended.code, ended.err) == (0, "")
    row = next(line for line in ended.out.splitlines() if line.startswith("modules on"))
    assert row.split()[4:8] == ["2", "MiB", "2", "MiB"]
    assert "tunefleet prune removes what can go" in ended.out
    value = json.loads(invoke("disk", "--home", str(home), "--json", "-").out)
    assert value["can_go_bytes"] == 2 << 20


def test_a_dry_run_names_it_and_removes_nothing(invoke: Invoke, home: Path) -> None:
    ended = invoke("prune", "--dry-run", "--home", str(home))
    assert ended.out == f"{home / 'objects' / 'gone'}\nwould remove 1 folder, 2 MiB\n"
    assert (home / "objects" / "gone").is_dir()


def test_pruning_asks_where_it_can(invoke: Invoke, home: Path) -> None:
    ended = invoke("prune", "--home", str(home))
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert (home / "objects" / "gone").is_dir()
    ended = invoke("prune", "--yes", "--home", str(home))
    assert (ended.code, ended.out) == (0, "removed 1 folder, 2 MiB\n")
    assert not (home / "objects" / "gone").exists()
    assert invoke("prune", "--home", str(home)).out == "nothing can go\n"
