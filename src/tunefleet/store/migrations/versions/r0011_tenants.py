"""Users of a service, whose jobs and records are theirs; what there was is the home's own.

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("tenant", sa.Text(), server_default="", nullable=False))
    op.create_index("ix_jobs_tenant_seq", "jobs", ["tenant", "seq"])
    _divide_best()
    op.create_table(
        "users",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("admin", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("disabled", sa.Integer(), nullable=False),
        sa.Column("quota", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_users"),
    )
    op.create_table(
        "tokens",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("admin", sa.Integer(), nullable=False),
        sa.Column("session", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("last_used_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["user"], ["users.name"], name="fk_tokens_user"),
        sa.PrimaryKeyConstraint("digest", name="pk_tokens"),
    )
    op.create_index("ix_tokens_user", "tokens", ["user"])
    op.create_table(
        "shares",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("reader", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "reader", name="pk_shares"),
    )
    op.create_table(
        "networks",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "digest", name="pk_networks"),
    )
    op.create_index("ix_networks_place", "networks", ["place"])
    op.create_table(
        "answers",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "key", name="pk_answers"),
    )
    op.create_index("ix_answers_at", "answers", ["at"])


def _divide_best() -> None:
    """The best-only table has an entry for each tenant."""
    op.rename_table("best", "best_of_all")
    op.create_table(
        "best",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("device_exact", sa.Text(), nullable=False),
        sa.Column("toolchain_exact", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_best_task_id"),
        sa.ForeignKeyConstraint(
            ["job_id", "task_id"],
            ["winners.job_id", "winners.task_id"],
            name="fk_best_job_id_task_id",
        ),
        sa.PrimaryKeyConstraint(
            "task_id", "device_exact", "toolchain_exact", "tenant", name="pk_best"
        ),
    )
    op.execute(
        "INSERT INTO best (task_id, device_exact, toolchain_exact, tenant, job_id) "
        "SELECT task_id, device_exact, toolchain_exact, '', job_id FROM best_of_all"
    )
    op.drop_table("best_of_all")
