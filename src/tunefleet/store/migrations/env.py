"""What Alembic runs; the connection comes in with its transaction open."""

from alembic import context

from tunefleet.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite rolls back DDL as well; Alembic assumes that it does not.
    transactional_ddl=True,
    # SQLite changes a column by copying the table.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
