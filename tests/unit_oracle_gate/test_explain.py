"""`--explain` says what each threshold would have let through, of the faults on record."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from oracle.contract import ROOT
from oracle.errors import ConfigError
from oracle.gate.explain import read_faults
from tests.unit_oracle_gate.case import Case, move_loss

TABLE = json.loads((ROOT / "faults" / "table.json").read_text("utf-8"))


def named(line: str) -> tuple[int, list[str]]:
    """Return the number and the ids at the end of a line."""
    if line.endswith(" none"):
        return 0, []
    found = re.search(r"(\d+) \(([^)]*)\)", line)
    assert found is not None, line
    return int(found[1]), re.findall(r"[A-Z]\d+", found[2])


def line_of(text: str, start: str) -> str:
    return next(line.strip() for line in text.splitlines() if line.strip().startswith(start))


def test_a_limit_alone_lets_through_the_faults_under_it(case: Case) -> None:
    case.run(move_loss(5, 3e-15))
    limit = 1e-5
    ended = case.gate("--explain", max_relative_loss_difference=limit)
    assert ended.returncode == 0
    line = line_of(ended.stdout, "largest relative loss difference")
    assert "limit 1e-5, measured 3" in line
    under = [r["id"] for r in TABLE if r["summary"]["max_relative_loss_difference"] <= limit]
    number, ids = named(line)
    assert number == len(under)
    assert ids == under[: len(ids)]


def test_all_together_lets_through_what_the_oracle_misses(case: Case) -> None:
    """Of a policy without exceptions nothing passes but faults to which the verdict is AGREE."""
    case.run()
    ended = case.gate("--explain")
    missed = [row["id"] for row in TABLE if row["verdict"] == "AGREE"]
    together = named(line_of(ended.stdout, "all thresholds together").partition(";")[0])
    assert together == (len(missed), missed)


def test_a_share_under_1_names_the_faults_that_it_overlooks(case: Case) -> None:
    """D16 parts in eval alone; a policy that lets every eval part lets it through."""
    case.run()
    entry = {"phase": "eval", "at_least": 1e-9, "reason": "test"}
    number, ids = named(
        line_of(case.gate("--explain", agreement=[entry]).stdout, "agreement of eval")
    )
    parted = [
        row["id"]
        for row in TABLE
        for result in row["phases"]
        if result["phase"] == "eval"
        and 0 < result["num_agreeing"] < result["num_compared"]
        and result["reason"] is None
    ]
    assert number >= len(parted)
    assert set(parted) <= set(ids)


def test_a_run_that_is_missing_lets_nothing_through(case: Case) -> None:
    case.out.mkdir()
    ended = case.gate("--explain")
    assert ended.returncode == 2
    assert "nothing: tiny has no run" in ended.stdout


def test_with_json_the_explanation_goes_beside_it(case: Case) -> None:
    case.run()
    ended = case.gate("--explain", "--json")
    assert json.loads(ended.stdout)["gate"] == "PASS"
    assert "all thresholds together" in ended.stderr


def test_the_record_is_that_of_the_table() -> None:
    """`python -m faults --write` makes both: they must be of one try."""
    lines = (ROOT / "faults" / "TABLE.md").read_text("utf-8").splitlines()
    cells = [
        line.split(" | ") for line in lines if line.startswith(("| A", "| B", "| C", "| D", "| X"))
    ]
    table = [(row[0][2:], row[4], row[6]) for row in cells]
    record = [
        (row["id"], "nowhere" if row["first"] is None else row["first"]["phase"], row["verdict"])
        for row in TABLE
    ]
    assert record == table


@pytest.mark.parametrize("content", ["[", "[{}]", "3"])
def test_a_table_that_cannot_be_read_is_told(tmp_path: Path, content: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="is malformed"):
        read_faults(path)
