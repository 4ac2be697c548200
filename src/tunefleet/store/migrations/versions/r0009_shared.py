"""Jobs tell whether they share their device on purpose; none did before.

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("shared", sa.Integer(), server_default="0", nullable=False))
