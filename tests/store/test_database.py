"""What the file promises beyond the contract: locks, and errors that say what to do."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tunefleet.errors import InputError, InternalError, RetryElsewhereError, SetupError
from tunefleet.store import SqlStore, open_store
from tunefleet.store.database import explained

from . import values as v


@pytest.fixture
def intruder(path: Path) -> Iterator[sqlite3.Connection]:
    """Another process, as far as locks are concerned."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def open_and_close(path: Path | str) -> None:
    SqlStore.open(path).close()


def test_open_store_creates_its_home(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a" / "b")
    store.close()
    assert (tmp_path / "a" / "b" / "store.sqlite").is_file()


def test_a_url_names_the_same_store(path: Path) -> None:
    with closing(SqlStore.open(path)) as store:
        job = store.jobs.open(v.make_spec(), job_id="a", now=1.0)
    with closing(SqlStore.open(f"sqlite:///{path}")) as store:
        assert [job] == store.jobs.page()


def test_the_file_has_a_write_ahead_log(intruder: sqlite3.Connection) -> None:
    assert intruder.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_second_writer_is_told_to_come_again(path: Path, intruder: sqlite3.Connection) -> None:
    with closing(SqlStore.open(path, busy_timeout_s=0.05)) as store:
        intruder.execute("BEGIN IMMEDIATE")
        with pytest.raises(RetryElsewhereError, match=r"store\.sqlite is locked"):
            store.jobs.open(v.make_spec(), job_id="a", now=1.0)
        intruder.execute("ROLLBACK")
        store.jobs.open(v.make_spec(), job_id="a", now=1.0)


def test_creating_waits_for_whoever_creates_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.1, other.execute, ["COMMIT"])
        release.start()
        open_and_close(path)
        release.join()


def test_creating_does_not_wait_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RetryElsewhereError, match="locked"):
            SqlStore.open(path, busy_timeout_s=0.05)


def test_readers_do_not_wait_and_see_whole_commits(
    sql_store: SqlStore, intruder: sqlite3.Connection
) -> None:
    v.open_with_task(sql_store, "a")
    intruder.execute("BEGIN IMMEDIATE")
    intruder.execute("UPDATE jobs SET elapsed_s = 77")
    assert [job.elapsed_s for job in sql_store.jobs.page()] == [0.0]
    intruder.execute("COMMIT")
    assert [job.elapsed_s for job in sql_store.jobs.page()] == [77.0]


def test_a_forked_process_uses_connections_of_its_own(path: Path) -> None:
    script = """
import os, sys
from tunefleet.core.job import JobState
from tunefleet.store import SqlStore
store = SqlStore.open(sys.argv[1])
store.jobs.page()
child = os.fork()
if not child:
    store.jobs.finish("a", JobState.SUCCEEDED, "child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert store.jobs.summary("a") == "child"
store.jobs.finish("a", JobState.SUCCEEDED, "parent")
store.close()
"""
    with closing(SqlStore.open(path)) as store:
        store.jobs.open(v.make_spec(), job_id="a", now=1.0)
        subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=30)
        assert store.jobs.summary("a") == "parent"


@pytest.mark.parametrize("url", ["postgresql://host/db", "sqlite://", "sqlite:///:memory:", "://"])
def test_what_names_no_file_is_an_input_error(url: str) -> None:
    with pytest.raises(InputError):
        open_and_close(url)


def test_a_missing_directory_is_a_setup_error(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="missing"):
        open_and_close(tmp_path / "missing" / "store.sqlite")


def test_a_home_that_cannot_be_made_is_a_setup_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="home"):
        open_store(tmp_path / "file" / "home")


def test_a_home_that_cannot_be_written_is_a_setup_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        (tmp_path / "probe").touch()
    except PermissionError:
        with pytest.raises(SetupError, match="writable"):
            open_store(tmp_path)
    else:
        pytest.skip("this user may write everywhere")
    finally:
        tmp_path.chmod(0o700)


def test_a_read_only_file_is_a_setup_error(path: Path) -> None:
    with (
        closing(SqlStore.open(f"sqlite:///file:{path}?mode=ro&uri=true")) as store,
        pytest.raises(SetupError, match="writable"),
    ):
        store.jobs.open(v.make_spec(), job_id="a", now=1.0)


