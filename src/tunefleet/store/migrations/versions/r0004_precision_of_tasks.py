"""Tasks tell what numbers they compute in; those of before tell nothing until they are put again.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("tasks", sa.Column("precision", sa.Text(), server_default="", nullable=False))
