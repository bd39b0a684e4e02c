"""Everything that a config names: each bad file is refused before a leg starts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oracle.bundle import check_unchanged, make_bundle, read_bundle, read_by_leg
from oracle.config import load_config
from oracle.conversations import ExampleIds, check_file
from oracle.errors import DataError
from oracle.inputs import Inputs, check_inputs
from oracle.template import check_template
from tests.unit_oracle_run.tiny import (
    SHAPES,
    TinyRun,
    conversation,
    lines,
    safetensors,
    tokenizer,
)

SECRET = "Mrs Doe has measles"


def checked(tiny: TinyRun) -> Inputs:
    return check_inputs(load_config(tiny.config))


def refusal(tiny: TinyRun) -> str:
    with pytest.raises(DataError) as caught:
        checked(tiny)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert SECRET not in sentence
    return sentence


def message(role: Any = "user", content: Any = SECRET) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_sizes_are_counted_from_the_files(tiny: TinyRun) -> None:
    inputs = checked(tiny)
    assert [inputs.num_examples(split) for split in ("train", "eval", "edge")] == [5, 1, 1]
    assert inputs.rows_per_step == 2
    assert inputs.steps_per_epoch == 3
    assert inputs.num_generation_blocks == 1
    num_parameters = 260 * 8 + 8 + 64 + 32 + 32 + 64 + 8 + 96 * 3 + 8
    assert inputs.checkpoint.num_parameters == num_parameters
    assert inputs.num_trainable_parameters == num_parameters


def test_frozen_parameters_are_not_trainable(tiny: TinyRun) -> None:
    tiny.set("optimizer.frozen", ["model.embed"])
    inputs = checked(tiny)
    assert inputs.checkpoint.num_parameters - inputs.num_trainable_parameters == 260 * 8


def test_a_frozen_prefix_that_begins_no_name_is_refused_with_the_nearest(tiny: TinyRun) -> None:
    tiny.set("optimizer.frozen", ["model.embed", "model.embedtokens.weight"])
    assert (
        "optimizer.frozen holds 'model.embedtokens.weight', and no parameter of "
        f"{tiny.folder}/checkpoint begins with it (S-18); a name there is model.embed_tokens.weight"
    ) in refusal(tiny)


@pytest.mark.parametrize("name", ["\nchat.jinja", "chat\u2028.jinja", "chat\x00.jinja"])
def test_a_path_with_a_control_character_is_told_on_one_line(tiny: TinyRun, name: str) -> None:
    tiny.set("data.template", name)
    assert len(refusal(tiny).splitlines()) == 1


def test_without_weights_the_config_of_the_model_is_enough(tiny: TinyRun) -> None:
    (tiny.folder / "checkpoint" / "model.safetensors").unlink()
    inputs = check_inputs(load_config(tiny.config), weights=False)
    assert [path.name for path in inputs.checkpoint.files] == ["config.json"]
    assert "has neither model.safetensors nor" in refusal(tiny)
    tiny.model["vocab_size"] = 257
    tiny.write()
    with pytest.raises(DataError, match="produces ids up to 257"):
        check_inputs(load_config(tiny.config), weights=False)


def test_with_packing_steps_per_epoch_is_not_known(tiny: TinyRun) -> None:
    tiny.set("data.packing", True)
    assert checked(tiny).steps_per_epoch is None


# -- conversations (S-02)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{'id': 1}", "is not JSON (Expecting property name"),
        (f'{{"id": "a", "messages": [] {SECRET}', "is not JSON"),
        ("", "the line is empty; remove it"),
        ("   ", "the line is empty; remove it"),
        ("[1]", "the line is a list and should be an object"),
        ('{"id": "a"}', "the object lacks 'messages'"),
        (json.dumps({"messages": [message()]}), "the object lacks 'id'"),
        (
            json.dumps({"id": "a", "messages": [message()], SECRET: 1}),
            "the object has 1 keys besides id, messages",
        ),
        (json.dumps({"id": 7, "messages": [message()]}), "id is an integer and should be text"),
        (json.dumps({"id": "", "messages": [message()]}), "id is empty text"),
        (json.dumps({"id": "a\tb", "messages": [message()]}), "id holds a control character"),
        (
            json.dumps({"id": "a" * 257, "messages": [message()]}),
            "id has 257 characters and should have at most 256",
        ),
        (json.dumps({"id": "a", "messages": []}), "messages is empty list"),
        (json.dumps({"id": "a", "messages": SECRET}), "messages is text"),
        (json.dumps({"id": "a", "messages": [SECRET]}), "messages[0] is text"),
        (json.dumps({"id": "a", "messages": [{"role": "user"}]}), "messages[0] lacks 'content'"),
        (
            json.dumps({"id": "a", "messages": [message(SECRET)]}),
            "messages[0].role is no known role; known are system, user, assistant",
        ),
        (
            json.dumps({"id": "a", "messages": [message(), message("system")]}),
            "messages[1] is a system message; one is allowed in first place only",
        ),
        (json.dumps({"id": "a", "messages": [message("user", "")]}), "content is empty"),
        (json.dumps({"id": "a", "messages": [message("user", 3)]}), "content is an integer"),
        (
            json.dumps({"id": "a", "messages": [message("user", "\ud800")]}),
            "holds an unpaired surrogate",
        ),
        (
            json.dumps({"id": "a", "messages": [message("user", "\ufdd0")]}, ensure_ascii=False),
            "holds an unpaired surrogate, U+FDD0 or U+FDD1",
        ),
        (
            '{"id": "a", "id": "b", "messages": [{"role": "user", "content": "x"}]}',
            "an object repeats a key",
        ),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_a_bad_line_is_named_without_its_content(tiny: TinyRun, line: str, expected: str) -> None:
    path = tiny.put("train.jsonl", lines(conversation("t0")) + line + "\n")
    sentence = refusal(tiny)
    assert sentence.startswith(f"{path}:2")
    assert expected in sentence


def test_a_repeated_id_is_told_with_both_places(tiny: TinyRun) -> None:
    tiny.put("edge.jsonl", lines(conversation("x0"), conversation("t3")))
    sentence = refusal(tiny)
    assert f"{tiny.folder / 'edge.jsonl'}:2" in sentence
    assert f"the id 't3' is already that of {tiny.folder / 'train.jsonl'}:4" in sentence


def test_one_file_for_two_splits_repeats_every_id(tiny: TinyRun) -> None:
    tiny.set("data.eval", ["train.jsonl"])
    assert "train.jsonl:1: the id 't0' is already that of" in refusal(tiny)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xef\xbb\xbf{}\n", ":1 begins with a byte-order mark"),
        (b'{"id": "\xff"}\n', ":1: the line is not UTF-8"),
        (b"", "is empty (0 bytes)"),
    ],
)
def test_bad_bytes_are_refused(tiny: TinyRun, content: bytes, expected: str) -> None:
    (tiny.folder / "eval.jsonl").write_bytes(content)
    assert expected in refusal(tiny)


def test_line_separators_of_unicode_do_not_end_a_line(tiny: TinyRun) -> None:
    text = json.dumps(conversation("e0", "one\u2028two\u0085three"), ensure_ascii=False)
    tiny.put("eval.jsonl", text)  # and no LF at the end
    assert checked(tiny).num_examples("eval") == 1


def test_an_empty_system_prompt_is_allowed(tiny: TinyRun) -> None:
    example = {"id": "e0", "messages": [message("system", ""), message()]}
    tiny.put("eval.jsonl", lines(example))
    assert checked(tiny).num_examples("eval") == 1


def test_a_missing_data_file_is_named_with_its_split(tiny: TinyRun) -> None:
    tiny.set("data.eval", ["nowhere/eval.jsonl"])
    assert f"eval data {tiny.folder}/nowhere/eval.jsonl does not exist" in refusal(tiny)


def test_a_folder_is_no_data_file(tiny: TinyRun) -> None:
    tiny.set("data.eval", ["."])
    assert "is a directory; a file is needed" in refusal(tiny)


def test_an_unreadable_file_is_named(tiny: TinyRun) -> None:
    tiny.set("data.eval", ["/proc/self/mem"])  # not even root reads its first byte
    assert "eval data /proc/self/mem cannot be read (Input/output error)" in refusal(tiny)


def test_200_000_lines_are_checked_in_seconds(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text(lines(*(conversation(f"n{i}", "q" * 200) for i in range(20_000))))
    started = time.perf_counter()
    assert check_file(path, "train", ExampleIds()).num_examples == 20_000
    assert time.perf_counter() - started < 1.0  # measured: 0.15


# -- template (S-03, S-04)

BLOCK = "{% generation %}x{% endgeneration %}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% if %}", ":1 does not parse: Expected an expression"),
        ("a\n{{ x ", ":2 does not parse"),
        ("{% for m in messages %}{{ m['content'] }}{% endfor %}", "has no generation tags"),
        ("{% set x %}" + BLOCK + "{% endset %}", "inside a {% set %} capture"),
        ("{% macro f() %}" + BLOCK + "{% endmacro %}", "inside a macro"),
        ("{% filter upper %}" + BLOCK + "{% endfilter %}", "inside a filter block"),
        ("{% macro f() %}{% endmacro %}{% call f() %}" + BLOCK + "{% endcall %}", "a call block"),
        ("{% generation %}" + BLOCK + "{% endgeneration %}", "inside another generation block"),
        ("{% generation %}x", "does not parse"),
        ("\n{{ strftime_now('%d') }}" + BLOCK, ":2 names strftime_now"),
    ],
)
def test_a_bad_template_is_refused_with_its_line(tiny: TinyRun, source: str, expected: str) -> None:
    tiny.put("chat.jinja", source)
    assert expected in refusal(tiny)


def test_a_carriage_return_in_a_template_is_refused_with_its_line(tiny: TinyRun) -> None:
    (tiny.folder / "chat.jinja").write_bytes(b"a\n" + BLOCK.encode() + b"\r\n")
    assert "chat.jinja:2 holds a carriage return (CR)" in refusal(tiny)


def test_a_template_that_is_nested_too_deep_is_refused(tiny: TinyRun) -> None:
    tiny.put("chat.jinja", "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}")
    assert "chat.jinja is nested too deep" in refusal(tiny)


@pytest.mark.parametrize("name", ["checkpoint/config.json", "tokenizer.json"])
def test_json_that_is_nested_too_deep_is_refused(tiny: TinyRun, name: str) -> None:
    tiny.put(name, "[" * 100_000)
    assert "is not JSON (nested too deep)" in refusal(tiny)


def test_a_template_without_tags_is_told_how_to_add_them(tiny: TinyRun) -> None:
    tiny.put("chat.jinja", "{{ messages[0]['content'] }}")
    sentence = refusal(tiny)
    assert "{% generation %}{{ message['content'] }}{% endgeneration %}" in sentence
    assert 'mask = "all"' in sentence


def test_with_mask_all_a_template_needs_no_tags(tiny: TinyRun) -> None:
    tiny.put("chat.jinja", "{{ messages[0]['content'] }}")
    tiny.set("data.mask", "all")
    assert checked(tiny).num_generation_blocks == 0


def test_white_space_signs_loop_controls_and_branches_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "t.jinja"
    path.write_text(
        "{% for m in messages %}{%- if m.role == 'user' %}{% continue %}{% endif -%}"
        "{%- generation -%}{{ m.content }}{%- endgeneration -%}{% endfor %}" + BLOCK
    )
    assert check_template(path, mask="assistant") == 2


# -- tokenizer (S-05)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda t: t.update(normalizer={"type": "NFC"}), "normalizer is NFC and should be null"),
        (
            lambda t: t["model"].update(type="WordPiece"),
            "model.type is WordPiece and should be BPE",
        ),
        (lambda t: t["model"].update(dropout=0.1), "model.dropout is"),
        (lambda t: t["model"].update(byte_fallback=True), "model.byte_fallback is True"),
        (lambda t: t["model"].update(merges=["abc"]), "model.merges[0] is no pair"),
        (lambda t: t["model"].update(vocab={}), "model.vocab is a table"),
        (lambda t: t["model"].update(vocab={"a": "0"}), "holds an id that is no integer"),
        (lambda t: t["pre_tokenizer"].update(add_prefix_space=True), "add_prefix_space is True"),
        (lambda t: t.update(pre_tokenizer={"type": "Metaspace"}), "is Metaspace and should be"),
        (lambda t: t.pop("pre_tokenizer"), "pre_tokenizer is null"),
        (lambda t: t["added_tokens"][0].update(lstrip=True), "added_tokens '<pad>' lstrip is True"),
        (lambda t: t["added_tokens"][0].pop("id"), "lacks content or id"),
        (lambda t: t.pop("model"), "it lacks model"),
        (lambda t: t["added_tokens"].pop(), "data.eos_token is '<end>', which is no token of"),
    ],
)
def test_a_tokenizer_outside_the_contract_is_refused_with_its_key(
    tiny: TinyRun, change: Callable[[Any], None], expected: str
) -> None:
    document = tokenizer()
    change(document)
    tiny.put("tokenizer.json", json.dumps(document))
    assert expected in refusal(tiny)


def test_stages_before_byte_level_are_allowed(tiny: TinyRun) -> None:
    document = tokenizer()
    split = {"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Isolated", "invert": False}
    stages = [{"type": "Digits", "individual_digits": True}, split, document["pre_tokenizer"]]
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": stages}
    tiny.put("tokenizer.json", json.dumps(document))
    assert checked(tiny).tokenizer.largest_id == 257
    split["behavior"] = "Removed"
    tiny.put("tokenizer.json", json.dumps(document))
    assert "pretokenizers[1].behavior is Removed and should be Isolated" in refusal(tiny)


def test_ids_beyond_the_model_s_vocabulary_are_refused_with_both(tiny: TinyRun) -> None:
    tiny.model["vocab_size"] = 257
    shapes = SHAPES | {"model.embed_tokens.weight": [257, 8]}
    (tiny.folder / "checkpoint" / "model.safetensors").write_bytes(safetensors(shapes))
    tiny.write()
    sentence = refusal(tiny)
    assert "produces ids up to 257" in sentence
    assert "has vocab_size 257" in sentence


# -- checkpoint (S-12, S-13)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"num_key_value_heads": 3},
            "num_attention_heads 2 is no multiple of num_key_value_heads 3",
        ),
        ({"num_attention_heads": 3, "num_key_value_heads": 3}, "hidden_size 8 is not divisible by"),
        ({"head_dim": 5}, "the head width is 5 and must be even"),
        ({"model_type": "gpt2"}, "model_type is 'gpt2' and should be llama or qwen2"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu' and should be silu"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling is 'linear' and should be default"),
        ({"rope_theta": None}, "rope_theta is None and should be a number above 0"),
        ({"vocab_size": 0}, "vocab_size is 0 and should be an integer >= 1"),
        ({"hidden_size": "8"}, "hidden_size is '8' and should be an integer"),
        ({"hidden_size": 16}, "has the shape [260, 8] and config.json demands [260, 16]"),
        ({"num_hidden_layers": 2}, "lacks 9 tensors, first model.layers.1.input_layernorm.weight"),
        ({"tie_word_embeddings": False}, "lacks 1 tensors, first lm_head.weight"),
        ({"attention_bias": True}, "lacks 4 tensors, first model.layers.0.self_attn.q_proj.bias"),
        ({"model_type": "qwen2"}, "lacks 3 tensors, first model.layers.0.self_attn.q_proj.bias"),
    ],
)
def test_a_model_config_that_does_not_fit_is_refused(
    tiny: TinyRun, changes: dict[str, Any], expected: str
) -> None:
    tiny.model |= changes
    tiny.write()
    assert expected in refusal(tiny)


def test_a_missing_key_of_the_model_config_is_named(tiny: TinyRun) -> None:
    del tiny.model["rms_norm_eps"]
    tiny.write()
    assert "config.json lacks rms_norm_eps" in refusal(tiny)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda content: content[:-9], "it is truncated"),
        (lambda content: content + b"\0", "it holds bytes that belong to no tensor"),
        (lambda content: content[:5], "it is truncated or no safetensors file"),
        (lambda content: content[:200], "its header alone wants"),
        (lambda content: content.replace(b'"F32"', b'"I32"', 1), "is I32 and should be one of F64"),
        (lambda content: content.replace(b"{", b"[", 1), "is not JSON"),
        (lambda content: content.replace(b"norm.weight", b"nurm.weight"), "; the file has"),
    ],
)
def test_a_damaged_weight_file_is_refused(
    tiny: TinyRun, change: Callable[[bytes], bytes], expected: str
) -> None:
    path = tiny.folder / "checkpoint" / "model.safetensors"
    path.write_bytes(change(path.read_bytes()))
    assert expected in refusal(tiny)


def test_a_wrong_shape_is_told_with_both(tiny: TinyRun) -> None:
    shapes = SHAPES | {"model.layers.0.self_attn.k_proj.weight": [8, 8]}
    (tiny.folder / "checkpoint" / "model.safetensors").write_bytes(safetensors(shapes))
    assert "k_proj.weight has the shape [8, 8] and config.json demands [4, 8]" in refusal(tiny)


def shard(tiny: TinyRun, **places: str) -> None:
    """Cut the weights into two shards with an index that places every tensor."""
    folder = tiny.folder / "checkpoint"
    (folder / "model.safetensors").unlink()
    halves = {"a.safetensors": list(SHAPES)[:5], "b.safetensors": list(SHAPES)[5:]}
    for file, names in halves.items():
        (folder / file).write_bytes(safetensors({name: SHAPES[name] for name in names}))
    index = {name: file for file, names in halves.items() for name in names} | places
    text = json.dumps({"weight_map": {name: file for name, file in index.items() if file}})
    (folder / "model.safetensors.index.json").write_text(text)


def test_shards_are_read_by_their_index(tiny: TinyRun) -> None:
    shard(tiny)
    assert {path.name for path in checked(tiny).checkpoint.files} == {
        *("config.json", "a.safetensors", "b.safetensors"),
    }


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("", "b.safetensors holds model.norm.weight, which the index does not place there"),
        ("a.safetensors", "b.safetensors holds model.norm.weight, which the index does not place"),
        ("../x.safetensors", "places model.norm.weight in no file of its folder"),
    ],
)
def test_a_tensor_that_the_index_does_not_place_is_refused(
    tiny: TinyRun, place: str, expected: str
) -> None:
    shard(tiny, **{"model.norm.weight": place})
    assert expected in refusal(tiny)


def test_two_rope_bases_that_differ_are_refused_with_both(tiny: TinyRun) -> None:
    tiny.model["rope_parameters"] = {"rope_theta": 5e5}
    tiny.write()
    expected = "rope_theta is 10000.0 and rope_parameters.rope_theta is 500000.0; they must agree"
    assert expected in refusal(tiny)


def test_an_unknown_tensor_is_named(tiny: TinyRun) -> None:
    path = tiny.folder / "checkpoint" / "model.safetensors"
    path.write_bytes(safetensors(SHAPES | {"model.extra": [1]}))
    assert "holds model.extra, which a model of this config.json does not have" in refusal(tiny)
    path.write_bytes(safetensors(SHAPES | {"model.rotary_emb.inv_freq": [4]}))
    assert "model.rotary_emb.inv_freq" not in checked(tiny).checkpoint.shapes


def test_a_tied_head_must_equal_the_embedding(tiny: TinyRun) -> None:
    path = tiny.folder / "checkpoint" / "model.safetensors"
    content = safetensors(SHAPES | {"lm_head.weight": [260, 8]})
    path.write_bytes(content)
    assert checked(tiny).checkpoint.num_parameters > 0
    path.write_bytes(content[:-1] + b"\x7f")
    assert "lm_head.weight differs from model.embed_tokens.weight" in refusal(tiny)


def test_shards_are_read_through_their_index(tiny: TinyRun) -> None:
    folder = tiny.folder / "checkpoint"
    names = list(SHAPES)
    parts = {"a.safetensors": names[:4], "b.safetensors": names[4:]}
    for file, part in parts.items():
        (folder / file).write_bytes(safetensors({name: SHAPES[name] for name in part}))
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    assert [path.name for path in checked(tiny).checkpoint.files] == ["config.json", *parts]
    (folder / "b.safetensors").unlink()
    assert "b.safetensors cannot be read (No such file" in refusal(tiny)


def test_a_checkpoint_folder_that_is_not_there_is_named(tiny: TinyRun) -> None:
    tiny.set("model.checkpoint", "nowhere")
    assert f"checkpoint {tiny.folder / 'nowhere'} does not exist" in refusal(tiny)


# -- bundle


def test_a_bundle_holds_a_hash_for_each_file_and_sees_a_change(
    tiny: TinyRun, tmp_path: Path
) -> None:
    before = make_bundle(checked(tiny))
    assert len(before.files) == 3 + 2 + 2
    path = tmp_path / "bundle.json"
    path.write_bytes(before.to_json())
    assert read_bundle(path) == before
    tiny.put("eval.jsonl", lines(conversation("e0", "another")))
    now = make_bundle(checked(tiny))
    with pytest.raises(DataError, match=r"eval\.jsonl has the hash .* and the run began with"):
        check_unchanged(before, now, load_config(tiny.config))


def test_a_leg_that_read_other_bytes_than_were_checked_is_seen(tiny: TinyRun) -> None:
    bundle, config = make_bundle(checked(tiny)), load_config(tiny.config)
    read = {
        "template": bundle.files[str(tiny.folder / "chat.jinja")],
        "tokenizer": bundle.files[str(tiny.folder / "tokenizer.json")],
    } | {s: [bundle.files[str(tiny.folder / f"{s}.jsonl")]] for s in ("train", "eval", "edge")}
    assert read_by_leg(bundle, config, read) is None
    read["eval"] = ["0" * 64]
    sentence = read_by_leg(bundle, config, read)
    assert sentence is not None
    assert sentence.startswith("eval.jsonl had the hash")
    assert "0" * 64 in sentence


def test_a_bundle_sees_another_config(tiny: TinyRun) -> None:
    before = make_bundle(checked(tiny))
    tiny.set("seed", 4)
    now = make_bundle(checked(tiny))
    with pytest.raises(DataError, match=r"config .* has the hash .* and the run began with"):
        check_unchanged(before, now, load_config(tiny.config))
