"""Past deliveries of webhooks, and the secret that a webhook had before its last rotation.

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column(
        "webhooks", sa.Column("previous_secret", sa.Text(), server_default="", nullable=False)
    )
    op.add_column(
        "webhooks", sa.Column("previous_until", sa.Double(), server_default="0", nullable=False)
    )
    op.create_table(
        "deliveries",
        sa.Column("webhook_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("happened_at", sa.Double(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("webhook_id", "seq", name="pk_deliveries"),
    )
