"""Tokenizers that the contract does not cover are refused by the key (S-05)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.tokenizer import TokenizerFile, load_tokenizer

from .conftest import tokenizer_document


def write(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document))
    return path


def loaded(tmp_path: Path, change: Callable[[dict[str, Any]], object] = id) -> TokenizerFile:
    document = tokenizer_document()
    change(document)
    return load_tokenizer(write(tmp_path, document))


def stage(**flags: Any) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": [flags, tokenizer_document()["pre_tokenizer"]]}


SPLIT = {"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Isolated", "invert": False}
REFUSED: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    ("normalizer", lambda d: d.update(normalizer={"type": "NFC"})),
    ("surprise", lambda d: d.update(surprise=1)),
    ("model.type", lambda d: d["model"].update(type="Unigram")),
    ("model.dropout", lambda d: d["model"].update(dropout=0.1)),
    ("model.unk_token", lambda d: d["model"].update(unk_token="<unk>")),
    ("model.continuing_subword_prefix", lambda d: d["model"].update(continuing_subword_prefix="#")),
    ("model.end_of_word_suffix", lambda d: d["model"].update(end_of_word_suffix="</w>")),
    ("model.byte_fallback", lambda d: d["model"].update(byte_fallback=True)),
    ("model.ignore_merges", lambda d: d["model"].update(ignore_merges=True)),
    ("model.more", lambda d: d["model"].update(more=1)),
    ("model.merges", lambda d: d["model"].update(merges=["a b c"])),
    ("model.merges", lambda d: d["model"].update(merges=[["a", "n"], "a n"])),
    ("refuses", lambda d: d.update(pre_tokenizer=stage(**{**SPLIT, "pattern": {"Regex": "("}}))),
    ("model.vocab", lambda d: d["model"].update(vocab=[])),
    ("model.vocab", lambda d: d["model"]["vocab"].update(zz=0)),
    ("pre_tokenizer", lambda d: d.update(pre_tokenizer=None)),
    ("type", lambda d: d.update(pre_tokenizer={"type": "Whitespace"})),
    ("add_prefix_space", lambda d: d["pre_tokenizer"].update(add_prefix_space=True)),
    ("type", lambda d: d.update(pre_tokenizer=stage(type="Punctuation"))),
    ("pattern", lambda d: d.update(pre_tokenizer=stage(**{**SPLIT, "pattern": {"String": "x"}}))),
    ("behavior", lambda d: d.update(pre_tokenizer=stage(**{**SPLIT, "behavior": "Removed"}))),
    ("invert", lambda d: d.update(pre_tokenizer=stage(**{**SPLIT, "invert": True}))),
    ("individual_digits", lambda d: d.update(pre_tokenizer=stage(type="Digits"))),
    ("lstrip", lambda d: d["added_tokens"][1].update(lstrip=True)),
    ("rstrip", lambda d: d["added_tokens"][1].update(rstrip=True)),
    ("single_word", lambda d: d["added_tokens"][1].update(single_word=True)),
    ("normalized", lambda d: d["added_tokens"][1].update(special=False, normalized=True)),
    ("content", lambda d: d["added_tokens"][1].update(content="")),
    ("content", lambda d: d["added_tokens"][1].update(content="<|start|>")),
    ("id", lambda d: d["added_tokens"][1].update(id=270)),
    ("id", lambda d: d["added_tokens"][1].update(id=7)),
]


@pytest.mark.parametrize(("key", "change"), REFUSED)
def test_what_is_not_covered_is_refused_by_its_key(
    tmp_path: Path, key: str, change: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(BadInput, match=f"^S-05: .*{key}"):
        loaded(tmp_path, change)


def test_what_is_ignored_is_ignored(tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        document["truncation"] = {
            "direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0
        }  # fmt: skip
        document["padding"] = {
            "strategy": {"Fixed": 9}, "direction": "Left", "pad_to_multiple_of": None,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "!",
        }  # fmt: skip
        document["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [271], "tokens": ["<|end|>"]}},
        }  # fmt: skip

    tokenizer = loaded(tmp_path, change)
    assert tokenizer.engine.encode("ab").ids == [ord("a"), ord("b")]


def test_ids_are_those_of_the_file(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path)
    assert tokenizer.added == {"<|start|>": 270, "<|end|>": 271, "<|pad|>": 272}
    assert tokenizer.token_id("pad_token", "<|pad|>") == 272
    assert tokenizer.token_id("pad_token", "ans") == 257
    with pytest.raises(BadInput, match="data.pad_token = 'none' is no token"):
        tokenizer.token_id("pad_token", "none")


def test_every_id_is_below_the_vocabulary_size_of_the_model(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path)
    tokenizer.check_vocab_size(273, tmp_path)
    with pytest.raises(BadInput, match="the id 272, but .* vocab_size 272"):
        tokenizer.check_vocab_size(272, tmp_path)


def test_no_json_and_no_file_are_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(BadInput, match="cannot be read"):
        load_tokenizer(path)
    path.write_text("{")
    with pytest.raises(BadInput, match="is not JSON"):
        load_tokenizer(path)
    with pytest.raises(BadInput, match="the document is not an object"):
        load_tokenizer(write(tmp_path, []))
