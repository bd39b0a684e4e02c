"""The stacks of this tree pass the thresholds of the project's own policy; what moves does not.

The legs are the range's, which other tests of this folder train too: nothing is trained again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from faults.fault import ROOT
from faults.range import NUM_EXAMPLES, STACKS, Range
from oracle.bundle import make_bundle
from oracle.config import load_config
from oracle.double_run import Judging, judge_run, write_reports
from oracle.inputs import check_inputs
from oracle.runs import open_run
from tests.unit_oracle_run.command import Ended, oracle

COMMIT = "c" * 40
MERGE = ROOT / "configs" / "gates" / "merge.toml"


def as_run(out: Path, config_path: Path, legs: dict[str, Path]) -> Path:
    """Lay finished legs out as the run directory of one double run, judged without a report."""
    config, path = load_config(config_path), out / "run-20260101T000000Z-0001"
    (path / "bundle").mkdir(parents=True)
    (path / "bundle" / "run.toml").write_bytes(config.content)
    bundle = make_bundle(check_inputs(config))
    (path / "bundle" / "bundle.json").write_bytes(bundle.to_json())
    for name, leg in legs.items():
        shutil.copytree(leg, path / name)
    manifest = {
        "run": path.name, "created": "2026-01-01T00:00:00+00:00", "mode": "train",
        "purpose": "cross", "status": "finished", "contract": "1",
        "config_path": str(config.path), "config_sha256": config.sha256, "root": str(config.root),
        "stacks_file": str(ROOT / "configs" / "stacks.toml"), "git_commit": COMMIT,
        "legs": {
            name: {"stack": name, "argv": [name], "nonce": leg.name, "process_id": None}
            for name, leg in legs.items()
        },
        "manifest_version": "1",
    }  # fmt: skip
    (path / "run.json").write_text(json.dumps(manifest))
    write_reports(judge_run(open_run(path), (), Judging()), html=False, reveal=False)
    return path


def project_policy(folder: Path, config: Path) -> Path:
    """Return the project's policy, put to the range's small config: its limits are kept."""
    policy: dict[str, Any] = tomllib.loads(MERGE.read_text("utf-8"))
    (required,) = policy["required"]
    required |= {
        "run": load_config(config).name,
        "config": str(config),
        "tolerances": str((MERGE.parent / required["tolerances"]).resolve()),
        "min_steps": load_config(config).num_steps,
        "min_examples": NUM_EXAMPLES["train"] + NUM_EXAMPLES["eval"],
    }
    path = folder / "merge.toml"
    path.write_text(tomli_w.dumps(policy), "utf-8")
    return path


@pytest.fixture
def legs(ground: Range, base_config: Path, tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "runs").mkdir()
    shutil.copytree(ground.floor(base_config).parent, tmp_path / "runs" / "floors")
    return {stack: ground.clean(stack, base_config) for stack in STACKS}


def gate(policy: Path, run: Path, *options: str) -> Ended:
    fixed = ["--policy", str(policy), "--out", str(run.parent), "--commit", COMMIT]
    return oracle("gate", str(run), *fixed, *options)


def test_the_stacks_of_this_tree_pass_the_projects_policy(
    legs: dict[str, Path], base_config: Path, tmp_path: Path
) -> None:
    run = as_run(tmp_path / "runs", base_config, legs)
    ended = gate(project_policy(tmp_path, base_config), run)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.startswith("GATE PASS  clinical-demo AGREE 10 steps")


def test_a_loss_that_moves_by_a_billionth_does_not(
    legs: dict[str, Path], base_config: Path, tmp_path: Path
) -> None:
    """What rounding does here is 4e-16; no planted fault that moves the loss stays under 2e-12."""
    moved = tmp_path / legs["jax"].name
    shutil.copytree(legs["jax"], moved)
    lines = (moved / "steps.jsonl").read_text("utf-8").splitlines(keepends=True)
    row = json.loads(lines[3])
    lines[3] = json.dumps(row | {"loss": row["loss"] * (1 + 1e-9)}) + "\n"
    content = "".join(lines).encode()
    (moved / "steps.jsonl").write_bytes(content)
    done = json.loads((moved / "done.json").read_text("utf-8"))
    digest = hashlib.sha256(content).hexdigest()
    done["files"]["steps.jsonl"] = {"sha256": digest, "num_bytes": len(content)}
    (moved / "done.json").write_text(json.dumps(done))
    run = as_run(tmp_path / "runs", base_config, legs | {"jax": moved})
    ended = gate(project_policy(tmp_path, base_config), run)
    assert ended.returncode == 1
    assert "loss agrees on 3 of 4 steps" in ended.stdout


def test_the_projects_policies_can_be_used() -> None:
    from datetime import UTC, datetime

    from oracle.gate.policy import load_policy

    found = [path for path in MERGE.parent.glob("*.toml") if path.name != "acknowledged.toml"]
    assert MERGE in found
    for path in found:
        policy = load_policy(path, today=datetime.now(UTC).date())
        assert policy.name == path.stem
