"""A run directory as `oracle run` leaves it, from synthetic traces, and policies that require it.

No leg is started: traces are written from S-24 (`synthetic`), the verdict by the oracle.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import tomli_w

from oracle.bundle import make_bundle
from oracle.config import load_config
from oracle.contract import ROOT
from oracle.double_run import Judging, judge_run, write_reports
from oracle.files import sha256_file
from oracle.gate.policy import Policy, load_policy
from oracle.inputs import check_inputs
from oracle.runs import open_run
from tests.unit_oracle_judge.conftest import floor_of
from tests.unit_oracle_judge.synthetic import Documents, documents, read, write
from tests.unit_oracle_run.command import Ended, oracle
from tests.unit_oracle_run.tiny import TinyRun

COMMIT = "a" * 40
TODAY = datetime.now(UTC).date()
NUM_STEPS = 8
NUM_EXAMPLES = 20  # 14 train, 3 eval, 3 edge
TOLERANCES = ROOT / "configs" / "tolerances" / "float64.toml"
Change = Callable[[Documents], None]


def unchanged(made: Documents) -> None:
    """A leg without a fault."""


class Case:
    """A folder with a run config, runs and policies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tiny = TinyRun(folder / "inputs")
        self.tiny.set("train.num_steps", NUM_STEPS)
        self.out = folder / "runs"
        self.num_runs = 0

    def run(
        self,
        change: Change = unchanged,
        *,
        mode: str = "train",
        commit: str | None = COMMIT,
        stacks: tuple[str, str] = ("torch", "jax"),
        floor: bool = True,
        tolerances: Path | None = None,
    ) -> Path:
        """Make a finished, judged run whose second leg has `change`; returns its directory."""
        config = load_config(self.tiny.config)
        self.num_runs += 1
        path = self.out / f"tiny-20260101T00000{self.num_runs}Z-00a{self.num_runs}"
        (path / "bundle").mkdir(parents=True)
        (path / "bundle" / "run.toml").write_bytes(config.content)
        (path / "bundle" / "bundle.json").write_bytes(make_bundle(check_inputs(config)).to_json())
        made = [documents(NUM_STEPS, stack=name, mode=mode) for name in stacks]
        change(made[1])
        for name, one in zip(stacks, made, strict=True):
            one["header"]["config_sha256"] = config.sha256
            write(path / name, one)
        manifest = {
            "run": path.name,
            "created": f"2026-01-01T00:00:0{self.num_runs}+00:00",
            "mode": mode,
            "purpose": "cross",
            "status": "finished",
            "contract": "1",
            "config_path": str(config.path),
            "config_sha256": config.sha256,
            "root": str(config.root),
            "stacks_file": str(ROOT / "configs" / "stacks.toml"),
            "git_commit": commit,
            "legs": {
                name: {"stack": name, "argv": [name], "nonce": f"nonce-{name}", "process_id": None}
                for name in stacks
            },
            "manifest_version": "1",
        }
        (path / "run.json").write_text(json.dumps(manifest))
        if floor and mode == "train":
            self.calibrate()
        self.judge(path, tolerances)
        return path

    def calibrate(self, value: float = 1e-16, files: dict[str, Any] | None = None) -> None:
        """Store a floor of every field for the two clean legs, which read `files` besides."""
        sha256 = load_config(self.tiny.config).sha256
        scratch = self.folder / f"scratch-{len(list(self.folder.iterdir()))}"
        legs = []
        for name in ("torch", "jax"):
            made = documents(NUM_STEPS, stack=name)
            made["header"]["config_sha256"] = sha256
            legs.append(read(scratch / name, made))
        path = floor_of(self.out / "floors", legs[0], legs[1], value)
        document = json.loads(path.read_text())
        document["provenance"]["config_sha256"] = sha256
        for leg in document["provenance"]["legs"].values():
            leg["files"] |= files or {}
        path.unlink()
        write_again(self.out / "floors", document)

    def checkpoint_files(self) -> dict[str, Any]:
        """Return the hashes of what a leg that trains reads and one that renders does not."""
        folder = self.tiny.folder / "checkpoint"
        return {
            "model_config": sha256_file(folder / "config.json"),
            "weights": {"model.safetensors": sha256_file(folder / "model.safetensors")},
        }

    def judge(self, path: Path, tolerances: Path | None = None) -> None:
        """Write verdict.json as `oracle run` does."""
        run = open_run(path)
        judged = judge_run(run, (), Judging(tolerances=tolerances))
        write_reports(judged, html=False, reveal=False)

    def policy(
        self,
        *,
        waiver: dict[str, Any] | None = None,
        agreement: list[dict[str, Any]] | None = None,
        mode: str = "train",
        top: dict[str, Any] | None = None,
        **changes: Any,
    ) -> Path:
        """Write a policy; a change to None leaves a key out."""
        required: dict[str, Any] = {
            "run": "tiny",
            "config": "../inputs/run.toml",
            "mode": mode,
            "stacks": ["torch", "jax"],
            "min_examples": NUM_EXAMPLES,
        }
        if mode == "train":
            required |= {
                "tolerances": str(TOLERANCES),
                "min_steps": NUM_STEPS,
                "max_mean_relative_loss_difference": 1e-13,
                "max_relative_loss_difference": 1e-12,
            }
        required |= changes
        if agreement is not None:
            required["agreement"] = agreement
        table = {
            "policy_version": "1",
            "name": "test",
            "unacknowledged": "show",
            "longest_waiver_days": 90,
            "required": [{key: value for key, value in required.items() if value is not None}],
        } | (top or {})
        if waiver is not None:
            given = {
                "run": "tiny",
                "owner": "A. Owner",
                "reason": "known",
                "expires": TODAY + timedelta(days=30),
            } | waiver
            table["waiver"] = [{k: v for k, v in given.items() if v is not None}]
        path = self.folder / "gates" / "test.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(tomli_w.dumps(table), "utf-8")
        return path

    def load(self, today: date = TODAY, **changes: Any) -> Policy:
        """Write a policy and read it."""
        return load_policy(self.policy(**changes), today=today)

    def gate(self, *arguments: str | Path, **changes: Any) -> Ended:
        """`oracle gate` on a policy with `changes`."""
        return self.again(self.policy(**changes), *arguments)

    def again(self, policy: Path, *arguments: str | Path, commit: str = COMMIT) -> Ended:
        """`oracle gate` on a policy that is there."""
        fixed = ["--policy", str(policy), "--out", str(self.out), "--commit", commit]
        return oracle("gate", *fixed, *map(str, arguments))


def write_again(folder: Path, document: dict[str, Any]) -> Path:
    """Write a floor's document under the name that its content demands."""
    from oracle.floor import write_floor

    return write_floor(
        folder,
        name="tiny",
        provenance=document["provenance"],
        num_steps=document["num_steps"],
        rises=document["stacks"],
        contributions=document["contributions"],
    )


def lose_a_target(made: Documents) -> None:
    """A fault of one edge example, which no step consumes: nothing follows from it."""
    row = next(row for row in made["tokens"] if row["id"] == "edge-001")
    row["mask"][row["mask"].index(1)] = 0


def lose_targets_of_two(made: Documents) -> None:
    """The same fault in two edge examples."""
    for name in ("edge-001", "edge-002"):
        row = next(row for row in made["tokens"] if row["id"] == name)
        row["mask"][row["mask"].index(1)] = 0


def move_loss(step: int, by: float) -> Change:
    """Move the loss of one step, relative."""

    def change(made: Documents) -> None:
        made["steps"][step]["loss"] *= 1 + by

    return change
