"""`tunefleet records`: homes that hold none, and whom they are shared with."""

from __future__ import annotations

import json
from pathlib import Path

from tunefleet.store import User, open_store

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


def test_what_the_commands_of_a_home_measured_is_shared_by_its_operator(
    invoke: Invoke, tmp_path: Path
) -> None:
    store = open_store(tmp_path)
    store.accounts.put_user(User("bob", created_at=1.0))
    store.close()
    home = ("--home", str(tmp_path))
    assert invoke("records", "share", *home).out == "shared with nobody\n"
    assert invoke("records", "share", "bob", *home).out == "shared with bob\n"
    assert invoke("records", "share", "all", *home).out == "shared with all, bob\n"
    assert invoke("records", "share", "bob", "--stop", *home).out == "shared with all\n"
    unknown = invoke("records", "share", "ann", *home)
    assert (unknown.code, "no user ann" in unknown.err) == (2, True)
    assert invoke("records", "share", "--stop", *home).code == 2
