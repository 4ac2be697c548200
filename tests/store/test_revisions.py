from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from tunefleet.core.job import JobState
from tunefleet.errors import SetupError, TunefleetError
from tunefleet.store import SqlStore, migrations, revisions
from tunefleet.store.schema import metadata

SECOND = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


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
    """A file of revision 0001 with one job, written without our code."""
    path = tmp_path / "old.sqlite"
    at_revision(path, "0001")
    spec = (
        '{"budget":{"seconds":null,"target_latency_s":null,"trials":64},"device":{"caches":'
        '[["l1",32768]],"cores":4,"isa":["avx2"],"key":"","kind":"cpu","memory_gib":16,"name":"x"},'
        '"network":{"digest":"d","inputs":[],"name":"net","outputs":[],"source":"zoo"},'
        '"settings":{"build":{},"measure":{},"search":{"batch":7},"transfer":true},'
        '"target":{"kind":"llvm","mattr":[],"mcpu":"skylake","threads":4},'
        '"toolchain":{"llvm":"20","measure_version":1,"tunefleet":"0.1","tvm":"0.27.0"}}'
    )
    query(
        path,
        "INSERT INTO jobs (job_id, fingerprint, state, created_at, elapsed_s, device_exact, "
        "device_compatible, toolchain_exact, toolchain_compatible, spec, summary) VALUES "
        f"""('a', 'f', 'done', 1.0, 2.0, 'd', 'd', 't', 't', '{spec}', '{{"n":1}}')""",
    )
    return path


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tunefleet after this one: its second revision is in the file that is returned."""
    scripts = Path(shutil.copytree(migrations.__path__[0], tmp_path / "scripts"))
    monkeypatch.setattr(revisions, "SCRIPTS", str(scripts))
    monkeypatch.setattr(revisions, "HEAD", "0002")
    second = scripts / "versions" / "r0002_owner.py"
    second.write_text(SECOND.format(more=""))
    return second


def test_head_is_the_newest_revision() -> None:
    assert ScriptDirectory(migrations.__path__[0]).get_heads() == [revisions.HEAD]


def test_the_revisions_make_the_tables_of_the_schema(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_a_file_of_the_first_revision_is_read(old: Path) -> None:
    with closing(SqlStore.open(old)) as store:
        [job] = store.jobs()
        assert (job.job_id, job.state, job.spec.settings.search.batch) == ("a", JobState.DONE, 7)
        assert store.summary("a") == {"n": 1}


def test_an_old_file_is_upgraded_with_all_it_holds(old: Path, next_version: Path) -> None:
    with closing(SqlStore.open(old)) as store:
        assert [job.job_id for job in store.jobs()] == ["a"]
    assert query(old, "SELECT owner, version_num FROM jobs, alembic_version") == [
        ("nobody", "0002")
    ]


def test_a_failed_upgrade_leaves_the_file_as_it_was(old: Path, next_version: Path) -> None:
    next_version.write_text(SECOND.format(more='op.execute("SELECT nothing")'))
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
        assert store.jobs() == []


def test_opening_at_head_does_not_import_alembic(path: Path) -> None:
    script = (
        "import sys; from tunefleet.store import SqlStore; SqlStore.open(sys.argv[1]).close(); "
        "print('alembic' in sys.modules)"
    )
    command = [sys.executable, "-c", script, str(path)]
    run = subprocess.run(command, capture_output=True, check=True, text=True, timeout=30)
    assert run.stdout == "False\n"
