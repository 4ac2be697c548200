from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tunefleet.store import SqlStore

from . import values as v


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without content: copying it is ten times faster than creating another."""
    path = tmp_path_factory.mktemp("store") / "empty.sqlite"
    SqlStore.open(path).close()
    return path


@pytest.fixture
def path(empty_file: Path, tmp_path: Path) -> Path:
    """A file of a store at head, the test's own."""
    return Path(shutil.copy(empty_file, tmp_path / "store.sqlite"))


@pytest.fixture
def sql_store(path: Path) -> Iterator[SqlStore]:
    store = SqlStore.open(path)
    yield store
    store.close()


@pytest.fixture
def job(store: Any) -> str:
    """A job with the tasks t and u."""
    store.jobs.open(v.make_spec(), job_id="job", now=1.0)
    store.work.put_tasks("job", [v.make_task("t"), v.make_task("u")])
    return "job"
