"""clinical-4k: size, control tokens, retraining, and a decoder of our own as judge."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from data.tokenizers import train
from tests.unit_data.conftest import DATA, Row

FOLDER = DATA / "tokenizers" / "clinical-4k"


@pytest.fixture(scope="module")
def parsed() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / "tokenizer.json").read_bytes())
    return content


def byte_of_symbol() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 stands for itself, the rest from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(256 + n): b for n, b in enumerate(rest)}


def test_vocabulary_is_4096_dense_ids_with_all_bytes(parsed: dict[str, Any]) -> None:
    vocabulary = parsed["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(4096))
    assert set(byte_of_symbol()) <= set(vocabulary)
    assert len(parsed["model"]["merges"]) == 4096 - 256 - 3


def test_control_tokens_are_the_first_three(parsed: dict[str, Any]) -> None:
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert [token["content"] for token in parsed["added_tokens"]] == names
    for number, token in enumerate(parsed["added_tokens"]):
        assert token["id"] == parsed["model"]["vocab"][token["content"]] == number
        assert token["special"] is True
        assert not any(token[key] for key in ("normalized", "lstrip", "rstrip", "single_word"))


def test_settings_are_plain_byte_level(parsed: dict[str, Any]) -> None:
    assert parsed["normalizer"] is None
    assert parsed["post_processor"] is None
    assert parsed["pre_tokenizer"]["type"] == "ByteLevel"
    assert parsed["pre_tokenizer"]["add_prefix_space"] is False
    assert parsed["pre_tokenizer"]["use_regex"] is True
    assert parsed["decoder"]["type"] == "ByteLevel"
    assert parsed["model"]["unk_token"] is None


def test_every_edge_content_comes_back(parsed: dict[str, Any], edge: dict[str, Row]) -> None:
    symbols, control = byte_of_symbol(), {t["content"] for t in parsed["added_tokens"]}
    spelled = {
        number: token.encode() if token in control else bytes(symbols[c] for c in token)
        for token, number in parsed["model"]["vocab"].items()
    }
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    for row in edge.values():
        for message in row["messages"]:
            ids = tokenizer.encode(message["content"]).ids
            assert b"".join(spelled[i] for i in ids) == message["content"].encode(), row["id"]


def test_typed_control_tokens_are_single_ids() -> None:
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    assert tokenizer.encode("<|im_start|><|im_end|><|endoftext|>").ids == [1, 2, 0]


def test_retraining_gives_the_committed_bytes_and_provenance_names_them(tmp_path: Path) -> None:
    assert train.main(["--out", str(tmp_path)]) == 0
    for name in ("tokenizer.json", "provenance.json"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()
    record = json.loads((FOLDER / "provenance.json").read_bytes())
    for key, path in (
        ("input_sha256", DATA / "clinical" / "sample" / "train.jsonl"),
        ("tokenizer_sha256", FOLDER / "tokenizer.json"),
    ):
        assert record[key] == hashlib.sha256(path.read_bytes()).hexdigest()
