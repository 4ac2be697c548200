"""A connection pool whose transactions keep the promises of the contract, and plain errors.

All that depends on the kind of database is here; the verbs are portable SQL.

SQLite: write-ahead log, so readers see the last commit and never wait for a writer;
`BEGIN IMMEDIATE` for writers, so two processes queue instead of deadlocking when both upgrade a
read lock; `synchronous=FULL`, so a commit also survives power loss: the file sync costs one or
two milliseconds per stage, and a lost stage costs minutes of a device.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from tunefleet.errors import (
    DiskFullError,
    InputError,
    InternalError,
    SetupError,
    StoreBusyError,
    TunefleetError,
)
from tunefleet.system.interrupts import Uninterrupted

#: First words of SQLite's error names, with what the user can do about each.
CURES = {
    "NOTADB": "name another file, or move this one away",
    "CORRUPT": "save what can be read with `tunefleet store repair`, or restore a copy",
    "READONLY": "make the file and its directory writable, or choose another place",
    "PERM": "make the file and its directory writable, or choose another place",
    "AUTH": "make the file and its directory writable, or choose another place",
    "CANTOPEN": "check that the directory exists and is writable, or choose another place",
    "FULL": "free disk space; nothing that was reported as committed is lost",
    "IOERR": "check the disk; a network file system cannot hold the store",
}

#: SQLite's errors as Python raises them. Where one names what is a name no more, as the file is
#: damaged, its text is none, and Python raises its own error instead.
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
#: Bytes that are read in a fraction of a second.
_MOST_CHECKED = 64 << 20
#: What the first four bytes of a write-ahead log are, in either order of bytes.
_LOG_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")


#: Which thread of this process writes to a file.
_turns: dict[tuple[int, str], threading.Lock] = {}


class UnreadableError(ValueError):
    """A value of the store is none that was written there: its file is damaged."""


class Database:
    """Threads share it; a forked process gets connections of its own. Free of tables.

    Before each transaction it is looked at whether its files are still those that were opened:
    SQLite would go on in files that have no name any more, and nobody would find what it wrote.
    """

    def __init__(self, url: URL, *, busy_timeout_s: float) -> None:
        if url.get_backend_name() != "sqlite":
            raise InputError(
                f"{url}: a {url.get_backend_name()} store is not supported",
                cure="give the path of a SQLite file",
            )
        if not url.database or url.database == ":memory:":
            raise InputError(f"{url}: a store needs a file", cure="or use MemoryStore")
        self.name = url.database
        self._busy_timeout_s = busy_timeout_s
        self._pid = os.getpid()
        self._closed = False
        self._file: tuple[int, int] | None = None
        self._connections: list[sqlite3.Connection] = []
        self._engine = create_engine(
            url,
            # A pool without limit: a thread waits for the writers' lock only, never for a slot.
            max_overflow=-1,
            connect_args={"isolation_level": None, "timeout": busy_timeout_s},
        )
        event.listen(self._engine, "connect", self._prepare)
        event.listen(self._engine, "begin", _begin_sqlite)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One snapshot for as many queries as the caller makes."""
        with (
            Uninterrupted(),
            self._errors(),
            self._connect() as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction, alone: it waits for other writers before its first read."""
        with self._alone("FULL") as connection:
            yield connection

    @contextmanager
    def coordinating(self) -> Iterator[Connection]:
        """As `writing`, for what means nothing after a power failure: it does not wait for the
        disk."""
        with self._alone("NORMAL") as connection:
            yield connection

    @contextmanager
    def _alone(self, synchronous: str) -> Iterator[Connection]:
        with (
            Uninterrupted(),
            self._errors(),
            self._in_turn(),
            self._connect().execution_options(tunefleet_writer=synchronous) as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        """Writers of this process wait for each other here: SQLite would let them sleep longer and
        longer, while others pass them."""
        # A process that was forked has none of its parent's: who holds them is not there.
        turn = _turns.setdefault((os.getpid(), self.name), threading.Lock())
        if not turn.acquire(timeout=self._busy_timeout_s):
            raise _busy(self.name)
        try:
            yield
        finally:
            turn.release()

    def enable_write_ahead_log(self) -> None:
        """Once in the life of a file, and only of an empty one: the setting stays with it.

        SQLite fails at once where another process holds the file, whatever the timeout, so the
        waiting is done here: two processes may well create the same store.
        """
        with self._errors(), closing(self._engine.raw_connection()) as connection:
            end = time.monotonic() + self._busy_timeout_s
            while True:
                try:
                    connection.cursor().execute("PRAGMA journal_mode=WAL")
                    return
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                        raise
                    time.sleep(0.01)

    def left_open(self) -> bool:
        """Whether another process has the file open, or was killed while it had."""
        log = Path(f"{self.name}-wal")
        return log.is_file() and log.stat().st_size > 0

    def check(self) -> None:
        """Raises SetupError for a damaged file, if it is small enough to be read for that."""
        if os.stat(self.name).st_size > _MOST_CHECKED:
            return
        with self.reading() as connection:
            verdict = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())
        if verdict != "ok":
            raise SetupError(f"{self.name} is damaged: {verdict}", cure=CURES["CORRUPT"])

    def close(self) -> None:
        self._closed = True
        self._engine.dispose()

    def _connect(self) -> Connection:
        if self._closed:
            raise InternalError(f"{self.name}: the store is closed")
        if self._pid != os.getpid():
            # SQLite connections must not cross a fork; the parent still owns and closes them.
            self._engine.dispose(close=False)
            self._pid = os.getpid()
        self._check_files()
        return self._engine.connect()

    def _prepare(self, connection: sqlite3.Connection, _record: Any) -> None:
        connection.execute("PRAGMA foreign_keys=ON")
        self._connections.append(connection)

    def _check_files(self) -> None:
        """Raises SetupError where the file is another than before, or its log no log any more."""
        identity = _identity(self.name)
        if self._file is None:
            self._file = identity
        if identity != self._file:
            what = "was removed" if identity is None else "was replaced by another file"
            raise self._spoilt(f"{self.name} {what} while it was in use")
        try:
            with open(f"{self.name}-wal", "rb") as log:
                begins = log.read(4)
        except OSError:
            return
        if begins and begins not in _LOG_MAGIC:
            raise self._spoilt(f"{self.name}-wal is no log of a database any more")

    def _spoilt(self, what: str) -> SetupError:
        """Nothing more is written: closing would merge the log into the file, damaged as it is."""
        self._closed = True
        for connection in self._connections:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))  # never closed
        self._engine.dispose(close=False)
        return SetupError(
            what, cure="put it back, or save what is left of it: tunefleet store repair"
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except UnreadableError as error:
            raise SetupError(f"{self.name} is damaged: {error}", cure=CURES["CORRUPT"]) from error
        except DBAPIError as error:
            raise explained(self.name, error.orig or error) from error
        except (SQLAlchemyError, *SQLITE_ERRORS) as error:
            raise explained(self.name, error) from error


def _identity(path: str) -> tuple[int, int] | None:
    """Which file a path is, None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def error_code(error: BaseException) -> str:
    """The first word of SQLite's name of an error; empty for one that is Python's."""
    return str(getattr(error, "sqlite_errorname", "")).removeprefix("SQLITE_").split("_")[0]


def explained(name: str, error: BaseException) -> TunefleetError:
    """The error of a database, as one that says what to do next."""
    code = error_code(error)
    if code in ("BUSY", "LOCKED"):
        return _busy(name)
    if code == "FULL":
        return DiskFullError(f"{name} cannot be written: {error}", cure=CURES[code])
    # Python's, of what SQLite takes for text.
    if isinstance(error, UnicodeDecodeError) or "Could not decode to UTF-8" in str(error):
        return SetupError(f"{name} is damaged: {error}", cure=CURES["CORRUPT"])
    if code in CURES:
        return SetupError(f"{name} cannot be used as a store: {error}", cure=CURES[code])
    return InternalError(f"{name}: {error}")


def _busy(name: str) -> StoreBusyError:
    return StoreBusyError(
        f"{name} is locked by another process", cure="try again when it has finished"
    )


def url_of(url_or_path: str | Path) -> URL:
    """A database URL as it is; anything else is the path of a SQLite file."""
    text = str(url_or_path)
    if "://" not in text:
        return URL.create("sqlite", database=text)
    try:
        return make_url(text)
    except ArgumentError as error:
        raise InputError(f"{text} is not a database URL", cure="give a path") from error


def _begin_sqlite(connection: Connection) -> None:
    synchronous = connection.get_execution_options().get("tunefleet_writer")
    if synchronous is None:
        connection.exec_driver_sql("BEGIN")
        return
    connection.exec_driver_sql(f"PRAGMA synchronous={synchronous}")
    connection.exec_driver_sql("BEGIN IMMEDIATE")
