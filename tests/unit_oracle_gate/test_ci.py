"""The pieces for CI: both platforms call one script, and its steps do here what they do there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import yaml

from oracle.contract import ROOT
from tests.unit_oracle_run.tiny import TinyRun, stacks_file

STEPS = ROOT / "ci" / "steps.sh"
VERBS = ("settings", "install", "render", "key", "calibrate", "run", "gate", "summary")
WORK = ("render", "calibrate", "run", "gate", "summary")


def document(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / name).read_text("utf-8"))
    return loaded


def verb(line: str, call: str) -> str:
    """Return the step that a line calls; a line that does anything else is no such call."""
    found = re.fullmatch(rf"{re.escape(call)} ([a-z]+)", line)
    assert found is not None, line
    return found[1]


def action_verbs() -> list[str]:
    steps = document("action.yml")["runs"]["steps"]
    return [verb(s["run"], '"$GITHUB_ACTION_PATH/ci/steps.sh"') for s in steps if "run" in s]


def gitlab_verbs() -> list[str]:
    job = document("ci/gitlab/oracle.gitlab-ci.yml")["oracle"]
    return [verb(line, "$ORACLE_HOME/ci/steps.sh") for line in job["script"] + job["after_script"]]


def test_the_action_calls_the_script_and_nothing_else() -> None:
    assert action_verbs() == list(VERBS)


def test_the_template_calls_the_script_and_nothing_else() -> None:
    assert gitlab_verbs() == ["install", *WORK]


def test_no_expression_is_pasted_into_a_shell() -> None:
    """An input that holds shell syntax must stay a value: it comes by the environment."""
    for step in document("action.yml")["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert step.get("shell", "bash") == "bash"


def test_every_step_that_reports_runs_when_the_gate_is_red() -> None:
    steps = document("action.yml")["runs"]["steps"]
    names = [step["name"] for step in steps]
    for name in ("Summary", "Keep the report"):
        assert steps[names.index(name)]["if"] == "always()"
    assert names.index("Gate") < names.index("Summary") < names.index("Keep the report")
    job = document("ci/gitlab/oracle.gitlab-ci.yml")["oracle"]
    assert job["artifacts"]["when"] == "always"


def test_the_project_gates_itself() -> None:
    jobs = document(".github/workflows/gate.yml")["jobs"]
    assert jobs["check-and-test"]["steps"][-1] == {"run": ".ci/run"}
    own = jobs["gate"]["steps"][-1]
    assert own["uses"] == "./"
    assert all((ROOT / own["with"][name]).is_file() for name in ("config", "policy"))


def test_no_trace_leaves_the_machine() -> None:
    """A trace is clinical data: CI keeps the report's folder alone."""
    uploads = [
        step["with"]["path"]
        for step in document("action.yml")["runs"]["steps"]
        if "upload-artifact" in step.get("uses", "")
    ]
    assert uploads == ["oracle-report"]
    job = document("ci/gitlab/oracle.gitlab-ci.yml")["oracle"]
    assert job["artifacts"]["paths"] == ["oracle-report"]


