"""Migrations: in order, up and down, the tables that the code uses, on SQLite and on PostgreSQL."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from oracle.store.database import MIGRATIONS, VERSIONS, Database, migrate
from oracle.store.tables import metadata
from tests.unit_oracle_store.conftest import Kept


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = Database(tmp_path / "store" / "index.sqlite")
    made.upgrade()
    return made


def tables(database: Database) -> set[str]:
    with database.engine.connect() as connection:
        return set(inspect(connection).get_table_names())


def test_the_code_knows_every_migration_in_order() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    found = [script.revision for script in scripts.walk_revisions()]
    assert tuple(reversed(found)) == VERSIONS
    assert list(VERSIONS) == sorted(VERSIONS), "a newer version is a larger one"
    assert all(version.isdecimal() for version in VERSIONS)


def test_migrations_make_the_tables_that_the_code_uses(database: Database) -> None:
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_migrations_go_down_and_up_again(database: Database) -> None:
    before = tables(database)
    assert before == {*metadata.tables, "alembic_version"}
    migrate(database.engine, "base")
    assert tables(database) == {"alembic_version"}
    assert database.due()
    migrate(database.engine, "head")
    assert tables(database) == before
    assert not database.due()


def test_an_index_of_no_tables_is_brought_up_and_filled(kept: Kept) -> None:
    stored = kept.add(0)
    migrate(kept.store.database.engine, "base")
    assert kept.store.runs() == [stored]


def test_postgresql_takes_the_same_migrations() -> None:
    said = io.StringIO()
    config = Config(output_buffer=said)
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["dialect"] = "postgresql"
    command.upgrade(config, "head", sql=True)
    for table in metadata.sorted_tables:
        columns = str(CreateTable(table).compile(dialect=postgresql.dialect()))
        for column in table.columns:
            kind = column.type.compile(dialect=postgresql.dialect())
            assert f"{column.name} {kind}" in columns.replace('"', "")
            assert f"{column.name} {kind}" in said.getvalue().replace('"', "")
