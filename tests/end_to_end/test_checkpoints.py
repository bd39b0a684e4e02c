"""The final checkpoint of each stack is loaded by the other stack and by `transformers` (S-13)."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from faults.range import Range

pytestmark = pytest.mark.xdist_group("checkpoints")

STEPS = {"train": {"num_steps": 3}, "schedule": {"warmup_steps": 1}, "eval": {"every_steps": 3}}
OTHER = {"torch": "jax", "jax": "torch"}


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Range:
    return Range(tmp_path_factory.mktemp("checkpoints"))


def final_hash(trace: Path) -> str:
    return str(json.loads((trace / "done.json").read_text("utf-8"))["final"]["params_sha256"])


@pytest.mark.parametrize("stack", ["torch", "jax"])
def test_the_other_stack_loads_the_final_checkpoint_exactly(ground: Range, stack: str) -> None:
    written = ground.clean(stack, ground.config(STEPS))
    # Rate 0 and no decay leave the loaded weights alone: the final hash is that of what was read.
    still = {
        "model": {"checkpoint": str(written / "checkpoint")},
        "train": {"num_steps": 1},
        "schedule": {"warmup_steps": 0},
        "optimizer": {"learning_rate": 0.0, "weight_decay": 0.0},
        "eval": {"every_steps": 0},
    }
    reader = ground.leg(OTHER[stack], ground.config(still), ground.folder / f"read-{stack}")
    assert final_hash(reader) == final_hash(written)


@pytest.mark.parametrize("stack", ["torch", "jax"])
def test_transformers_loads_the_final_checkpoint(ground: Range, stack: str) -> None:
    import pyarrow.parquet as pq
    import torch
    from transformers import AutoTokenizer, LlamaForCausalLM

    trace = ground.clean(stack, ground.config(STEPS))
    model = LlamaForCausalLM.from_pretrained(trace / "checkpoint", dtype=torch.float64)
    tokenizer = AutoTokenizer.from_pretrained(trace / "checkpoint")
    assert tokenizer.chat_template == (trace / "checkpoint" / "chat_template.jinja").read_text(
        "utf-8"
    )
    tables = [pq.read_table(path) for path in sorted((trace / "tokens").glob("*.parquet"))]
    rows = [row for table in tables for row in table.to_pylist() if row["split"] == "eval"]
    total, num_targets = 0.0, 0
    for row in rows:
        ids, mask = torch.tensor(row["ids"]), torch.tensor(row["mask"], dtype=torch.bool)
        with torch.no_grad():
            scores = model(ids[None]).logits[0].double().log_softmax(-1)
        picked = scores[:-1].gather(1, ids[1:, None])[:, 0][mask[1:]]
        total -= float(picked.sum())
        num_targets += len(picked)
    last = json.loads((trace / "steps.jsonl").read_text("utf-8").splitlines()[-1])
    assert last["eval_targets"] == num_targets
    # transformers' own Llama computes norms and rotations in float32, hence 1e-6 and not 1e-12.
    assert math.isclose(last["eval_loss"], total / num_targets, rel_tol=1e-6)
