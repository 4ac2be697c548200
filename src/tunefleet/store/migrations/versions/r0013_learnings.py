"""What cost models learned in the background.

Revision ID: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "learnings",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_learnings"),
    )
    op.create_index("ix_learnings_tenant_seq", "learnings", ["tenant", "seq"])
    op.create_table(
        "learned_jobs",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "job_id", name="pk_learned_jobs"),
    )
