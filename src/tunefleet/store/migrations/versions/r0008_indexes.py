"""Jobs are found by their state, and the events of a job in their order.

Revision ID: 0008
Revises: 0007
"""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_index("ix_jobs_state_seq", "jobs", ["state", "seq"])
    op.drop_index("ix_events_job_id", "events")
    op.create_index("ix_events_job_id_seq", "events", ["job_id", "seq"])
