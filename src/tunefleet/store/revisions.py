"""Brings a database to the revision this version of tunefleet works with.

The usual case, a file that is already there, is one query; Alembic is imported only when there is
something to do, because that takes longer than everything else a command does at its start.
"""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text

from tunefleet.errors import SetupError
from tunefleet.store.database import Database

#: The newest revision in `migrations/versions`. Revisions are numbered, so their texts compare.
HEAD = "0015"
SCRIPTS = "tunefleet.store:migrations"


def bring_to_head(database: Database) -> None:
    """Create or upgrade, whole or not at all; concurrent callers do it once.

    Raises SetupError for a database of someone else or of a newer tunefleet.
    """
    with database.reading() as connection:
        revision = _revision(connection, database.name)
    if revision == HEAD:
        return
    if revision == "":
        database.enable_write_ahead_log()
    with database.writing() as connection:
        if _revision(connection, database.name) != HEAD:
            _upgrade(connection)


def _revision(connection: Connection, name: str) -> str:
    """The revision of a database, "" when it is empty."""
    tables = set(inspect(connection).get_table_names())
    if not tables:
        return ""
    if not {"alembic_version", "stages"} <= tables:
        raise SetupError(
            f"{name} is a database, but not a store of tunefleet", cure="name another file"
        )
    revision = str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar())
    if revision > HEAD:
        raise SetupError(
            f"{name} was written by a newer tunefleet (revision {revision}, known up to {HEAD})",
            cure="upgrade tunefleet, or choose another home",
        )
    return revision


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", SCRIPTS)
    command.upgrade(config, "head")
