"""`tunefleet records` on homes that hold none."""

from __future__ import annotations

import json
from pathlib import Path

from .conftest import Invoke


def test_without_records_it_says_how_to_get_some(invoke: Invoke, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shown = invoke("records", "best", "--home", str(home))
    assert (shown.code, shown.out) == (0, "no verified records: tunefleet tune zoo:tiny_cnn\n")
    assert not home.exists()
    shown = invoke("records", "best", "--home", str(home), "--json", "-")
    assert json.loads(shown.out) == {"records": []}


def test_nothing_is_exported_of_no_home(invoke: Invoke, tmp_path: Path) -> None:
    out = tmp_path / "known.jsonl"
    shown = invoke("records", "export", "-o", str(out), "--home", str(tmp_path / "home"))
    assert shown.code == 2
    assert "no records in" in shown.err
    assert not out.exists()


def test_a_file_that_exists_is_kept(invoke: Invoke, tmp_path: Path) -> None:
    out = tmp_path / "known.jsonl"
    out.write_text("mine")
    shown = invoke("records", "export", "-o", str(out), "--home", str(tmp_path))
    assert shown.code == 2
    assert out.read_text() == "mine"


def test_a_run_without_a_log_is_told(invoke: Invoke, tmp_path: Path) -> None:
    shown = invoke("logs", "3f2a81c0", "--home", str(tmp_path))
    assert shown.code == 2
    assert "there is no log of 3f2a81c0" in shown.err
