"""Negative controls: what means the same must not be reported (group G of the catalogue).

G02 another environment, G03 another garbage collection, G04 trace on or off, G09 data in two files:
bit for bit. G05 other micro-batches, G06 another order of summation: within the floor. G12 the two
clean stacks, over seeds and precisions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from faults.fault import Fault, Patch, planted_root
from faults.range import STACKS, Range
from oracle.contract import Verdict
from oracle.trace import Trace, read_trace

SEEDS = (17, 4, 2026)
EXACT = {"echo", "order", "text", "ids", "mask", "batch", "weights"}

either_stack = pytest.mark.parametrize("stack", STACKS)


def finals(trace: Path) -> dict[str, str]:
    final: dict[str, str] = json.loads((trace / "done.json").read_text("utf-8"))["final"]
    return final


def self_verdict(ground: Range, a: Path, b: Path, floor: Path | None = None) -> Verdict:
    return ground.judge(a, b, floor=floor, purpose="self", names=("plain", "varied"))


def assert_bit_identical(ground: Range, plain: Path, varied: Path) -> None:
    verdict = self_verdict(ground, plain, varied)
    assert verdict.verdict == "AGREE", (verdict.headline, verdict.reasons)
    assert finals(plain) == finals(varied)


@either_stack
def test_another_environment_changes_no_bit(stack: str, ground: Range, base_config: Path) -> None:
    """G02: hash seed, locale, time zone, working directory."""
    plain = ground.clean(stack, base_config)
    out = base_config.parent / f"environment-{stack}"
    varied = {"PYTHONHASHSEED": "4711", "LC_ALL": "C", "LANG": "C", "TZ": "Asia/Kathmandu"}
    ground.leg(stack, base_config, out, environment=varied, cwd=out.parent)
    assert_bit_identical(ground, plain, out)


COLLECT = {
    "torch": ("train.py", "        batch = next(self.stream)\n"),
    "jax": ("train.py", "        step = leg.num_updates\n"),
}
COLLECTIONS = {"off": "__import__('gc').disable()", "at every step": "__import__('gc').collect()"}


@either_stack
@pytest.mark.parametrize("collection", COLLECTIONS)
def test_garbage_collection_changes_no_bit(
    collection: str, stack: str, ground: Range, base_config: Path, tmp_path: Path
) -> None:
    """G03."""
    plain = ground.clean(stack, base_config)
    file, line = COLLECT[stack]
    indent = line[: len(line) - len(line.lstrip())]
    patch = Patch(file=file, find=line, replace=f"{line}{indent}{COLLECTIONS[collection]}\n")
    root = planted_root(harmless("G03", stack, patch), tmp_path / "root")
    out = base_config.parent / f"collection-{collection.replace(' ', '-')}-{stack}"
    ground.leg(stack, base_config, out, root=root)
    assert_bit_identical(ground, plain, out)


def harmless(id: str, stack: str, *patches: Patch) -> Fault:
    return Fault(
        id=id,
        title="no fault",
        source="",
        stack=stack,
        expect=(),
        planted_by="stranger",
        patches=patches,
        config={},
    )


@either_stack
def test_a_trace_changes_no_bit(stack: str, ground: Range, base_config: Path) -> None:
    """G04."""
    plain = ground.clean(stack, base_config)
    out = base_config.parent / f"untraced-{stack}"
    ground.leg(stack, base_config, out, "--no-trace")
    assert finals(plain) == finals(out)
    assert not (out / "steps.jsonl").exists()


@either_stack
def test_data_in_two_files_changes_no_bit(stack: str, ground: Range, base_config: Path) -> None:
    """G09: tokens, steps and final hashes; that the files differ is the control's own change."""
    plain = ground.clean(stack, base_config)
    whole = next(ground.folder.glob("*-train.jsonl"))
    lines = whole.read_bytes().split(b"\n")
    halves = [ground.folder / f"half-{stack}-{i}.jsonl" for i in (0, 1)]
    halves[0].write_bytes(b"\n".join(lines[:11]) + b"\n")
    halves[1].write_bytes(b"\n".join(lines[11:]))
    config = ground.config({"data": {"train": [str(path) for path in halves]}})
    out = ground.leg(stack, config, config.parent / f"split-{stack}")
    a, b = read_trace(plain), read_trace(out)
    assert a.tokens.collect().equals(b.tokens.collect())
    assert rows(a).equals(rows(b))
    assert a.tensors.collect().equals(b.tensors.collect())
    assert_bit_identical(ground, plain, out)


