"""Runs that tell what a planted fault costs: train with and without it, evaluate both cleanly.

Three configs a run, made from one: with the seed; and for the evaluation the delivered checkpoint
at rate 0 for one step, in the clean stack, so that held-out loss is what S-20 says of it.
"""

from __future__ import annotations

import copy
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from faults.fault import Fault, planted_root
from faults.range import Range
from oracle.config import load_config
from oracle.errors import ConfigError
from oracle.impact import Impact, Losses, impact

LAST_STEPS = 10  # of which the final training loss is the mean
SLOTS = 2


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is run: `seeds` runs of `num_steps` steps of `config`, legs kept in `folder`."""

    config: Path
    folder: Path
    seeds: Sequence[int]
    num_steps: int


def measure(
    plan: Plan, faults: Sequence[Fault], on_progress: Callable[[str], None]
) -> Iterator[Impact]:
    """Yield the impact of each fault in the order given; clean runs are made once a stack.

    Raises RuntimeError when a clean leg fails; a faulty leg that fails is told and left out.
    """
    ground = Range(plan.folder)
    stacks = sorted({fault.stack for fault in faults})
    with ThreadPoolExecutor(SLOTS) as pool:
        jobs = {
            (name, seed): pool.submit(_losses, ground, plan, stack, fault, seed)
            for name, stack, fault in (
                *((stack, stack, None) for stack in stacks),
                *((fault.id, fault.stack, fault) for fault in faults),
            )
            for seed in plan.seeds
        }
        clean = {}
        for stack in stacks:
            clean[stack] = {seed: jobs[stack, seed].result() for seed in plan.seeds}
            on_progress(f"clean {stack}: {len(plan.seeds)} runs")
        for fault in faults:
            try:
                faulty = {seed: jobs[fault.id, seed].result() for seed in plan.seeds}
            except RuntimeError as error:
                on_progress(f"{fault.id}: {error}")
                continue
            found = impact(
                fault.id, fault.title, fault.expect[0], clean=clean[fault.stack], faulty=faulty
            )
            on_progress(f"{fault.id}: held-out loss {found.held_out}")
            yield found


def _losses(ground: Range, plan: Plan, stack: str, fault: Fault | None, seed: int) -> Losses:
    name = f"{stack}-{fault.id if fault else 'clean'}-{seed}"
    config = _write(plan, name, {"seed": seed, **_merged(plan, fault)})
    out = plan.folder / name
    if not (out / "done.json").exists():
        with tempfile.TemporaryDirectory(dir=plan.folder) as code:
            if fault is None:
                ground.leg(stack, config, out)
            else:
                ground.leg(stack, config, out, root=planted_root(fault, Path(code) / "root"))
    judged = plan.folder / f"{name}-held-out"
    if not (judged / "done.json").exists():
        ground.leg(stack, _write(plan, judged.name, _evaluation(out)), judged)
    return Losses(held_out=_steps(judged)[-1]["eval_loss"], final=_final(_steps(out)))


def _merged(plan: Plan, fault: Fault | None) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "train": {"num_steps": plan.num_steps},
        "eval": {"every_steps": 0},
        "snapshot": {"every_steps": 0},
        "trace": {"tensors_every": 0},
    }
    if fault is not None and fault.config:
        raise ConfigError(
            f"fault {fault.id} shows under a config of its own ({', '.join(fault.config)}); its "
            "impact has no clean run to be measured against. Choose another fault."
        )
    return changes


def _evaluation(trained: Path) -> dict[str, Any]:
    return {
        "model": {"checkpoint": str(trained / "checkpoint")},
        "train": {"num_steps": 1},
        "optimizer": {"learning_rate": 0.0},
        "schedule": {"warmup_steps": 0},
        "eval": {"every_steps": 1, "num_examples": 1_000_000},
        "snapshot": {"every_steps": 0},
        "trace": {"tensors_every": 0},
    }


def _write(plan: Plan, name: str, changes: dict[str, Any]) -> Path:
    values = copy.deepcopy(load_config(plan.config).absolute_values())
    for key, value in changes.items():
        values[key] = {**values[key], **value} if isinstance(value, dict) else value
    path = plan.folder / f"{name}.toml"
    path.write_text(tomli_w.dumps(values), "utf-8")
    return path


def _steps(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "steps.jsonl").read_text("utf-8").splitlines()]


def _final(steps: Sequence[dict[str, Any]]) -> float:
    return statistics.fmean(float(step["loss"]) for step in steps[-LAST_STEPS:])
