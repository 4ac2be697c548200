"""Alembic revisions of the store, run by `tunefleet.store.revisions` inside one transaction."""
