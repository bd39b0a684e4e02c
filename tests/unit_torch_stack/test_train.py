"""The whole step: its precision, its accumulation, its evaluation (S-10 to S-20)."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from stacks.torch_stack import model as model_module
from stacks.torch_stack.config import load_config
from stacks.torch_stack.inputs import load_inputs, tokenize
from stacks.torch_stack.precision import PRECISIONS
from stacks.torch_stack.runtime import prepare_torch
from stacks.torch_stack.train import Trainer
from stacks.torch_stack.weights import load_checkpoint

from .conftest import Run


@pytest.fixture(autouse=True)
def default_dtype() -> Iterator[None]:
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


def build(path: Path) -> Trainer:
    config = load_config(path, path.parent)
    device = prepare_torch(config)
    checkpoint = load_checkpoint(
        config.resolve(config.model.checkpoint), PRECISIONS[config.train.precision].held
    )
    inputs = load_inputs(config)
    examples = tokenize(inputs, None, lambda: None)
    return Trainer(config, checkpoint, examples, inputs.pad_id, device)


class FloatingDtypes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the dtype of every floating tensor that an operation makes or is given."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: dict[torch.dtype, str] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # fmt: skip
        out = func(*args, **(kwargs or {}))
        torch.utils._pytree.tree_map_only(torch.Tensor, self._note(str(func)), (args, kwargs, out))
        return out

    def _note(self, name: str) -> Any:
        def note(one: torch.Tensor) -> None:
            if one.is_floating_point():
                self.seen.setdefault(one.dtype, name)

        return note


def dtypes_of_steps(trainer: Trainer) -> dict[torch.dtype, str]:
    mode = FloatingDtypes()
    with mode:
        for t in range(3):  # the third evaluates
            trainer.step(t)
    return mode.seen


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("packing", [False, True])
def test_every_floating_tensor_of_a_float64_step_is_float64(
    small_run: Run, attention: str, packing: bool
) -> None:
    seen = dtypes_of_steps(build(small_run(model__attention=attention, data__packing=packing)))
    assert seen.keys() == {torch.float64}, seen


def test_one_planted_cast_is_seen(small_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rotate = model_module.rotate

    def rounded(x: torch.Tensor, context: model_module.Context) -> torch.Tensor:
        return rotate(x.float().to(x.dtype), context)

    monkeypatch.setattr(model_module, "rotate", rounded)
    assert dtypes_of_steps(build(small_run())).keys() == {torch.float64, torch.float32}


def test_nothing_of_a_float32_step_is_narrower(small_run: Run) -> None:
    seen = dtypes_of_steps(build(small_run(train__precision="float32", model__attention="fused")))
    assert seen.keys() <= {torch.float32, torch.float64}
    trainer = build(small_run(train__precision="float32"))
    assert set(trainer.probe_dtypes().values()) == {"float32"}


def test_facts_of_dtypes_are_read_from_tensors(small_run: Run) -> None:
    trainer = build(small_run())
    assert set(trainer.probe_dtypes().values()) == {"float64"}
    trainer.model.float()
    trainer.model.cos, trainer.model.sin = trainer.model.cos.float(), trainer.model.sin.float()
    facts = trainer.probe_dtypes()  # the tensors are asked, not the config
    assert facts.pop("moment") == "float64"
    assert set(facts.values()) == {"float32"}


def run_steps(trainer: Trainer) -> list[dict[str, Any]]:
    return [vars(trainer.step(t)) for t in range(trainer.num_steps)]


def test_accumulation_changes_nothing_but_rounding(small_run: Run) -> None:
    whole = run_steps(build(small_run(train__micro_batch_size=4, train__accumulation_steps=1)))
    parts = run_steps(build(small_run(train__micro_batch_size=1, train__accumulation_steps=4)))
    for one, other in zip(whole, parts, strict=True):
        assert one["examples"] == other["examples"]
        for key in ("loss", "grad_norm", "clip_factor", "param_norm"):
            assert one[key] == pytest.approx(other[key], rel=1e-11)


def test_attention_implementations_agree_to_rounding(small_run: Run) -> None:
    eager, fused = (run_steps(build(small_run(model__attention=x))) for x in ("eager", "fused"))
    for one, other in zip(eager, fused, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-11)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-10)


def test_loss_falls_and_a_step_is_repeatable(small_run: Run) -> None:
    path = small_run(train__num_steps=7)
    first, second = run_steps(build(path)), run_steps(build(path))
    assert first == second
    assert first[-1]["loss"] < 0.9 * first[0]["loss"]
    assert [one["epoch"] for one in first] == [0, 0, 0, 1, 1, 1, 2]  # 11 rows, 4 a step
    assert [len(one["examples"]) for one in first] == [4, 4, 3, 4, 4, 3, 4]


def test_evaluation_is_over_all_targets(small_run: Run) -> None:
    trainer = build(small_run())
    steps = run_steps(trainer)
    evaluated = [one["step"] for one in steps if one["eval_loss"] is not None]
    assert evaluated == [2, 5, 6]
    model = trainer.model
    total, count = 0.0, 0
    for micro in trainer._evaluation:
        with torch.no_grad():
            logits = model(micro.input_ids, micro.segments, micro.positions).flatten(0, 1).numpy()
        for at, target in zip(micro.predictors.tolist(), micro.targets.tolist(), strict=True):
            row = logits[at]
            total += np.log(np.exp(row - row.max()).sum()) + row.max() - row[target]
            count += 1
    assert steps[-1]["eval_targets"] == count
    assert steps[-1]["eval_loss"] == pytest.approx(total / count, rel=1e-12)


def test_a_step_without_targets_still_updates(small_run: Run) -> None:
    path = small_run()
    (path.parent / "chat.jinja").write_text(
        "{{ messages[0].content }}{% generation %}{% endgeneration %}"
    )
    trainer = build(path)
    before = {name: one.detach().clone() for name, one in trainer.parameters.items()}
    step = trainer.step(0)
    assert (step.loss, step.num_targets, step.grad_norm, step.clip_factor) == (0.0, 0, 0.0, 1.0)
    gate = "model.layers.0.mlp.gate_proj.weight"
    decayed = before[gate] * (1 - step.lr * 0.1)
    torch.testing.assert_close(trainer.parameters[gate].detach(), decayed, rtol=1e-15, atol=0)
    assert torch.equal(trainer.parameters["model.norm.weight"], before["model.norm.weight"])


def test_frozen_tensors_stay_and_are_in_no_norm(small_run: Run) -> None:
    trainer = build(small_run(optimizer__frozen=["model.embed_tokens", "model.layers.0."]))
    embedding = trainer.parameters["model.embed_tokens.weight"].detach().clone()
    trainer.step(0)
    assert torch.equal(trainer.parameters["model.embed_tokens.weight"], embedding)
    assert all(name.startswith(("model.layers.1.", "model.norm")) for name in trainer.trainable)
    everything = build(small_run(optimizer__frozen=["model."]))
    step = everything.step(0)
    assert step.grad_norm == 0.0
    assert step.loss > 0


def test_gradients_do_not_leak_into_the_next_step(small_run: Run) -> None:
    path = small_run(optimizer__learning_rate=0, data__train=["train.jsonl"])
    trainer = build(path)
    first = [trainer.step(t) for t in range(6)]
    # the same parameters see the same rows again in another epoch's order: loss by target sums
    sums = [sum(one.loss * one.num_targets for one in first[k : k + 3]) for k in (0, 3)]
    assert sums[0] == pytest.approx(sums[1], rel=1e-12)
    assert max(one.grad_norm for one in first) < 2 * min(one.grad_norm for one in first)


@pytest.mark.slow  # a minute of C++ compilation
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_the_compiled_step_agrees_to_rounding(small_run: Run) -> None:
    changes = {"train__num_steps": 3, "eval__every_steps": 0, "schedule__warmup_steps": 0}
    eager = run_steps(build(small_run(**changes)))
    compiled = run_steps(build(small_run(**changes, runtime__compile=True)))
    for one, other in zip(eager, compiled, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-11)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-10)