def rows(trace: Trace) -> pl.DataFrame:
    return trace.steps.drop("wall_seconds")


@either_stack
def test_other_micro_batches_stay_within_the_floor(
    stack: str, ground: Range, base_config: Path
) -> None:
    """G05: accumulation 2 x 4 against 1 x 8; the shape that parts is the control's own change."""
    plain, floor = ground.clean(stack, base_config), ground.floor(base_config)
    config = ground.config({"train": {"micro_batch_size": 8, "accumulation_steps": 1}})
    varied = ground.leg(stack, config, config.parent / f"micro-{stack}")
    a, b = read_trace(plain), read_trace(varied)
    assert a.steps["batch_sha256"].equals(b.steps["batch_sha256"])
    verdict = self_verdict(ground, plain, varied, floor)
    assert verdict.verdict == "AGREE", (verdict.headline, verdict.reasons)


def cross(ground: Range, config: Path, floor: Path | None) -> Verdict:
    a, b = (ground.clean(stack, config) for stack in STACKS)
    return ground.judge(a, b, floor=floor)


@pytest.mark.parametrize("seed", SEEDS)
def test_clean_stacks_agree_in_float64(seed: int, ground: Range) -> None:
    """G12."""
    config = ground.config({} if seed == SEEDS[0] else {"seed": seed})
    verdict = cross(ground, config, ground.floor(config))
    assert verdict.verdict == "AGREE", (verdict.headline, verdict.reasons)


@pytest.mark.parametrize("seed", SEEDS)
def test_clean_stacks_do_not_part_in_float32(seed: int, ground: Range) -> None:
    """G12: exact phases and step 0 agree; later steps have no floor to be judged by."""
    config = ground.config({"seed": seed, "train": {"precision": "float32"}})
    verdict = cross(ground, config, None)
    assert verdict.verdict == "INCONCLUSIVE", (verdict.headline, verdict.reasons)
    status: dict[str, Any] = {one.phase: one for one in verdict.phases}
    assert all(status[phase].agreement == 1.0 for phase in EXACT)
    for phase in ("loss", "grad", "grad_norm", "clip", "update", "params"):
        assert status[phase].num_compared > 0, phase
        assert status[phase].agreement == 1.0, phase


SAME_IN_EXACT_ARITHMETIC = {
    "torch-positions-from-7": (
        ("model.py", "torch.arange(num_positions, dtype", "7 + torch.arange(num_positions, dtype"),
    ),
    "torch-loss-by-logsumexp": (
        (
            "loss.py",
            'return F.cross_entropy(logits, targets, reduction="sum")',
            "of_targets = logits.gather(1, targets[:, None]).squeeze(1)\n"
            "    return torch.logsumexp(logits, dim=-1).sum() - of_targets.sum()",
        ),
    ),
    "jax-micro-batches-backwards": (
        ("step.py", "start, arrays)", "start, jax.tree.map(lambda x: x[::-1], arrays))"),
    ),
    "jax-silu-as-a-quotient": (
        ("model.py", "gate * jax.nn.sigmoid(gate)", "gate / (1 + jnp.exp(-gate))"),
    ),
}


@pytest.mark.parametrize("name", SAME_IN_EXACT_ARITHMETIC)
def test_another_order_of_the_same_arithmetic_agrees(
    name: str, ground: Range, base_config: Path, tmp_path: Path
) -> None:
    """G06, and other code for the same formula: cross, within the floor."""
    stack = name.partition("-")[0]
    patches = [Patch(file=f, find=a, replace=b) for f, a, b in SAME_IN_EXACT_ARITHMETIC[name]]
    root = planted_root(harmless(name, stack, *patches), tmp_path / "root")
    varied = ground.leg(stack, base_config, base_config.parent / name, root=root)
    other = next(one for one in STACKS if one != stack)
    pair = {stack: varied, other: ground.clean(other, base_config)}
    verdict = ground.judge(pair["torch"], pair["jax"], floor=ground.floor(base_config))
    assert verdict.verdict == "AGREE", (verdict.headline, verdict.reasons)
    assert finals(varied) != finals(ground.clean(stack, base_config)), "the patch did nothing"
