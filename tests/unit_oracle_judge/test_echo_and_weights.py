"""Facts and initial weights: each differing fact alone, tensors by hash, and what they explain."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Judge, pair
from .synthetic import PARAMETERS, Documents

FACTS: list[tuple[str, Any]] = [
    ("pad_id", 2),
    ("rows_per_step", 8),
    ("num_parameters", 9),
    ("files.template", "e" * 64),
    ("files.train", ["d" * 64, "e" * 64]),
    ("files.weights.model.safetensors", "e" * 64),
    ("model.rope_base", 100000.0),
    ("model.rms_norm_eps", 1e-5),
    ("optimizer.beta2", 0.99),
    ("optimizer.weight_decay", 1e-4),
    ("dtypes.loss", "float32"),
]


def set_fact(made: Documents, name: str, value: Any) -> None:
    table = made["header"]["facts"]
    if name.startswith("files.weights."):
        table["files"]["weights"][name.removeprefix("files.weights.")] = value
        return
    *path, key = name.split(".")
    for part in path:
        table = table[part]
    table[key] = value


@pytest.mark.parametrize(("name", "value"), FACTS)
def test_a_differing_fact_is_a_divergence_of_echo(judged: Judge, name: str, value: Any) -> None:
    a, b = pair()
    set_fact(b, name, value)
    b["checkpoint"] = {}  # the copies in it are held against these facts
    verdict = judged(a, b)
    assert [(d.phase, d.field, d.clause) for d in verdict.divergences] == [
        ("echo", f"header.facts.{name}", "S-25")
    ]


def test_two_differing_facts_are_two_divergences(judged: Judge) -> None:
    a, b = pair()
    set_fact(b, "optimizer.beta2", 0.99)
    set_fact(b, "model.rms_norm_eps", 1e-5)
    fields = [d.field for d in judged(a, b).divergences]
    assert fields == ["header.facts.model.rms_norm_eps", "header.facts.optimizer.beta2"]


def test_decay_of_everything_is_shown_by_counts_and_names(judged: Judge) -> None:
    a, b = pair()
    for parameter in b["header"]["facts"]["parameters"].values():
        parameter["decay"] = True
    first = judged(a, b).first
    assert first is not None
    assert (first.phase, first.field) == ("echo", "header.facts.parameters.decay")
    assert first.a == "4 of 6 tensors"
    assert first.b == (
        "6 of 6 tensors, alone with model.layers.0.self_attn.k_proj.bias, model.norm.weight"
    )


def test_an_untied_head_is_one_divergence_of_names(judged: Judge) -> None:
    a, b = pair()
    b["header"]["facts"]["parameters"]["lm_head.weight"] = {
        "shape": [16, 4],
        "trainable": True,
        "decay": True,
    }
    first = judged(a, b).first
    assert first is not None
    assert first.field == "header.facts.parameters.names"
    assert (first.a, first.b) == ("6 tensors", "7 tensors, alone with lm_head.weight")


def test_control_tokens_are_shown_with_their_ids(judged: Judge) -> None:
    a, b = pair()
    b["header"]["facts"]["special_ids"]["<|im_end|>"] = 3
    first = judged(a, b).first
    assert first is not None
    assert "<|im_end|> 2" in first.a
    assert "<|im_end|> 3" in first.b


def test_decay_in_echo_explains_updates_and_not_the_loss_before_them(judged: Judge) -> None:
    a, b = pair()
    b["header"]["facts"]["parameters"]["model.norm.weight"]["decay"] = True
    for row in b["tensors"]:
        if row["kind"] == "update":
            row["norm"] *= 2
    b["steps"][0]["loss"] *= 1.1
    verdict = judged(a, b)
    assert [(d.phase, d.step) for d in verdict.divergences] == [("echo", None), ("loss", 0)]


def test_decay_in_echo_alone_makes_later_losses_consequences(judged: Judge) -> None:
    a, b = pair()
    b["header"]["facts"]["parameters"]["model.norm.weight"]["decay"] = True
    for step in b["steps"][1:]:
        step["loss"] *= 1.1
    verdict = judged(a, b)
    assert [d.phase for d in verdict.divergences] == ["echo"]
    assert [(c.phase, c.because, c.first_step) for c in verdict.consequences] == [
        ("loss", "echo", 1)
    ]


def init_rows(made: Documents) -> dict[str, Any]:
    return {row["name"]: row for row in made["tensors"] if row["kind"] == "init"}


def test_one_other_tensor_is_found_by_name(judged: Judge) -> None:
    a, b = pair()
    row = init_rows(b)["model.layers.2.mlp.up_proj.weight"]
    row["sha256"], row["norm"], row["max_abs"] = "e" * 64, 99.0, 9.0
    for step in b["steps"]:
        step["loss"] *= 1.1
    verdict = judged(a, b)
    first = verdict.first
    assert first is not None
    assert (first.phase, first.tensor, first.step) == (
        "weights",
        "model.layers.2.mlp.up_proj.weight",
        0,
    )
    assert first.hint == "all others are equal"
    assert [(c.phase, c.because, c.first_step) for c in verdict.consequences] == [
        ("loss", "weights", 0)
    ]


def test_a_transposed_tensor_keeps_norm_and_maximum(judged: Judge) -> None:
    a, b = pair()
    init_rows(b)["model.layers.0.self_attn.q_proj.weight"]["sha256"] = "e" * 64
    first = judged(a, b).first
    assert first is not None
    assert first.hint == "the same entries in another order: transposed, or rows permuted"


def test_swapped_tensors_are_named(judged: Judge) -> None:
    a, b = pair()
    rows = init_rows(b)
    up, down = "model.layers.2.mlp.up_proj.weight", "model.layers.10.mlp.up_proj.weight"
    rows[up]["sha256"], rows[down]["sha256"] = rows[down]["sha256"], rows[up]["sha256"]
    verdict = judged(a, b)
    assert len(verdict.divergences) == 1
    assert verdict.divergences[0].tensor == up, "layer 2 comes before layer 10"
    assert verdict.divergences[0].num_like_it == 1
    assert verdict.divergences[0].hint == f"jax holds {down} of torch under this name"


def test_all_weights_drawn_again_are_one_divergence(judged: Judge) -> None:
    a, b = pair()
    for place, row in enumerate(init_rows(b).values()):
        row["sha256"], row["norm"], row["max_abs"] = f"{place:064x}", 7.0, 8.0
    verdict = judged(a, b)
    assert len(verdict.divergences) == 1
    assert verdict.divergences[0].tensor == "model.embed_tokens.weight"
    assert verdict.divergences[0].num_like_it == len(PARAMETERS) - 1


def test_a_tensor_of_one_leg_only_is_a_divergence(judged: Judge) -> None:
    a, b = pair()
    b["tensors"] = [
        row for row in b["tensors"] if (row["kind"], row["name"]) != ("init", "model.norm.weight")
    ]
    first = judged(a, b).first
    assert first is not None
    assert (first.phase, first.tensor, first.b) == ("weights", "model.norm.weight", "absent")
    assert first.hint == "jax has no such tensor"
