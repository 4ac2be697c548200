"""The tables of the first version.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("elapsed_s", sa.Double(), nullable=False),
        sa.Column("device_exact", sa.Text(), nullable=False),
        sa.Column("device_compatible", sa.Text(), nullable=False),
        sa.Column("toolchain_exact", sa.Text(), nullable=False),
        sa.Column("toolchain_compatible", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name="pk_jobs"),
        sa.UniqueConstraint("job_id", name="uq_jobs_job_id"),
    )
    op.create_index("ix_jobs_fingerprint", "jobs", ["fingerprint"])
    op.create_table(
        "tasks",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("shapes", sa.Text(), nullable=False),
        sa.Column("flops", sa.Double(), nullable=False),
        sa.Column("program", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", name="pk_tasks"),
    )
    op.create_table(
        "candidates",
        sa.Column("key", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("candidate_id", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("trace", sa.LargeBinary(), nullable=False),
        sa.Column("features", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_candidates_task_id"),
        sa.PrimaryKeyConstraint("key", name="pk_candidates"),
        sa.UniqueConstraint(
            "task_id", "candidate_id", "content", name="uq_candidates_task_id_candidate_id_content"
        ),
    )
    op.create_table(
        "job_tasks",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name="fk_job_tasks_job_id"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_job_tasks_task_id"),
        sa.PrimaryKeyConstraint("job_id", "position", name="pk_job_tasks"),
        sa.UniqueConstraint("job_id", "task_id", name="uq_job_tasks_job_id_task_id"),
    )
    op.create_table(
        "stages",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name="fk_stages_job_id"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_stages_task_id"),
        sa.PrimaryKeyConstraint("seq", name="pk_stages"),
        sa.UniqueConstraint(
            "job_id", "task_id", "iteration", "kind", name="uq_stages_job_id_task_id_iteration_kind"
        ),
    )
    op.create_table(
        "models",
        sa.Column("stage", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("model", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name="fk_models_job_id"),
        sa.ForeignKeyConstraint(["stage"], ["stages.seq"], name="fk_models_stage"),
        sa.PrimaryKeyConstraint("stage", name="pk_models"),
    )
    op.create_index("ix_models_job_id", "models", ["job_id"])
    op.create_table(
        "selections",
        sa.Column("stage", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("candidate", sa.Integer(), nullable=False),
        sa.Column("score", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["candidate"], ["candidates.key"], name="fk_selections_candidate"),
        sa.ForeignKeyConstraint(["stage"], ["stages.seq"], name="fk_selections_stage"),
        sa.PrimaryKeyConstraint("stage", "position", name="pk_selections"),
    )
    op.create_table(
        "trials",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("candidate_id", sa.Text(), nullable=False),
        sa.Column("candidate", sa.Integer(), nullable=False),
        sa.Column("stage", sa.Integer(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("score", sa.Double(), nullable=True),
        sa.Column("build_s", sa.Double(), nullable=False),
        sa.Column("profile_s", sa.Double(), nullable=False),
        sa.Column("latency_s", sa.Double(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["candidate"], ["candidates.key"], name="fk_trials_candidate"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name="fk_trials_job_id"),
        sa.ForeignKeyConstraint(["stage"], ["stages.seq"], name="fk_trials_stage"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_trials_task_id"),
        sa.PrimaryKeyConstraint("seq", name="pk_trials"),
        sa.UniqueConstraint(
            "job_id", "task_id", "candidate_id", name="uq_trials_job_id_task_id_candidate_id"
        ),
    )
    op.create_index("ix_trials_job_id_task_id_seq", "trials", ["job_id", "task_id", "seq"])
    op.create_index("ix_trials_task_id_failure", "trials", ["task_id", "failure"])
    op.create_index("ix_trials_task_id_latency_s", "trials", ["task_id", "latency_s"])
    op.create_table(
        "winners",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("checks", sa.Text(), nullable=False),
        sa.Column("candidate", sa.Integer(), nullable=True),
        sa.Column("iteration", sa.Integer(), nullable=True),
        sa.Column("score", sa.Double(), nullable=True),
        sa.Column("build_s", sa.Double(), nullable=True),
        sa.Column("profile_s", sa.Double(), nullable=True),
        sa.Column("latency_s", sa.Double(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["candidate"], ["candidates.key"], name="fk_winners_candidate"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name="fk_winners_job_id"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_winners_task_id"),
        sa.PrimaryKeyConstraint("job_id", "task_id", name="pk_winners"),
    )
    op.create_index("ix_winners_task_id", "winners", ["task_id"])
    op.create_table(
        "best",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("device_exact", sa.Text(), nullable=False),
        sa.Column("toolchain_exact", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id", "task_id"],
            ["winners.job_id", "winners.task_id"],
            name="fk_best_job_id_task_id",
        ),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_best_task_id"),
        sa.PrimaryKeyConstraint("task_id", "device_exact", "toolchain_exact", name="pk_best"),
    )
