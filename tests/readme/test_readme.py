"""The README's commands work, in the order in which a reader meets them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [line[2:].split("  #")[0].strip() for block in BLOCKS for line in block.splitlines()]
ALLOWED = {0}


def test_every_line_of_a_console_block_is_a_command() -> None:
    assert all(line.startswith("$ ") for block in BLOCKS for line in block.splitlines())
    assert len(COMMANDS) > 8


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make ")])
def test_make_knows_the_target(command: str) -> None:
    # A dry run: `make test` is what runs this test, and `make demo` is the run below.
    done = subprocess.run([*command.split(), "-n"], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_make_has_no_target_that_the_readme_invents() -> None:
    done = subprocess.run(["make", "demonstrate", "-n"], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 2


def test_the_pipeline_runs_as_written() -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in (c for c in COMMANDS if c.startswith("oracle ")):
        done = subprocess.run(
            command.split(), cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode in ALLOWED, f"{command}: {done.returncode}\n{done.stderr[-2000:]}"
    verdict = json.loads((ROOT / "runs" / "latest" / "verdict.json").read_text("utf-8"))
    assert verdict["verdict"] == "AGREE"


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#:]+)\)", TEXT))
def test_every_link_leads_somewhere(target: str) -> None:
    assert (ROOT / target).exists()


def test_the_example_that_the_readme_names_is_in_the_data() -> None:
    ids = set(re.findall(r"--example (\S+)", TEXT))
    lines = (ROOT / "data/clinical/sample/train.jsonl").read_text("utf-8").split("\n")
    assert ids
    assert ids <= {json.loads(line)["id"] for line in lines if line}


def test_help_lists_every_command_and_the_readme_names_each() -> None:
    oracle = Path(sys.executable).with_name("oracle")
    text = subprocess.run([oracle, "--help"], capture_output=True, text=True, check=True).stdout
    commands = re.findall(r"^  ([a-z-]+)  ", text.split("Commands:")[1], re.MULTILINE)
    assert {"run", "render", "calibrate", "compare", "show", "check", "validate-trace"} <= set(
        commands
    )
    missing = [name for name in commands if f"oracle {name}" not in TEXT]
    assert missing == []
