"""Judge of the format: the `safetensors` library; of rounding: the nearest of two neighbours."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from stacks.jax_stack.architecture import parse_architecture
from stacks.jax_stack.errors import BadInput
from stacks.jax_stack.safetensors import read_tensors, write_tensors
from stacks.jax_stack.weights import (
    match_tensors,
    read_checkpoint,
    write_checkpoint,
)

from .conftest import checkpoint_shapes, model_table, write_model

F32 = np.dtype("float32")


def test_what_is_written_is_read_by_the_library_and_the_other_way_round(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors: dict[str, np.ndarray] = {
        "a": rng.normal(size=(3, 2)),
        "b": rng.normal(size=5).astype(F32),
        "c": np.zeros((0, 2)),
    }
    write_tensors(tmp_path / "own", tensors, {"step": "7"})
    save_file(tensors, str(tmp_path / "theirs"))
    theirs, own = load_file(str(tmp_path / "own")), read_tensors(tmp_path / "theirs")
    for name, values in tensors.items():
        np.testing.assert_array_equal(theirs[name], values)
        np.testing.assert_array_equal(own.tensors[name], values)
        assert own.tensors[name].dtype == values.dtype
    assert read_tensors(tmp_path / "own").metadata == {"step": "7"}
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o600


def raw_file(path: Path, dtype: str, shape: list[int], data: bytes, end: int | None = None) -> Path:
    header = {"w": {"dtype": dtype, "shape": shape, "data_offsets": [0, end or len(data)]}}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_half_precisions_widen_exactly(tmp_path: Path) -> None:
    bf16 = raw_file(tmp_path / "b", "BF16", [3], bytes.fromhex("803f c0bf 0100".replace(" ", "")))
    assert read_tensors(bf16).tensors["w"].tolist() == [1.0, -1.5, 2.0**-133]
    f16 = raw_file(tmp_path / "h", "F16", [2], np.array([0.1, -2.0], "<f2").tobytes())
    assert read_tensors(f16).tensors["w"].tolist() == np.array([0.1, -2.0], "<f2").tolist()


@pytest.mark.parametrize(
    ("dtype", "shape", "num_bytes", "end", "words"),
    [
        ("I64", [1], 8, None, "has the dtype I64"),
        ("F32", [3], 8, None, "takes 12 bytes, its entry says 8"),
        ("F32", [2], 4, 8, "it is truncated"),
    ],
)
def test_a_malformed_file_is_refused(
    tmp_path: Path, dtype: str, shape: list[int], num_bytes: int, end: int | None, words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        read_tensors(raw_file(tmp_path / "x", dtype, shape, bytes(num_bytes), end))


@pytest.mark.parametrize("length", [0, 5, 40, -1])
def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path, length: int) -> None:
    path = tmp_path / "x"
    write_tensors(path, {"w": np.ones((4, 4))}, {})
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(BadInput):
        read_tensors(path)


def test_values_are_rounded_to_nearest_even(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    checkpoint = read_checkpoint(folder)
    shapes = checkpoint_shapes()
    ties = 1 + np.array([1, 3]) * 2.0**-24  # halfway between neighbours of float32
    checkpoint.tensors["model.norm.weight"] = np.resize(ties, 8)
    found = match_tensors(checkpoint, shapes, F32)["model.norm.weight"]
    assert found[:2].tolist() == [1.0, 1 + 2.0**-22]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("missing", "lacks model.norm.weight of shape"),
        ("unknown", "holds model.extra"),
        ("shape", r"model.norm.weight has the shape \[4\], the model needs \[8\]"),
        ("head", "tied"),
    ],
)
def test_tensors_that_do_not_match_the_model_are_named(
    tmp_path: Path, change: str, words: str
) -> None:
    checkpoint = read_checkpoint(write_model(tmp_path))
    if change == "missing":
        del checkpoint.tensors["model.norm.weight"]
    elif change == "unknown":
        checkpoint.tensors["model.extra"] = np.zeros(1)
    elif change == "shape":
        checkpoint.tensors["model.norm.weight"] = np.zeros(4)
    else:
        checkpoint.tensors["lm_head.weight"] = np.zeros((270, 8))
    with pytest.raises(BadInput, match=words):
        match_tensors(checkpoint, checkpoint_shapes(), F32)


def test_an_equal_head_of_a_tied_model_and_inverse_frequencies_are_ignored(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write_model(tmp_path))
    checkpoint.tensors["lm_head.weight"] = checkpoint.tensors["model.embed_tokens.weight"].astype(
        "f8"
    )
    checkpoint.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(2)
    assert set(match_tensors(checkpoint, checkpoint_shapes(), F32)) == set(checkpoint_shapes())


def test_shards_are_read_and_hold_what_the_index_says(tmp_path: Path) -> None:
    whole = read_checkpoint(write_model(tmp_path)).tensors
    (tmp_path / "model.safetensors").unlink()
    names = sorted(whole)
    places = {name: f"part-{i % 2}.safetensors" for i, name in enumerate(names)}
    for shard in set(places.values()):
        write_tensors(tmp_path / shard, {n: whole[n] for n in names if places[n] == shard}, {})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    checkpoint = read_checkpoint(tmp_path)
    assert set(checkpoint.tensors) == set(names)
    assert set(checkpoint.weights_sha256) == {"part-0.safetensors", "part-1.safetensors"}
    index.write_text(json.dumps({"weight_map": places | {names[0]: "part-1.safetensors"}}))
    with pytest.raises(BadInput, match=r"which the index places in part-1"):
        read_checkpoint(tmp_path)


def parse(**changes: Any) -> Any:
    return parse_architecture(model_table(**changes), Path("config.json"))


def test_architectures_and_their_biases() -> None:
    assert parse().head_dim == 4
    assert (parse().qkv_bias, parse().output_bias) == (False, False)
    assert (parse(attention_bias=True).qkv_bias, parse(attention_bias=True).output_bias) == (
        True,
        True,
    )
    qwen = parse(model_type="qwen2")
    assert (qwen.qkv_bias, qwen.output_bias) == (True, False)
    assert (
        parse(rope_theta=None, rope_parameters={"rope_theta": 5, "rope_type": "default"}).rope_base
        == 5.0
    )
    assert parse(head_dim=6).head_dim == 6


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"model_type": "mistral"}, "model_type"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"attention_dropout": 0.1}, "attention_dropout"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters.rope_type"),
        ({"rope_theta": None}, "rope_theta"),
        ({"num_key_value_heads": 3}, "num_attention_heads"),
        ({"head_dim": 3}, "head_dim"),
        ({"hidden_size": 9}, "hidden_size"),
        ({"tie_word_embeddings": None}, "tie_word_embeddings"),
        ({"vocab_size": "270"}, "vocab_size"),
    ],
)
def test_what_the_clause_does_not_allow_is_refused_by_key(
    changes: dict[str, Any], key: str
) -> None:
    with pytest.raises(BadInput, match=f"`{key}`"):
        parse(**changes)


def test_a_written_checkpoint_is_read_again_and_states_its_precision(tmp_path: Path) -> None:
    source = read_checkpoint(write_model(tmp_path / "a"))
    values = match_tensors(source, checkpoint_shapes(), np.dtype("float64"))
    write_checkpoint(tmp_path / "b", values, source.config_text, "float64", {"extra": b"x"})
    again = read_checkpoint(tmp_path / "b")
    assert all((again.tensors[name] == values[name]).all() for name in values)
    table = json.loads(again.config_text)
    assert (table["dtype"], table["torch_dtype"], table["hidden_size"]) == ("float64", "float64", 8)
    assert (tmp_path / "b/extra").read_bytes() == b"x"
