"""`config.json`: what is read, what holds when a key is absent, what is refused (S-12)."""

import json
from pathlib import Path
from typing import Any

import pytest

from stacks.torch_stack.architecture import ModelConfig, parse_model_config
from stacks.torch_stack.errors import BadInput

from .conftest import MODEL

PATH = Path("config.json")


def parse(**changes: Any) -> ModelConfig:
    document = {**MODEL, **changes}
    kept = {key: value for key, value in document.items() if value != "absent"}
    return parse_model_config(json.dumps(kept).encode(), PATH)


def test_absent_and_null_mean_the_stated_values() -> None:
    plain = parse()
    assert plain.head_dim == 4
    assert not plain.qkv_bias
    assert plain.rope_base == 1000.0
    names = ("head_dim", "attention_bias", "mlp_bias", "rope_scaling", "use_sliding_window")
    assert parse(**dict.fromkeys(names), attention_dropout=None, rope_parameters=None) == plain
    assert parse(head_dim=6).head_dim == 6
    assert parse(unheard_of=1) == plain


def test_biases_go_by_family() -> None:
    llama, qwen = parse(attention_bias=True), parse(model_type="qwen2")
    assert (llama.qkv_bias, llama.output_bias) == (True, True)
    assert (qwen.qkv_bias, qwen.output_bias) == (True, False)


def test_the_rope_base_has_two_places() -> None:
    inner = {"rope_theta": 5e5, "rope_type": "default"}
    assert parse(rope_theta="absent", rope_parameters=inner).rope_base == 5e5
    assert parse(rope_scaling={"type": "default"}).rope_base == 1000.0
    with pytest.raises(BadInput, match=r"rope_theta = 1000.0, .* 500000.0"):
        parse(rope_parameters=inner)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "mistral"},
        {"hidden_size": "absent"},
        {"hidden_size": 16.0},
        {"intermediate_size": 0},
        {"num_hidden_layers": True},
        {"num_key_value_heads": 3},
        {"vocab_size": None},
        {"rms_norm_eps": 0},
        {"rms_norm_eps": 10**400},
        {"vocab_size": 10**30},
        {"rms_norm_eps": "1e-5"},
        {"tie_word_embeddings": None},
        {"hidden_act": "gelu"},
        {"hidden_act": "absent"},
        {"rope_theta": "absent"},
        {"rope_scaling": {"rope_type": "linear", "factor": 2}},
        {"rope_parameters": {"rope_type": "yarn"}},
        {"mlp_bias": True},
        {"use_sliding_window": True},
        {"attention_dropout": 0.1},
        {"head_dim": 5},
        {"hidden_size": 18},
    ],
)
def test_what_is_not_covered_is_refused_by_its_key(changes: dict[str, Any]) -> None:
    key = "head width" if changes == {"head_dim": 5} else next(iter(changes))
    with pytest.raises(BadInput, match=f"^S-12: .*{key}"):
        parse(**changes)


@pytest.mark.parametrize("source", [b"{", b"[]", b"\xff"])
def test_no_object_is_bad_input(source: bytes) -> None:
    with pytest.raises(BadInput, match="config.json is not"):
        parse_model_config(source, PATH)
