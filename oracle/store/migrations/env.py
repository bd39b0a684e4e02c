"""Alembic's entry: the connection is given by `oracle.store.database`, never read from a file."""

from __future__ import annotations

from alembic import context

from oracle.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
