"""Tables of the index, in portable types: SQLite for one person, PostgreSQL for a team.

Times are ISO 8601 in UTC, as text: they sort as they read, in both databases. A change here comes
with a migration; `tests/unit_oracle_store` holds the two against each other.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
)

metadata = MetaData()

run = Table(
    "run",
    metadata,
    Column("id", Text, primary_key=True),
    Column("created", Text, nullable=False),
    Column("recorded", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("config_name", Text, nullable=False),
    Column("config_sha256", Text, nullable=False),
    Column("precision", Text),
    Column("num_steps", Integer, nullable=False),
    Column("num_examples", Integer, nullable=False),
    Column("commit", Text),
    Column("branch", Text),
    Column("author", Text),
    Column("contract", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("headline", Text, nullable=False),
    Column("first_phase", Text),
    Column("first_step", Integer),
    Column("max_relative_loss_difference", Double),
    Column("mean_relative_loss_difference", Double),
    Column("tolerances_sha256", Text, nullable=False),
    Column("floor_sha256", Text),
    Column("num_bytes", BigInteger, nullable=False),
    Column("record_sha256", Text, nullable=False),
    Column("supersedes", Text),
    Index("run_by_time", "created", "id"),
    Index("run_by_commit", "commit"),
    Index("run_by_config", "config_name", "created"),
)

leg = Table(
    "leg",
    metadata,
    Column("run_id", Text, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("stack", Text, nullable=False),
    Column("code_sha256", Text),
    Column("trace_sha256", Text),
)

phase = Table(
    "phase",
    metadata,
    Column("run_id", Text, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    Column("phase", Text, primary_key=True),
    Column("status", Text, nullable=False),
    Column("num_compared", Integer, nullable=False),
    Column("num_agreeing", Integer, nullable=False),
)

file = Table(
    "file",
    metadata,
    Column("run_id", Text, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    Column("path", Text, primary_key=True),
    Column("sha256", Text, nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Index("file_by_object", "sha256"),
)

pin = Table(
    "pin",
    metadata,
    Column("run_id", Text, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    Column("holder", Text, primary_key=True),
    Column("created", Text, nullable=False),
)

floor = Table(
    "floor",
    metadata,
    Column("name", Text, primary_key=True),
    Column("sha256", Text, nullable=False),
    Column("config_name", Text, nullable=False),
    Column("config_sha256", Text, nullable=False),
    Column("precision", Text, nullable=False),
    Column("num_steps", Integer, nullable=False),
    Column("created", Text, nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Index("floor_by_config", "config_sha256"),
)
