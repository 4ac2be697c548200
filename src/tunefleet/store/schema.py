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

from sqlalchemy import (
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    MetaData,
    Table,
    UniqueConstraint,
)

from tunefleet.store.columns import Json, Number, PackedText, PlainText, Whole

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
    Column("seq", Whole, primary_key=True),
    Column("job_id", PlainText, nullable=False, unique=True),
    Column("fingerprint", PlainText, nullable=False, index=True),
    Column("state", PlainText, nullable=False),
    Column("created_at", Number, nullable=False),
    Column("elapsed_s", Number, nullable=False),
    Column("device_exact", PlainText, nullable=False),
    Column("device_compatible", PlainText, nullable=False),
    Column("toolchain_exact", PlainText, nullable=False),
    Column("toolchain_compatible", PlainText, nullable=False),
    Column("spec", Json, nullable=False),
    Column("summary", Json),
    Column("shared", Whole, nullable=False, server_default="0"),
    Column("tenant", PlainText, nullable=False, server_default=""),
    Index("ix_jobs_state_seq", "state", "seq"),
    Index("ix_jobs_tenant_seq", "tenant", "seq"),
)

tasks = Table(
    "tasks",
    metadata,
    Column("task_id", PlainText, primary_key=True),
    Column("operator", PlainText, nullable=False),
    Column("shapes", PlainText, nullable=False),
    Column("flops", Number, nullable=False),
    Column("program", PackedText, nullable=False),
    Column("precision", PlainText, nullable=False, server_default=""),
)

#: The name of a task is the job's: each network numbers its operators by itself.
job_tasks = Table(
    "job_tasks",
    metadata,
    Column("job_id", ForeignKey("jobs.job_id"), primary_key=True),
    Column("position", Whole, primary_key=True, autoincrement=False),
    Column("task_id", ForeignKey("tasks.task_id"), nullable=False),
    Column("name", PlainText, nullable=False),
    Column("weight", Whole, nullable=False),
    UniqueConstraint("job_id", "task_id"),
)

#: Shared by all jobs. `content` digests trace and features: the same program seen through another
#: feature schema is another row, so that every stage reads back as it was committed.
candidates = Table(
    "candidates",
    metadata,
    Column("key", Whole, primary_key=True),
    Column("task_id", ForeignKey("tasks.task_id"), nullable=False),
    Column("candidate_id", PlainText, nullable=False),
    Column("content", PlainText, nullable=False),
    Column("trace", PackedText, nullable=False),
    Column("features", LargeBinary, nullable=False),
    UniqueConstraint("task_id", "candidate_id", "content"),
)

stages = Table(
    "stages",
    metadata,
    Column("seq", Whole, primary_key=True),
    Column("job_id", ForeignKey("jobs.job_id"), nullable=False),
    Column("task_id", ForeignKey("tasks.task_id"), nullable=False),
    Column("iteration", Whole, nullable=False),
    Column("kind", PlainText, nullable=False),
    Column("started_at", Number, nullable=False),
    Column("seconds", Number, nullable=False),
    Column("note", Json, nullable=False),
    Column("result", Json, nullable=False),
    Column("resource_id", PlainText, nullable=False, server_default=""),
    Column("attempt", Whole, nullable=False, server_default="1"),
    UniqueConstraint("job_id", "task_id", "iteration", "kind"),
    Index(None, "started_at", "seconds"),
)

#: The log of steps on whole networks. `owner` is the id of a preparation or of a run, which need
#: not be a job; `result` is JSON, compressed, since that of an import has all programs.
steps = Table(
    "steps",
    metadata,
    Column("seq", Whole, primary_key=True),
    Column("owner", PlainText, nullable=False),
    Column("kind", PlainText, nullable=False),
    Column("started_at", Number, nullable=False),
    Column("seconds", Number, nullable=False),
    Column("resource_id", PlainText, nullable=False),
    Column("attempt", Whole, nullable=False),
    Column("remarks", Json, nullable=False),
    Column("result", PackedText, nullable=False),
    UniqueConstraint("owner", "kind"),
    Index(None, "started_at", "seconds"),
)

#: The candidates of a select stage. `score` is NULL for not-a-number.
selections = Table(
    "selections",
    metadata,
    Column("stage", ForeignKey("stages.seq"), primary_key=True),
    Column("position", Whole, primary_key=True, autoincrement=False),
    Column("candidate", ForeignKey("candidates.key"), nullable=False),
    Column("score", Number),
)

