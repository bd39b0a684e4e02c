"""The tiny run of these tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit_oracle_run.tiny import TinyRun


@pytest.fixture
def tiny(tmp_path: Path) -> TinyRun:
    return TinyRun(tmp_path / "inputs")
