"""Migrations of the index, run by Alembic through `oracle.store.database.migrate`."""