@pytest.mark.parametrize("content", [b"not a database" * 99, b"SQLite format 3\0" + b"\xff" * 9999])
def test_any_other_file_is_a_setup_error_and_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(SetupError, match=r"notes\.txt"):
        open_and_close(path)
    assert content == path.read_bytes()


def test_a_damaged_file_is_a_setup_error(path: Path) -> None:
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with pytest.raises(SetupError, match="restore"):
        open_and_close(path)


def test_a_full_disk_is_a_setup_error(path: Path, intruder: sqlite3.Connection) -> None:
    intruder.execute("PRAGMA max_page_count = 1")
    with pytest.raises(sqlite3.OperationalError) as full:
        intruder.execute("CREATE TABLE big AS SELECT randomblob(1000000)")
    error = explained("store.sqlite", full.value)
    assert isinstance(error, SetupError)
    assert "disk space" in error.cure
    assert "\n" not in str(error)


def test_any_other_error_is_a_bug(intruder: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError) as unknown:
        intruder.execute("SELECT nothing")
    assert isinstance(explained("store.sqlite", unknown.value), InternalError)


def test_a_file_that_was_removed_in_use_is_told(path: Path) -> None:
    with closing(SqlStore.open(path)) as store:
        store.jobs.open(v.make_spec(), job_id="a", now=1.0)
        path.unlink()
        with pytest.raises(SetupError, match=r"store\.sqlite was removed while it was in use"):
            store.jobs.page()


def test_a_file_that_was_replaced_in_use_is_told(path: Path, tmp_path: Path) -> None:
    open_and_close(tmp_path / "other.sqlite")
    with closing(SqlStore.open(path)) as store:
        store.jobs.open(v.make_spec(), job_id="a", now=1.0)
        (tmp_path / "other.sqlite").rename(path)
        with pytest.raises(SetupError, match="was replaced by another file"):
            store.jobs.page()


_OVERWRITTEN = """
import sys
from pathlib import Path
from tunefleet.store import SqlStore
from tests.store import values as v

store = SqlStore.open(sys.argv[1])
store.jobs.open(v.make_spec("other"), job_id="b", now=1.0)
log = Path(sys.argv[1] + "-wal")
log.write_bytes(bytes(log.stat().st_size))
try:
    store.jobs.page()
except Exception as error:
    print(error)
store.close()
"""


def test_a_log_that_was_overwritten_does_not_spoil_the_file(path: Path) -> None:
    with closing(SqlStore.open(path)) as store:
        store.jobs.open(v.make_spec(), job_id="a", now=1.0)
    # A process of its own: SQLite remembers in each what it knows of a file.
    command = [sys.executable, "-c", _OVERWRITTEN, str(path)]
    assert "-wal is no log of a database" in subprocess.check_output(command, text=True)
    with pytest.raises(SetupError, match="-wal is no log of a database"):
        SqlStore.open(path)
    Path(f"{path}-wal").unlink()
    with closing(SqlStore.open(path)) as store:
        assert [job.job_id for job in store.jobs.page()] == ["a"]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE jobs SET spec = substr(spec, 2)",
        "UPDATE jobs SET spec = replace(spec, 'network', 'netwerk')",
        "UPDATE jobs SET state = 'flying'",
        "UPDATE jobs SET spec = CAST(x'ff22' AS TEXT)",
        "UPDATE jobs SET spec = 7",
        "UPDATE jobs SET created_at = 'yesterday'",
        "UPDATE jobs SET state = x'00'",
        "UPDATE tasks SET flops = 'many'",
        "UPDATE job_tasks SET weight = 'heavy'",
        "UPDATE tasks SET program = x'00'",
        "UPDATE trials SET outcome = '{}'",
    ],
)
def test_a_value_that_nobody_wrote_is_damage(path: Path, damage: str) -> None:
    with closing(SqlStore.open(path)) as store:
        v.open_with_task(store, "job")
        v.commit_measured(store, {"a": 1e-3})
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(damage)
        connection.commit()

    def read_all() -> None:
        with closing(SqlStore.open(path)) as store:
            store.jobs.page()
            store.work.tasks("job")
            store.records.trials("job")

    with pytest.raises(SetupError, match="is damaged"):
        read_all()


def test_open_store_takes_a_url(path: Path) -> None:
    with closing(SqlStore.open(path)) as store:
        store.jobs.open(v.make_spec(), job_id="job", now=0.0)
    with closing(open_store(f"sqlite:///{path}")) as store:
        assert [job.job_id for job in store.jobs.page()] == ["job"]