class Project:
    """A repository of somebody else's: a run config, a policy, and two stacks that pretend."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.tiny = TinyRun(self.folder / "inputs")
        self.stacks = stacks_file(self.folder, one="good", two="good")
        gates = self.folder / "gates"
        gates.mkdir()
        shutil.copy(ROOT / "configs" / "tolerances" / "float64.toml", gates)
        self.policy = gates / "merge.toml"
        required = {
            "run": "tiny", "config": "../inputs/run.toml", "mode": "train",
            "stacks": ["one", "two"], "tolerances": "float64.toml", "min_steps": 4,
            "min_examples": 7, "max_mean_relative_loss_difference": 1e-13,
            "max_relative_loss_difference": 1e-12,
        }  # fmt: skip
        head = {"policy_version": "1", "name": "merge", "unacknowledged": "show"}
        table = head | {"longest_waiver_days": 30, "required": [required]}
        self.policy.write_text(tomli_w.dumps(table))
        (self.folder / ".gitignore").write_text("runs/\noracle-report/\n")
        self.commit()
        launcher = folder / "oracle"
        launcher.write_text(
            f"#!{sys.executable}\nfrom oracle.cli import main\nmain(prog_name='oracle')\n"
        )
        launcher.chmod(0o755)
        self.environment = os.environ | {
            "ORACLE": str(launcher),
            "ORACLE_CONFIG": "inputs/run.toml",
            "ORACLE_POLICY": "gates/merge.toml",
            "ORACLE_STACKS": "one,two",
            "ORACLE_STACKS_FILE": str(self.stacks),
            "PYTHONPATH": str(ROOT),
        }
        for name in ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "ORACLE_BASE"):
            self.environment.pop(name, None)

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        argv = ["git", *identity, *arguments]
        done = subprocess.run(argv, cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self) -> str:
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-q", "-m", f"at {datetime.now(UTC)}")
        return self.git("rev-parse", "HEAD")

    def step(self, name: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(STEPS), name],
            cwd=self.folder,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_the_steps_gate_a_project(project: Project, tmp_path: Path) -> None:
    """All steps in order; then a loosened rule, a broken policy and a fault, which must show."""
    output = tmp_path / "output"
    base = project.git("rev-parse", "HEAD")
    for name in ("render", "key", "calibrate", "run"):
        done = project.step(name, GITHUB_OUTPUT=str(output))
        # Without a floor beside it `run` would say INCONCLUSIVE: calibrate measured one.
        assert done.returncode == 0, (name, done.stdout, done.stderr)
    assert re.fullmatch(r"key=tiny-[0-9a-f]{16}\n", output.read_text())
    done = project.step("gate", GITHUB_OUTPUT=str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("GATE PASS  tiny AGREE 4 steps")
    assert output.read_text().splitlines()[1] == f"line={done.stdout.strip()}"
    assert json.loads((project.folder / "oracle-report/gate.json").read_text())["gate"] == "PASS"

    page = tmp_path / "page.md"
    assert project.step("summary", GITHUB_STEP_SUMMARY=str(page)).returncode == 0
    assert page.read_text().startswith(f"`{done.stdout.strip()}`\n")
    kept = {path.name for path in (project.folder / "oracle-report").iterdir()}
    assert kept == {
        *("gate.json", "gate.txt", "junit.xml", "report.html", "report.sarif"),
        *("summary.md", "verdict.json"),
    }

    again = project.step("calibrate")
    assert "the floor that was kept holds" in again.stdout
    assert len(list((project.folder / "runs/floors").glob("*.json"))) == 1

    rules = project.folder / "gates" / "float64.toml"
    rules.write_text(rules.read_text().replace("multiple = 10.0", "multiple = 20.0", 1))
    project.commit()
    assert project.step("gate").returncode == 2  # a verdict of another commit
    assert project.step("run").returncode == 0
    done = project.step("gate", ORACLE_BASE=base)
    assert done.returncode == 0
    assert "touches rules: gates/float64.toml loosened steps.loss multiple 10 → 20" in done.stdout
    done = project.step("gate", ORACLE_BASE="f" * 40)
    assert done.returncode == 0
    assert "is not fetched" in done.stderr

    project.policy.write_text("[[required]]\n")
    project.commit()
    done = project.step("gate")
    assert done.returncode == 2
    # The green answer of before is gone.
    assert not (project.folder / "oracle-report/gate.json").exists()


def test_a_leg_that_refuses_its_input_stops_before_training(project: Project) -> None:
    stacks_file(project.folder, one="good", two="bad-input")
    assert project.step("render").returncode == 2
    assert project.step("gate").returncode == 2
    done = project.step("summary")
    assert done.returncode == 0
    assert "leg two" in done.stdout


def test_settings_are_lines(project: Project, tmp_path: Path) -> None:
    target = tmp_path / "environment"
    assert project.step("settings", GITHUB_ENV=str(target)).returncode == 0
    assert "ORACLE_CONFIG=inputs/run.toml\n" in target.read_text()
    target.unlink()
    done = project.step("settings", GITHUB_ENV=str(target), ORACLE_CONFIG="a\nORACLE=/bin/evil")
    assert done.returncode == 2
    assert not target.exists()


def test_an_unknown_step_is_told(project: Project) -> None:
    done = project.step("deploy")
    assert done.returncode == 2
    assert "known are settings, install, render" in done.stderr


@pytest.mark.slow
def test_the_project_gates_itself_here_as_there(tmp_path: Path) -> None:
    """The steps of both files on the demo and the project's own policy, in a clone of HEAD."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    launcher = tmp_path / "oracle"
    launcher.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(clone)!r})\n"
        "from oracle.cli import main\nmain(prog_name='oracle')\n"
    )
    launcher.chmod(0o755)
    own = document(".github/workflows/gate.yml")["jobs"]["gate"]["steps"][-1]["with"]
    environment = os.environ | {
        "ORACLE": str(launcher),
        "ORACLE_CONFIG": own["config"],
        "ORACLE_POLICY": own["policy"],
        "PYTHONPATH": str(clone),
    }
    for name in (name for name in action_verbs() if name not in ("settings", "install")):
        argv = [str(clone / "ci" / "steps.sh"), name]
        done = subprocess.run(argv, cwd=clone, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (name, done.stdout, done.stderr)
    line = (clone / "oracle-report" / "gate.txt").read_text("utf-8")
    assert line.startswith("GATE PASS  clinical-demo AGREE 60 steps")
