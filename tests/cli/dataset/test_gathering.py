"""`dataset gather`; that trials become records is in tests/runs/test_collection.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.runs.spans import MINE, open_job
from tunefleet.dataset import parquet
from tunefleet.store import open_store


def filled(home: Path) -> Path:
    home.mkdir()
    store = open_store(home)
    open_job(store)
    store.close()
    return home


@pytest.mark.tvm
def test_jobs_without_trials_have_no_records(invoke: Invoke, tmp_path: Path) -> None:
    home, out = filled(tmp_path / "home"), tmp_path / "r.parquet"
    done = invoke("dataset", "gather", MINE[:6], "--home", str(home), "-o", str(out))
    assert (done.code, "0 records" in done.err) == (0, True)
    assert parquet.read_table(out).num_rows == 0


def test_an_unknown_job_and_home_are_named(invoke: Invoke, tmp_path: Path) -> None:
    home, out = filled(tmp_path / "home"), str(tmp_path / "r.parquet")
    done = invoke("dataset", "gather", "123456", "--home", str(home), "-o", out)
    assert (done.code, "no run 123456" in done.err) == (2, True)
    done = invoke("dataset", "gather", "--home", str(tmp_path / "none"), "-o", out)
    assert (done.code, "no jobs in" in done.err) == (2, True)
