"""The tables of the store. A change here needs a revision in `migrations/versions`.

`stages` is the event log: `seq` grows in the order of commit, because writers are serialised.
What a stage reported is kept with it as it was committed; `trials` is what follows from the log,
one row per (job, task, candidate), so that a repeated candidate can never count twice. The index of
`started_at` and `seconds` tells alone which stages touch a window of time.

Outcomes, specifications and free text that comes out of processes are JSON with escapes: a text
column of PostgreSQL rejects NUL and both databases reject lone surrogates, and the last words of
a crashed compiler contain either.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import msgspec
from sqlalchemy import (
    Column,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

from tunefleet.core.ids import canonical_json
from tunefleet.store.database import UnreadableError


class Json(TypeDecorator[Any]):
    """A JSON value as its canonical text; None is the JSON null, not the SQL one."""

    impl = Text
    cache_ok = True
    coerce_to_is_types = ()

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        return canonical_json(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, TypeError):
            # Several times slower, but it knows lone surrogates and integers of any length.
            try:
                return json.loads(value)
            except (ValueError, RecursionError, TypeError) as error:
                raise UnreadableError(f"a value is no JSON: {error}") from error


class PackedText(TypeDecorator[str]):
    """Text, compressed: traces and programs shrink 4 times, for 30 microseconds per 8 kB.

    A higher level than 1 gains a tenth and takes twice as long. Features stay as they are: they
    shrink as well, but a select stage reads those of a thousand trials at once.
    """

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        return None if value is None else zlib.compress(value.encode(), 1)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        try:
            return None if value is None else zlib.decompress(value).decode()
        except (zlib.error, ValueError, TypeError) as error:
            raise UnreadableError(f"a text cannot be unpacked: {error}") from error


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

jobs = Table(
    "jobs",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("job_id", Text, nullable=False, unique=True),
    Column("fingerprint", Text, nullable=False, index=True),
    Column("state", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("elapsed_s", Double, nullable=False),
    Column("device_exact", Text, nullable=False),
    Column("device_compatible", Text, nullable=False),
    Column("toolchain_exact", Text, nullable=False),
    Column("toolchain_compatible", Text, nullable=False),
    Column("spec", Json, nullable=False),
    Column("summary", Json),
)

tasks = Table(
    "tasks",
    metadata,
    Column("task_id", Text, primary_key=True),
    Column("operator", Text, nullable=False),
    Column("shapes", Text, nullable=False),
    Column("flops", Double, nullable=False),
    Column("program", PackedText, nullable=False),
)

#: The name of a task is the job's: each network numbers its operators by itself.
job_tasks = Table(
    "job_tasks",
    metadata,
    Column("job_id", ForeignKey("jobs.job_id"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("task_id", ForeignKey("tasks.task_id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("weight", Integer, nullable=False),
    UniqueConstraint("job_id", "task_id"),
)

#: Shared by all jobs. `content` digests trace and features: the same program seen through another
#: feature schema is another row, so that every stage reads back as it was committed.
candidates = Table(
    "candidates",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("task_id", ForeignKey("tasks.task_id"), nullable=False),
    Column("candidate_id", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("trace", PackedText, nullable=False),
    Column("features", LargeBinary, nullable=False),
    UniqueConstraint("task_id", "candidate_id", "content"),
)

stages = Table(
    "stages",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("job_id", ForeignKey("jobs.job_id"), nullable=False),
    Column("task_id", ForeignKey("tasks.task_id"), nullable=False),
    Column("iteration", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("note", Json, nullable=False),
    Column("result", Json, nullable=False),
    Column("resource_id", Text, nullable=False, server_default=""),
    Column("attempt", Integer, nullable=False, server_default="1"),
    UniqueConstraint("job_id", "task_id", "iteration", "kind"),
    Index(None, "started_at", "seconds"),
)

#: The candidates of a select stage. `score` is NULL for not-a-number.
selections = Table(
    "selections",
    metadata,
    Column("stage", ForeignKey("stages.seq"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("candidate", ForeignKey("candidates.key"), nullable=False),
    Column("score", Double),
)

models = Table(
    "models",
    metadata,
    Column("stage", ForeignKey("stages.seq"), primary_key=True),
    Column("job_id", ForeignKey("jobs.job_id"), nullable=False, index=True),
    Column("model", LargeBinary, nullable=False),
)

#: `latency_s` is the ranking latency, NULL for a failure; `failure` is its kind, NULL otherwise.
trials = Table(
    "trials",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("job_id", ForeignKey("jobs.job_id"), nullable=False),
    Column("task_id", ForeignKey("tasks.task_id"), nullable=False),
    Column("candidate_id", Text, nullable=False),
    Column("candidate", ForeignKey("candidates.key"), nullable=False),
    Column("stage", ForeignKey("stages.seq"), nullable=False),
    Column("iteration", Integer, nullable=False),
    Column("score", Double),
    Column("build_s", Double, nullable=False),
    Column("profile_s", Double, nullable=False),
    Column("latency_s", Double),
    Column("failure", Text),
    Column("outcome", Json, nullable=False),
    UniqueConstraint("job_id", "task_id", "candidate_id"),
    Index(None, "job_id", "task_id", "seq"),
    Index(None, "task_id", "latency_s"),
    Index(None, "task_id", "failure"),
)

#: What a job delivers for a task; every column from `candidate` on but `checks` is NULL where the
#: default stays. The measurement is the winner's own, which may differ from that of its trial.
winners = Table(
    "winners",
    metadata,
    Column("job_id", ForeignKey("jobs.job_id"), primary_key=True),
    Column("task_id", ForeignKey("tasks.task_id"), primary_key=True),
    Column("checks", Json, nullable=False),
    Column("candidate", ForeignKey("candidates.key")),
    Column("iteration", Integer),
    Column("score", Double),
    Column("build_s", Double),
    Column("profile_s", Double),
    Column("latency_s", Double),
    Column("outcome", Json),
    Index(None, "task_id"),
)

#: The best-only table: the fastest winner per task, device and toolchain.
best = Table(
    "best",
    metadata,
    Column("task_id", ForeignKey("tasks.task_id"), primary_key=True),
    Column("device_exact", Text, primary_key=True),
    Column("toolchain_exact", Text, primary_key=True),
    Column("job_id", Text, nullable=False),
    ForeignKeyConstraint(["job_id", "task_id"], ["winners.job_id", "winners.task_id"]),
)
