"""Alembic's entry: the connection is given by `oracle.store.database`, never read from a file.

Without a connection the statements are printed for the dialect that is named.
"""

from __future__ import annotations

from alembic import context

from oracle.store.tables import metadata

given = context.config.attributes
if context.is_offline_mode():
    context.configure(dialect_name=given["dialect"], target_metadata=metadata)
else:
    context.configure(connection=given["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
