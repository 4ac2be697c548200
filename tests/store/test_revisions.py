from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from tunefleet.core.job import JobState
from tunefleet.core.stage import ProfileResult, SelectResult, UpdateResult
from tunefleet.errors import SetupError, TunefleetError
from tunefleet.store import RecordFilter, RecordOrder, SqlStore, migrations, revisions
from tunefleet.store.schema import metadata

from . import values as v

#: What the tunefleet after this one does.
NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("owner", sa.Text(), server_default="nobody", nullable=False))
    {more}
"""


def at_revision(path: Path, revision: str) -> None:
    """A database as the tunefleet of that revision left it."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", revisions.SCRIPTS)
        command.upgrade(config, revision)
    engine.dispose()


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(sql).fetchall()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of revision 0001 with one job and all four stages, written without our code."""
    path = tmp_path / "old.sqlite"
    at_revision(path, "0001")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(Path(__file__).with_name("revision_0001.sql").read_text())
    return path


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tunefleet after this one: its revision is in the file that is returned."""
    scripts = Path(shutil.copytree(migrations.__path__[0], tmp_path / "scripts"))
    monkeypatch.setattr(revisions, "SCRIPTS", str(scripts))
    monkeypatch.setattr(revisions, "HEAD", "0016")
    added = scripts / "versions" / "r0016_owner.py"
    added.write_text(NEXT.format(more=""))
    return added


def test_head_is_the_newest_revision() -> None:
    assert ScriptDirectory(migrations.__path__[0]).get_heads() == [revisions.HEAD]


def test_the_revisions_make_the_tables_of_the_schema(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_a_file_of_the_first_revision_is_read(old: Path) -> None:
    with closing(SqlStore.open(old)) as store:
        [job] = store.jobs.page()
        assert (job.job_id, job.state, job.spec.settings.search.batch) == (
            "a",
            JobState.SUCCEEDED,
            7,
        )
        assert store.jobs.summary("a") == {"n": 1}


def test_the_stages_of_an_old_file_ran_somewhere_at_the_first_attempt(old: Path) -> None:
    with closing(SqlStore.open(old)) as store:
        runs = store.work.stages("a")
        assert [run.span for run in runs] == store.work.stages_between(10.0, 14.0)
    kinds = ["select", "build", "profile", "update"]
    expected = [(kind, 10.0 + i, 0.5, "", 1) for i, kind in enumerate(kinds)]
    assert expected == [
        (str(r.key.kind), r.started_at, r.seconds, r.resource_id, r.attempt) for r in runs
    ]


def test_the_tasks_of_an_old_file_tell_no_precision_until_they_are_put_again(old: Path) -> None:
    with closing(SqlStore.open(old)) as store:
        [weighted] = store.work.tasks("a")
        assert weighted.task.precision == ""
        told = replace(weighted, task=replace(weighted.task, precision="float32"))
        store.work.put_tasks("a", [told])
        assert [told] == store.work.tasks("a")


def test_the_records_of_an_old_file_are_listed(old: Path) -> None:
    newest = RecordOrder()
    with closing(SqlStore.open(old)) as store:
        [record] = store.explorer.page(RecordFilter(network="NET"), newest, limit=5)
        assert (record.network, record.device, record.candidate_id) == ("net", "x", "c")
        assert "skylake" in record.target
        later = v.run_of(SelectResult((v.cand("d"),)), "a", iteration=1, started_at=20.0)
        store.work.commit(later)
        store.work.commit(v.run_of(ProfileResult((), (("d", v.CRASH),)), "a", iteration=1))
        both = store.explorer.page(RecordFilter(), newest, limit=5)
        assert [("d", record.place.origin), ("c", record.place.origin)] == [
            (each.candidate_id, each.place.origin) for each in both
        ]


def test_a_job_that_cannot_be_read_does_not_stop_an_upgrade(old: Path) -> None:
    query(old, "UPDATE jobs SET spec = '{}'")
    with closing(SqlStore.open(old)) as store:
        assert store.explorer.page(RecordFilter(), RecordOrder(), limit=5) == []
    assert query(old, "SELECT count(*), origin FROM trials") == [(1, None)]


def test_the_first_upgrade_loses_nothing(old: Path) -> None:
    tables = [name for (name,) in query(old, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = {
        table: ", ".join(f'"{row[1]}"' for row in query(old, f"PRAGMA table_info({table})"))
        for table in tables
        if table != "alembic_version"
    }
    before = {t: query(old, f"SELECT {names} FROM {t}") for t, names in columns.items()}
    assert {"jobs", "tasks", "stages", "trials"} <= {
        table for table, rows in before.items() if rows
    }
    before["jobs"] = [
        tuple("succeeded" if value == "done" else value for value in row) for row in before["jobs"]
    ]
    SqlStore.open(old).close()
    assert before == {t: query(old, f"SELECT {names} FROM {t}") for t, names in columns.items()}


def test_an_upgraded_file_goes_on_with_its_job(old: Path) -> None:
    query(old, "UPDATE jobs SET state = 'running', summary = NULL")
    with closing(SqlStore.open(old)) as store:
        later = v.run_of(UpdateResult(), "a", iteration=1, started_at=20.0)
        assert store.work.commit(replace(later, resource_id="host"), elapsed_s=1.5)
        assert [job.elapsed_s for job in store.jobs.page()] == [2.0]
        assert [later.key] == [s.key for s in store.work.stages_between(20.0, 30.0)]
        [trial] = store.records.trials("a")
        assert (trial.candidate.candidate_id, trial.latency_s) == ("c", 1e-3)


def test_an_old_file_is_upgraded_with_all_it_holds(old: Path, next_version: Path) -> None:
    with closing(SqlStore.open(old)) as store:
        assert [job.job_id for job in store.jobs.page()] == ["a"]
    assert query(old, "SELECT owner, version_num FROM jobs, alembic_version") == [
        ("nobody", "0016")
    ]


def test_a_failed_upgrade_leaves_the_file_as_it_was(old: Path, next_version: Path) -> None:
    next_version.write_text(NEXT.format(more='op.execute("SELECT nothing")'), encoding="utf-8")
    before = query(old, "SELECT sql FROM sqlite_master ORDER BY name")
    with pytest.raises(TunefleetError):
        SqlStore.open(old)
    assert before == query(old, "SELECT sql FROM sqlite_master ORDER BY name")
    assert query(old, "SELECT version_num FROM alembic_version") == [("0001",)]


def test_a_newer_file_is_a_setup_error_that_names_file_and_cure(path: Path) -> None:
    query(path, "UPDATE alembic_version SET version_num = '0099'")
    with pytest.raises(SetupError, match=r"store\.sqlite .*newer tunefleet.*; upgrade tunefleet"):
        SqlStore.open(path)


def test_a_database_of_someone_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.sqlite"
    query(path, "CREATE TABLE invoices (n)")
    before = path.read_bytes()
    with pytest.raises(SetupError, match=r"theirs\.sqlite .*not a store"):
        SqlStore.open(path)
    assert before == path.read_bytes()


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    with closing(SqlStore.open(path)) as store:
        assert store.jobs.page() == []


def test_opening_at_head_does_not_import_alembic(path: Path) -> None:
    script = (
        "import sys; from tunefleet.store import SqlStore; SqlStore.open(sys.argv[1]).close(); "
        "print('alembic' in sys.modules)"
    )
    command = [sys.executable, "-c", script, str(path)]
    run = subprocess.run(command, capture_output=True, check=True, text=True, timeout=30)
    assert run.stdout == "False\n"