models = Table(
    "models",
    metadata,
    Column("stage", ForeignKey("stages.seq"), primary_key=True),
    Column("job_id", ForeignKey("jobs.job_id"), nullable=False, index=True),
    Column("model", LargeBinary, nullable=False),
)

#: What lists of records filter and sort by, once for all records that agree in it. `name` is what
#: the network calls the task; what a text column cannot hold is replaced (`columns.plain`).
origins = Table(
    "origins",
    metadata,
    Column("key", Whole, primary_key=True),
    Column("tenant", PlainText, nullable=False),
    Column("network", PlainText, nullable=False),
    Column("device", PlainText, nullable=False),
    Column("target", PlainText, nullable=False),
    Column("task_id", ForeignKey("tasks.task_id"), nullable=False),
    Column("name", PlainText, nullable=False),
    Column("operator", PlainText, nullable=False),
    Column("shapes", PlainText, nullable=False),
    UniqueConstraint("tenant", "network", "device", "target", "task_id", "name"),
)

#: `latency_s` is the ranking latency, NULL for a failure; `failure` is its kind, NULL otherwise.
trials = Table(
    "trials",
    metadata,
    Column("seq", Whole, primary_key=True),
    Column("job_id", ForeignKey("jobs.job_id"), nullable=False),
    Column("task_id", ForeignKey("tasks.task_id"), nullable=False),
    Column("candidate_id", PlainText, nullable=False),
    Column("candidate", ForeignKey("candidates.key"), nullable=False),
    Column("stage", ForeignKey("stages.seq"), nullable=False),
    Column("iteration", Whole, nullable=False),
    Column("score", Number),
    Column("build_s", Number, nullable=False),
    Column("profile_s", Number, nullable=False),
    Column("latency_s", Number),
    Column("failure", PlainText),
    Column("outcome", Json, nullable=False),
    Column("origin", Whole),
    UniqueConstraint("job_id", "task_id", "candidate_id"),
    Index(None, "job_id", "task_id", "seq"),
    Index(None, "task_id", "latency_s"),
    Index(None, "task_id", "failure"),
    Index(None, "origin", "latency_s"),
    Index(None, "latency_s", "origin"),
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
    Column("iteration", Whole),
    Column("score", Number),
    Column("build_s", Number),
    Column("profile_s", Number),
    Column("latency_s", Number),
    Column("outcome", Json),
    Index(None, "task_id"),
)

#: The best-only table: the fastest winner per task, device, toolchain and tenant.
best = Table(
    "best",
    metadata,
    Column("task_id", ForeignKey("tasks.task_id"), primary_key=True),
    Column("device_exact", PlainText, primary_key=True),
    Column("toolchain_exact", PlainText, primary_key=True),
    Column("tenant", PlainText, primary_key=True),
    Column("job_id", PlainText, nullable=False),
    ForeignKeyConstraint(["job_id", "task_id"], ["winners.job_id", "winners.task_id"]),
)

#: Claims of units, those that live. `seq` never comes again: it is the epoch of a lease. Times are
#: of the boot clock in the boot of that id.
claims = Table(
    "claims",
    metadata,
    Column("seq", Whole, primary_key=True),
    Column("claim_id", PlainText, nullable=False, unique=True),
    Column("boot", PlainText, nullable=False),
    Column("granted", Whole, nullable=False),
    Column("since", Number, nullable=False),
    Column("expires_at", Number, nullable=False),
    Column("claim", Json, nullable=False),
    sqlite_autoincrement=True,
)

#: What users ask of jobs; of those that are to run there is no row.
requests = Table(
    "requests",
    metadata,
    Column("job_id", ForeignKey("jobs.job_id"), primary_key=True),
    Column("request", PlainText, nullable=False),
)

#: What happened to jobs. `version` is of the JSON in `value`.
events = Table(
    "events",
    metadata,
    Column("seq", Whole, primary_key=True),
    Column("job_id", ForeignKey("jobs.job_id"), nullable=False),
    Column("at", Number, nullable=False),
    Column("kind", PlainText, nullable=False),
    Column("version", Whole, nullable=False),
    Column("value", Json, nullable=False),
    Index("ix_events_job_id_seq", "job_id", "seq"),
    sqlite_autoincrement=True,
)

