"""One range for the whole session, whatever number of workers shares it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from faults.range import Range


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Range:
    """The range. Workers of pytest-xdist have the session's folder in common: what one of them
    made (clean legs, floor, compiled steps) the others take."""
    base = tmp_path_factory.getbasetemp()
    return Range((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "range")


@pytest.fixture(scope="session")
def base_config(ground: Range) -> Path:
    return ground.config({})
