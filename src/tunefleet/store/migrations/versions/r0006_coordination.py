"""Leases on units, and what users ask of jobs.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "claims",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("claim_id", sa.Text(), nullable=False),
        sa.Column("boot", sa.Text(), nullable=False),
        sa.Column("granted", sa.Integer(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("claim", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_claims"),
        sa.UniqueConstraint("claim_id", name="uq_claims_claim_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "requests",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name="fk_requests_job_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_requests"),
    )
