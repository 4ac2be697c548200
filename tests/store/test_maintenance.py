"""A store is checked, copied and, where it is damaged, saved as far as it can be read."""

from __future__ import annotations

import shutil
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from tunefleet.errors import InputError, RetryElsewhereError, SetupError, StoreBusyError
from tunefleet.store import SqlStore
from tunefleet.store.maintenance import backup, check, repair

from . import values as v


@pytest.fixture(scope="module")
def filled_file(empty_file: Path) -> Path:
    path = Path(shutil.copy(empty_file, empty_file.with_name("filled.sqlite")))
    with closing(SqlStore.open(path)) as store:
        v.open_with_task(store, "job")
        for i in range(60):
            latencies = {f"{i}.{n}": 1e-3 for n in range(8)}
            v.commit_measured(store, latencies, iteration=i)
    return path


@pytest.fixture
def filled(filled_file: Path, path: Path) -> Path:
    """A store with a job of many stages."""
    return Path(shutil.copy(filled_file, path))


def _trials(path: Path) -> int:
    with closing(SqlStore.open(path)) as store:
        return store.records.trial_count("job")


def _spoil(path: Path) -> None:
    """Overwrite a page in the middle of the trials."""
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = 'trials' AND pagetype = 'leaf'"
        ).fetchall()
    with path.open("r+b") as file:
        file.seek((pages[len(pages) // 2][0] - 1) * size)
        file.write(b"\xa5" * size)


def test_a_whole_store_has_no_problems(filled: Path) -> None:
    assert check(filled) == []


def test_damage_is_told(filled: Path) -> None:
    _spoil(filled)
    assert check(filled)


def test_what_cannot_be_understood_is_told(filled: Path) -> None:
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute("UPDATE tasks SET program = ?", (zlib.compress(b"\xff\xfe"),))
        connection.commit()
    (problem,) = check(filled)
    assert problem.startswith("the tasks of job job")


def test_a_store_that_cannot_be_asked_is_not_called_damaged(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunefleet.store.maintenance._BUSY_S", 0.05)
    with closing(sqlite3.connect(filled, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        other.execute("PRAGMA user_version=77")
        with pytest.raises(StoreBusyError, match="is locked by another process"):
            check(filled)
        other.execute("ROLLBACK")


def test_a_copy_holds_what_the_store_holds(filled: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    with closing(SqlStore.open(filled)):  # in use
        backup(filled, copy)
    assert check(copy) == []
    assert _trials(copy) == _trials(filled)
    with pytest.raises(InputError, match="exists"):
        backup(filled, copy)
    with pytest.raises(SetupError):
        backup(filled, tmp_path / "nowhere" / "copy.sqlite")
    assert [p.name for p in tmp_path.iterdir() if "draft" in p.name] == []


def test_what_can_be_read_of_a_damaged_store_is_saved(filled: Path) -> None:
    before = _trials(filled)
    _spoil(filled)
    saved = repair(filled)
    assert check(filled) == []
    after = _trials(filled)
    assert saved.rows["trials"] == after
    assert before / 2 < after < before
    assert saved.lost >= before - after
    assert saved.damaged.is_file()


@pytest.mark.parametrize(
    ("damage", "left"),
    [
        ("UPDATE jobs SET spec = replace(spec, 'network', 'netwerk')", 0),
        ("UPDATE jobs SET spec = CAST(x'ff22' AS TEXT)", 0),
        ("UPDATE trials SET outcome = '{}' WHERE seq = 1", 479),
        ("UPDATE stages SET result = '[' WHERE kind = 'profile' AND iteration = 3", 472),
    ],
)
def test_what_a_repair_leaves_can_be_used(filled: Path, damage: str, left: int) -> None:
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute(damage)
        connection.commit()
    assert check(filled)
    assert repair(filled).lost
    assert check(filled) == []
    with closing(SqlStore.open(filled)) as store:
        assert sum(len(store.records.trials(job.job_id)) for job in store.jobs.page()) == left
        for job in store.jobs.page():
            store.work.stages(job.job_id)


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        ("name = CAST(x'ff' AS TEXT) WHERE name = 'ix_jobs_fingerprint'", 0),
        ("name = CAST(x'ff' AS TEXT) WHERE name = 'trials'", 0),
        ("name = CAST(x'ff' AS TEXT), sql = 'x' WHERE name = 'winners'", 1),
    ],
)
def test_a_definition_that_is_none_costs_its_table_alone(
    filled: Path, damage: str, lost: int
) -> None:
    before = _trials(filled)
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute(f"UPDATE sqlite_schema SET {damage}")
        connection.commit()
    with pytest.raises(SetupError, match="save what can be read with `tunefleet store repair`"):
        SqlStore.open(filled)
    assert "utf-8" in check(filled)[0]
    assert repair(filled).lost == lost
    assert check(filled) == []
    assert _trials(filled) == before


def test_a_whole_store_loses_nothing_by_a_repair(filled: Path) -> None:
    with closing(SqlStore.open(filled)) as store:
        before = store.work.stages("job"), store.records.trials("job")
    assert repair(filled).lost == 0
    with closing(SqlStore.open(filled)) as store:
        assert (store.work.stages("job"), store.records.trials("job")) == before


def test_a_store_in_use_is_not_replaced(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunefleet.store.maintenance._BUSY_S", 0.05)
    with closing(sqlite3.connect(filled, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RetryElsewhereError, match="locked"):
            repair(filled)
    assert check(filled) == []


def test_a_file_that_is_no_store_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no store"):
        check(tmp_path / "none.sqlite")
    text = tmp_path / "text.sqlite"
    text.write_text("no database at all, but long enough to be one" * 100)
    for look in (check, repair):
        with pytest.raises(SetupError, match="cannot be used as a store"):
            look(text)
