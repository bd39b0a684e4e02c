"""`oracle report`: every form of a stored run, to standard output or to a file."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from xml.etree import ElementTree

import pytest

from .command import Ended, oracle
from .tiny import TinyRun, stacks_file

STARTS = {
    "text": "INCONCLUSIVE",
    "json": "{",
    "html": "<!doctype html>",
    "markdown": "### ⚠️ INCONCLUSIVE",
    "junit": "<testsuites",
    "sarif": "{",
}


@pytest.fixture
def run(tiny: TinyRun, tmp_path: Path) -> Path:
    stacks = stacks_file(tmp_path, torch="good", jax="good")
    where = ["--stacks-file", str(stacks), "--out", str(tmp_path / "runs")]
    assert oracle("run", str(tiny.config), *where).returncode == 3  # no noise floor
    return tmp_path / "runs"


def report(run: Path, *options: str) -> Ended:
    return oracle("report", "latest", "--out", str(run), *options)


def test_every_form_is_written_and_ends_with_0_whatever_the_verdict(run: Path) -> None:
    for form, start in STARTS.items():
        ended = report(run, "--format", form)
        assert (ended.returncode, ended.stderr) == (0, ""), form
        assert ended.stdout.lower().startswith(start.lower()), form


def test_json_is_the_stored_verdict_and_html_the_stored_page(run: Path) -> None:
    stored = run / "latest"
    assert report(run, "--format", "json").stdout == (stored / "verdict.json").read_text()
    assert report(run, "--format", "html").stdout == (stored / "report.html").read_text()


def test_a_file_is_private_and_whole(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "oracle.xml"
    ended = report(run, "--format", "junit", "-o", str(target))
    assert (ended.returncode, ended.stdout) == (0, "")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    suite = ElementTree.parse(target).getroot().find("testsuite")
    assert suite is not None
    assert suite.get("errors") == "1"  # INCONCLUSIVE is not green


def test_a_config_outside_the_repository_is_not_pointed_at(run: Path) -> None:
    document = json.loads(report(run, "--format", "sarif").stdout)
    (result,) = document["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "configs/contract/SPEC.md", "uriBaseId": "ROOT"}


def test_a_run_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    ended = oracle("report", "nothing", "--out", str(tmp_path))
    assert ended.returncode == 2
    assert ended.stderr.startswith("oracle: no run 'nothing'")