#: Hosts that have joined. Times are of the boot clock in the boot of that id.
hosts = Table(
    "hosts",
    metadata,
    Column("name", PlainText, primary_key=True),
    Column("incarnation", PlainText, nullable=False),
    Column("boot", PlainText, nullable=False),
    Column("beat_at", Number, nullable=False),
    Column("dismissed", Whole, nullable=False),
    Column("resources", Json, nullable=False),
)

#: What hosts were given; what was reported and not taken has a `report`. The JSON values have
#: schemas of their own.
assignments = Table(
    "assignments",
    metadata,
    Column("seq", Whole, primary_key=True),
    Column("host", PlainText, nullable=False, index=True),
    Column("giver", PlainText, nullable=False),
    Column("value", Json, nullable=False),
    Column("abandoned", Whole, nullable=False),
    Column("report", Json),
    Column("reported_at", Number),
    sqlite_autoincrement=True,
)

#: Users of a service. Flags are 0 or 1.
users = Table(
    "users",
    metadata,
    Column("name", PlainText, primary_key=True),
    Column("admin", Whole, nullable=False),
    Column("created_at", Number, nullable=False),
    Column("disabled", Whole, nullable=False),
    Column("quota", Json, nullable=False),
)

#: `digest` is the SHA-256 of a token's text, which is nowhere.
tokens = Table(
    "tokens",
    metadata,
    Column("digest", PlainText, primary_key=True),
    Column("prefix", PlainText, nullable=False),
    Column("user", ForeignKey("users.name"), nullable=False, index=True),
    Column("label", PlainText, nullable=False),
    Column("admin", Whole, nullable=False),
    Column("session", Whole, nullable=False),
    Column("created_at", Number, nullable=False),
    Column("expires_at", Number),
    Column("last_used_at", Number),
)

#: Whose records who may read.
shares = Table(
    "shares",
    metadata,
    Column("owner", PlainText, primary_key=True),
    Column("reader", PlainText, primary_key=True),
)

#: Networks that tenants uploaded.
networks = Table(
    "networks",
    metadata,
    Column("tenant", PlainText, primary_key=True),
    Column("digest", PlainText, primary_key=True),
    Column("name", PlainText, nullable=False),
    Column("place", PlainText, nullable=False, index=True),
    Column("size", Whole, nullable=False),
    Column("created_at", Number, nullable=False),
)

#: Requests that their senders numbered. `answer` is the JSON null while one is being answered.
answers = Table(
    "answers",
    metadata,
    Column("tenant", PlainText, primary_key=True),
    Column("key", PlainText, primary_key=True),
    Column("asked", PlainText, nullable=False),
    Column("at", Number, nullable=False, index=True),
    Column("answer", Json, nullable=False),
)

#: What cost models learned in the background, for the searches of whom.
learnings = Table(
    "learnings",
    metadata,
    Column("seq", Whole, primary_key=True),
    Column("tenant", PlainText, nullable=False),
    Column("value", Json, nullable=False),
    Index("ix_learnings_tenant_seq", "tenant", "seq"),
)

#: The jobs whose records they had.
learned_jobs = Table(
    "learned_jobs",
    metadata,
    Column("tenant", PlainText, primary_key=True),
    Column("job_id", PlainText, primary_key=True),
)

#: `events` is a list of types; `after` and what follows say how far deliveries came.
webhooks = Table(
    "webhooks",
    metadata,
    Column("webhook_id", PlainText, primary_key=True),
    Column("tenant", PlainText, nullable=False, index=True),
    Column("url", PlainText, nullable=False),
    Column("secret", PlainText, nullable=False),
    Column("events", Json, nullable=False),
    Column("created_at", Number, nullable=False),
    Column("after", Whole, nullable=False),
    Column("failures", Whole, nullable=False),
    Column("next_at", Number, nullable=False),
    Column("last", PlainText, nullable=False),
    Column("last_at", Number),
    Column("disabled", PlainText, nullable=False),
    Column("previous_secret", PlainText, nullable=False, server_default=""),
    Column("previous_until", Number, nullable=False, server_default="0"),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("webhook_id", PlainText, primary_key=True),
    Column("seq", Whole, primary_key=True),
    Column("message_id", PlainText, nullable=False),
    Column("kind", PlainText, nullable=False),
    Column("job_id", PlainText, nullable=False),
    Column("happened_at", Number, nullable=False),
    Column("attempts", Whole, nullable=False),
    Column("last_at", Number, nullable=False),
    Column("status", Whole),
    Column("error", PlainText, nullable=False),
)
