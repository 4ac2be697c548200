"""Lists of records, filtered and sorted by where they come from.

Revision ID: 0012
Revises: 0011
"""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from tunefleet.core.target import Target
from tunefleet.store.columns import plain

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "origins",
        sa.Column("key", sa.Integer(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("network", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("shapes", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_origins_task_id"),
        sa.PrimaryKeyConstraint("key", name="pk_origins"),
        sa.UniqueConstraint(
            "tenant",
            "network",
            "device",
            "target",
            "task_id",
            "name",
            name="uq_origins_tenant_network_device_target_task_id_name",
        ),
    )
    op.add_column("trials", sa.Column("origin", sa.Integer(), nullable=True))
    _enter_origins(op.get_bind())
    op.create_index("ix_trials_origin_latency_s", "trials", ["origin", "latency_s"])
    op.create_index("ix_trials_latency_s_origin", "trials", ["latency_s", "origin"])


def _enter_origins(connection: sa.Connection) -> None:
    """The origins of the records that there are; those of a job that cannot be read have none."""
    connection.exec_driver_sql(
        "CREATE TEMP TABLE asked (job_id TEXT PRIMARY KEY, tenant, network, device, target)"
    )
    made = connection.exec_driver_sql("SELECT job_id, tenant, spec FROM jobs")
    while rows := made.fetchmany(1000):
        asked = [row for row in map(_asked, rows) if row is not None]
        if asked:
            connection.exec_driver_sql("INSERT INTO asked VALUES (?, ?, ?, ?, ?)", asked)
    same = (
        "FROM asked JOIN job_tasks ON job_tasks.job_id = asked.job_id "
        "JOIN tasks ON tasks.task_id = job_tasks.task_id"
    )
    connection.exec_driver_sql(
        "INSERT INTO origins (tenant, network, device, target, task_id, name, operator, shapes) "
        "SELECT DISTINCT asked.tenant, network, device, target, tasks.task_id, name, operator, "
        f"shapes {same} WHERE EXISTS (SELECT 1 FROM trials "
        "WHERE trials.job_id = asked.job_id AND trials.task_id = tasks.task_id)"
    )
    connection.exec_driver_sql(
        "UPDATE trials SET origin = (SELECT origins.key FROM asked "
        "JOIN job_tasks ON job_tasks.job_id = asked.job_id "
        "JOIN origins ON origins.tenant = asked.tenant AND origins.network = asked.network "
        "AND origins.device = asked.device AND origins.target = asked.target "
        "AND origins.task_id = job_tasks.task_id AND origins.name = job_tasks.name "
        "WHERE asked.job_id = trials.job_id AND job_tasks.task_id = trials.task_id)"
    )
    connection.exec_driver_sql("DROP TABLE asked")


def _asked(row: Any) -> tuple[str, str, str, str, str] | None:
    job_id, tenant, text = row
    try:
        spec = json.loads(text)
        names = (spec["network"]["name"], spec["device"]["name"])
        target = str(Target.from_json(spec["target"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return job_id, tenant, *map(plain, (*names, target))
