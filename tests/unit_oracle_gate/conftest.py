"""A folder with a run config, in which a test makes runs and policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit_oracle_gate.case import Case


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)
