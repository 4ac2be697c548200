"""Stages tell the resource and the attempt, and are found by the time they ran.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("stages", sa.Column("resource_id", sa.Text(), server_default="", nullable=False))
    op.add_column("stages", sa.Column("attempt", sa.Integer(), server_default="1", nullable=False))
    op.create_index("ix_stages_started_at_seconds", "stages", ["started_at", "seconds"])
