"""A job that was done has succeeded.

Revision ID: 0005
Revises: 0004
"""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute("UPDATE jobs SET state = 'succeeded' WHERE state = 'done'")
