"""Runs with their legs, phases and files; pins; floors."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "run",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("created", sa.Text, nullable=False),
        sa.Column("recorded", sa.Text, nullable=False),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("purpose", sa.Text, nullable=False),
        sa.Column("config_name", sa.Text, nullable=False),
        sa.Column("config_sha256", sa.Text, nullable=False),
        sa.Column("precision", sa.Text),
        sa.Column("num_steps", sa.Integer, nullable=False),
        sa.Column("num_examples", sa.Integer, nullable=False),
        sa.Column("commit", sa.Text),
        sa.Column("branch", sa.Text),
        sa.Column("author", sa.Text),
        sa.Column("contract", sa.Text, nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("headline", sa.Text, nullable=False),
        sa.Column("first_phase", sa.Text),
        sa.Column("first_step", sa.Integer),
        sa.Column("max_relative_loss_difference", sa.Double),
        sa.Column("mean_relative_loss_difference", sa.Double),
        sa.Column("tolerances_sha256", sa.Text, nullable=False),
        sa.Column("floor_sha256", sa.Text),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("record_sha256", sa.Text, nullable=False),
        sa.Column("supersedes", sa.Text),
    )
    op.create_index("run_by_time", "run", ["created", "id"])
    op.create_index("run_by_commit", "run", ["commit"])
    op.create_index("run_by_config", "run", ["config_name", "created"])
    _of_a_run(
        "leg",
        sa.Column("place", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("stack", sa.Text, nullable=False),
        sa.Column("code_sha256", sa.Text),
        sa.Column("trace_sha256", sa.Text),
    )
    _of_a_run(
        "phase",
        sa.Column("phase", sa.Text, primary_key=True),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("num_compared", sa.Integer, nullable=False),
        sa.Column("num_agreeing", sa.Integer, nullable=False),
    )
    _of_a_run(
        "file",
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
    )
    op.create_index("file_by_object", "file", ["sha256"])
    _of_a_run(
        "pin",
        sa.Column("holder", sa.Text, primary_key=True),
        sa.Column("created", sa.Text, nullable=False),
    )
    op.create_table(
        "floor",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("config_name", sa.Text, nullable=False),
        sa.Column("config_sha256", sa.Text, nullable=False),
        sa.Column("precision", sa.Text, nullable=False),
        sa.Column("num_steps", sa.Integer, nullable=False),
        sa.Column("created", sa.Text, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
    )
    op.create_index("floor_by_config", "floor", ["config_sha256"])


def _of_a_run(name: str, *columns: sa.Column[object]) -> None:
    """Make a table whose rows go with their run."""
    goes_with_it = sa.ForeignKey("run.id", ondelete="CASCADE")
    key = sa.Column("run_id", sa.Text, goes_with_it, primary_key=True)
    op.create_table(name, key, *columns)


def downgrade() -> None:
    """Drop them."""
    for table in ("floor", "pin", "file", "phase", "leg", "run"):
        op.drop_table(table)
