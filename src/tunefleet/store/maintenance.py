"""Looking after the file of a store: is it whole, a copy of it, and what can be saved of one that
is damaged."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Table, TypeDecorator
from sqlalchemy.dialects.sqlite import dialect

from tunefleet.errors import InputError, SetupError, raise_mistake
from tunefleet.store._base import each_job
from tunefleet.store.codec import check_values
from tunefleet.store.database import SQLITE_ERRORS, UnreadableError, error_code, explained
from tunefleet.store.schema import metadata
from tunefleet.store.sql import SqlStore

_DIALECT = dialect()
#: Of what is wrong, what is told.
_MOST_PROBLEMS = 20
_BUSY_S = 5.0
#: Rows in a row that are not there, where nobody can say how many there are.
_MOST_ABSENT = 100_000
#: The log and the index of it that SQLite keeps beside a file.
_BESIDE = ("-wal", "-shm")
#: Errors of a file that could not be asked, which says nothing of what is in it.
_NOT_ASKED = ("NOTADB", "READONLY", "PERM", "AUTH", "CANTOPEN", "FULL", "BUSY", "LOCKED")


@dataclass(frozen=True, slots=True)
class Saved:
    """What `repair` took over: rows by table, how many could not be read, and where the damaged
    file lies now."""

    rows: dict[str, int]
    lost: int
    damaged: Path


def check(path: Path) -> list[str]:
    """What is wrong with a store, in words; empty for one that is whole. Reads all of it.

    Raises InputError where there is none, SetupError for a file that is no store or that this user
    may not open, StoreBusyError while another process keeps it.
    """
    _require(path)
    with closing(_opened(path)) as connection:
        problems = [str(row[0]) for row in _all(connection, path, "PRAGMA integrity_check(20)")]
        if problems == ["ok"]:
            missing = _all(connection, path, "PRAGMA foreign_key_check")
            problems = [f"row {row[1]} of {row[0]} refers to a row of {row[2]}" for row in missing]
    return (problems or _unreadable(path))[:_MOST_PROBLEMS]


def backup(path: Path, copy: Path) -> None:
    """Copy a store, also one that is in use, to a new file. Raises InputError where that exists."""
    _require(path)
    if copy.exists():
        raise InputError(f"{copy} exists", cure="choose another name")
    draft = copy.with_name(f"{copy.name}.draft-{os.getpid()}")
    try:
        with closing(_opened(path)) as source, closing(sqlite3.connect(draft)) as target:
            source.backup(target)
        os.replace(draft, copy)
    except (*SQLITE_ERRORS, OSError) as error:
        raise (
            explained(str(copy), error)
            if not isinstance(error, OSError)
            else SetupError(
                f"{copy} cannot be written: {error.strerror}", cure="choose another place"
            )
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def repair(path: Path) -> Saved:
    """Put a new store in place of a damaged one, with every row that can be read and understood and
    whose references are there. The damaged file is kept beside it.

    Raises RetryElsewhereError while a command writes to the store.
    """
    _require(path)
    fresh = path.with_name(f"{path.name}.repaired-{os.getpid()}")
    fresh.unlink(missing_ok=True)
    try:
        SqlStore.open(fresh).close()
        with closing(_opened(path)) as source, closing(sqlite3.connect(fresh)) as target:
            _check_unused(source, path)
            # A table, or an index, whose definition is damaged keeps no other from being read.
            source.execute("PRAGMA writable_schema=ON")
            target.execute("PRAGMA foreign_keys=ON")
            copied = {t.name: _copied(source, target, t) for t in metadata.sorted_tables}
            target.commit()
        damaged = path.with_name(f"{path.name}.damaged-{int(time.time())}")
        os.replace(path, damaged)
        for suffix in _BESIDE:
            if Path(f"{path}{suffix}").exists():
                os.replace(f"{path}{suffix}", f"{damaged}{suffix}")
        os.replace(fresh, path)
    finally:
        for suffix in ("", *_BESIDE):
            Path(f"{fresh}{suffix}").unlink(missing_ok=True)
    rows = {name: taken for name, (taken, _) in copied.items()}
    return Saved(rows, sum(lost for _, lost in copied.values()), damaged)


def _require(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"there is no store at {path}", cure="name its home: --home DIR")


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=_BUSY_S)


def _all(connection: sqlite3.Connection, path: Path, query: str) -> list[Any]:
    """Every row of a query. What is too damaged to be asked is one row that says so."""
    try:
        return connection.execute(query).fetchall()
    except SQLITE_ERRORS as error:
        if error_code(error) in _NOT_ASKED:
            raise explained(str(path), error) from error
        return [(str(error), 0, "")]


def _unreadable(path: Path) -> list[str]:
    """What of the store cannot be understood, though the database is whole."""
    problems = []
    with closing(SqlStore.open(path)) as store:
        try:
            jobs = list(each_job(store.jobs))
        except SetupError as error:
            return [f"the jobs: {error}"]
        for job in jobs:
            for what, read in (
                ("tasks", store.work.tasks),
                ("stages", store.work.stages),
                ("trials", store.records.trials),
                ("winners", store.records.winners),
                ("summary", store.jobs.summary),
            ):
                try:
                    read(job.job_id)
                except Exception as error:
                    raise_mistake(error)
                    problems.append(f"the {what} of job {job.job_id[:8]}: {error}")
            owners = [job.job_id, *([job.spec.preparation.id] if job.spec.source else [])]
            for owner in owners:
                try:
                    store.work.steps(owner)
                except SetupError as error:
                    problems.append(f"the steps of job {job.job_id[:8]}: {error}")
    return problems


def _check_unused(connection: sqlite3.Connection, path: Path) -> None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except SQLITE_ERRORS as error:
        if error_code(error) in ("BUSY", "NOTADB"):
            raise explained(str(path), error) from error
        # Too damaged for a lock: nobody can use it.


def _copied(
    source: sqlite3.Connection, target: sqlite3.Connection, table: Table
) -> tuple[int, int]:
    """How many rows of a table were copied, and how many could not be read, are none that anybody
    wrote, or refer to rows that are lost."""
    columns = [column.name for column in table.columns]
    names, places = ", ".join(columns), ", ".join("?" * len(columns))
    taken = lost = 0
    for row in _readable(source, table.name, names):
        if row is None:
            lost += 1
            continue
        try:
            _check_row(table, row)
            target.execute(f"INSERT INTO {table.name} ({names}) VALUES ({places})", row)
            taken += 1
        except (UnreadableError, sqlite3.IntegrityError):
            lost += 1
    return taken, lost


def _check_row(table: Table, row: tuple[Any, ...]) -> None:
    """Raises UnreadableError where a row cannot be read as the store reads it."""
    values = {}
    for column, value in zip(table.columns, row, strict=True):
        if isinstance(column.type, TypeDecorator):
            value = column.type.process_result_value(value, _DIALECT)
        values[column.name] = value
    check_values(table.name, values)


def _readable(
    source: sqlite3.Connection, table: str, names: str
) -> Iterator[tuple[Any, ...] | None]:
    """The rows of a table that can be read, in the order of their numbers; None for each that
    cannot, and once for a table that is not there."""
    if isinstance(_asked(source, f"SELECT {names} FROM {table} WHERE FALSE"), SQLITE_ERRORS):
        yield None
        return
    number, absent = 0, 0
    last = _asked(source, f"SELECT max(rowid) FROM {table}")
    most = None if isinstance(last, SQLITE_ERRORS) else int(last[0] or 0)
    while (number < most) if most is not None else (absent < _MOST_ABSENT):
        number += 1
        row = _asked(source, f"SELECT {names} FROM {table} WHERE rowid = {number}")
        damaged = isinstance(row, SQLITE_ERRORS)
        absent = absent + 1 if damaged or row is None else 0
        if damaged:
            yield None
        elif row is not None:
            yield row


def _asked(source: sqlite3.Connection, query: str) -> Any:
    """The row that a query finds, or the error that it meets."""
    try:
        return source.execute(query).fetchone()
    except SQLITE_ERRORS as error:
        return error
