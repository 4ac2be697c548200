"""Hosts join and are given work.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "hosts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("boot", sa.Text(), nullable=False),
        sa.Column("beat_at", sa.Double(), nullable=False),
        sa.Column("dismissed", sa.Integer(), nullable=False),
        sa.Column("resources", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_hosts"),
    )
    op.create_table(
        "assignments",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("giver", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("abandoned", sa.Integer(), nullable=False),
        sa.Column("report", sa.Text(), nullable=True),
        sa.Column("reported_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name="pk_assignments"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_assignments_host", "assignments", ["host"])
