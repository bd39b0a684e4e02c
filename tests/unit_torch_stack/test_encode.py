"""Ids, ranges and masks against byte-pair merging and byte counting written out here (S-05..07)."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacks.torch_stack.encode import Encoded, Encoder, target_mask, truncate
from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.tokenizer import load_tokenizer

from .conftest import byte_alphabet, tokenizer_document


def encoder(tmp_path: Path, document: dict[str, Any] | None = None) -> Encoder:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document or tokenizer_document()))
    return Encoder(load_tokenizer(path))


def encode(tmp_path: Path, text: str, document: dict[str, Any] | None = None) -> Encoded:
    (encoded,) = encoder(tmp_path, document).encode([text], ["f line 1"])
    return encoded


def ranges_by_counting_bytes(text: str, tokens: list[bytes]) -> list[tuple[int, int]]:
    owner = [index for index, character in enumerate(text) for _ in character.encode()]
    found, at = [], 0
    for token in tokens:
        found.append((owner[at], owner[at + len(token) - 1] + 1))
        at += len(token)
    assert at == len(owner)
    return found


def test_ranges_are_the_characters_that_hold_the_bytes(tmp_path: Path) -> None:
    document = tokenizer_document()
    alphabet = byte_alphabet()
    # tokens that end inside one character and begin inside another
    joint = [[alphabet[0xA9], alphabet[0xF0]], [alphabet[0x9F], alphabet[0xAB]]]
    for left, right in joint:
        document["model"]["vocab"][left + right] = len(document["model"]["vocab"])
    document["model"]["merges"] += joint
    document["pre_tokenizer"]["use_regex"] = False
    names = {number: token for token, number in document["model"]["vocab"].items()}
    added = {token["id"]: token["content"] for token in document["added_tokens"]}
    byte_of = {character: bytes([byte]) for byte, character in enumerate(alphabet)}
    generator = random.Random(3)
    coder = encoder(tmp_path, document)
    for _ in range(200):
        pieces = ["é", "\U0001fac0", "an", "ans", " ", "\n", "<|end|>", "<|", "中", "e\u0301"]
        text = "".join(generator.choices(pieces, k=generator.randint(1, 12)))
        (encoded,) = coder.encode([text], ["f"])
        tokens = [
            added[number].encode()
            if number in added
            else b"".join(byte_of[character] for character in names[number])
            for number in encoded.ids.tolist()
        ]
        assert b"".join(tokens) == text.encode()
        ranges = list(zip(encoded.starts.tolist(), encoded.ends.tolist(), strict=True))
        assert ranges == ranges_by_counting_bytes(text, tokens)


def test_merges_go_by_rank(tmp_path: Path) -> None:
    encoded = encode(tmp_path, "ans tan")
    # "ans" by two merges; " t" is one token, so "tan" is " t" + "an"
    assert encoded.ids.tolist() == [257, 258, 256]
    assert encoded.starts.tolist() == [0, 3, 5]
    assert encoded.ends.tolist() == [3, 5, 7]


def test_added_tokens_are_cut_leftmost_and_longest_whatever_their_flag(tmp_path: Path) -> None:
    document = tokenizer_document()
    flags = {"lstrip": False, "rstrip": False, "single_word": False, "special": True}
    document["added_tokens"] = [
        {"id": 270, "content": "bb", "normalized": False, **flags},
        {"id": 275, "content": "abb", "normalized": True, **flags},
    ]
    byte_b = ord("b")
    assert encode(tmp_path, "abbbbb", document).ids.tolist() == [275, 270, byte_b]


def test_an_added_token_keeps_its_id_beside_the_same_string_of_the_model(tmp_path: Path) -> None:
    document = tokenizer_document()
    document["added_tokens"][0]["content"] = "ans"  # the model's own id of it is 257
    document["model"]["merges"].append(["an", "t"])
    document["model"]["vocab"]["ant"] = 260
    assert encode(tmp_path, "é ans ant", document).ids.tolist()[-3:] == [270, 32, 260]
    assert encode(tmp_path, "ans", document).ids.tolist() == [270]


def test_control_tokens_in_contents_are_counted(tmp_path: Path) -> None:
    coder = encoder(tmp_path)
    assert coder.count_control_tokens(["<|end|><|end|> x<|start|>", "<|end", "<|pad|>"]) == 4


def test_a_text_without_a_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="f line 1 has no token"):
        encode(tmp_path, "")


def test_a_symbol_that_the_vocabulary_lacks_is_refused_where_it_is_left(tmp_path: Path) -> None:
    document = tokenizer_document()
    del document["model"]["vocab"]["a"]  # "an" and "ans" are there
    assert encode(tmp_path, "nans", document).ids.tolist() == [ord("n"), 257]
    with pytest.raises(BadInput, match=r"lacks the symbol of token 1 \(characters 1 to 2\)"):
        encode(tmp_path, "nab", document)
    document["model"]["merges"].append(["b", "c"])  # its result is not there
    assert encode(tmp_path, "cb", document).ids.tolist() == [ord("c"), ord("b")]
    with pytest.raises(BadInput, match="token 0"):
        encode(tmp_path, "bc", document)
    flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    document["added_tokens"].append({"id": 279, "content": "bc", "special": True, **flags})
    assert encode(tmp_path, "bcc", document).ids.tolist() == [279, ord("c")]


def encoded(*ranges: tuple[int, int]) -> Encoded:
    starts, ends = np.array(ranges, np.int32).T
    return Encoded(ids=np.arange(len(ranges), dtype=np.int32), starts=starts, ends=ends)


def test_a_token_is_a_target_when_it_overlaps_a_span() -> None:
    tokens = encoded((0, 2), (2, 5), (5, 6), (6, 9), (9, 9 + 1))
    spans = ((3, 4), (6, 7), (8, 9))
    assert target_mask(tokens, spans, "assistant").tolist() == [0, 1, 0, 1, 0]
    assert target_mask(tokens, (), "assistant").tolist() == [0] * 5
    assert target_mask(tokens, (), "all").tolist() == [1] * 5


def test_the_mask_is_that_of_every_pair_tried() -> None:
    generator = random.Random(1)
    for _ in range(300):
        cuts = sorted(generator.sample(range(30), 8))
        spans = tuple(zip(cuts[::2], cuts[1::2], strict=True))
        starts = sorted(generator.choices(range(30), k=10))
        ranges = [(start, start + generator.randint(1, 4)) for start in starts]
        expected = [int(any(a < e and s < b for s, e in spans)) for a, b in ranges]
        assert target_mask(encoded(*ranges), spans, "assistant").tolist() == expected


def test_truncation_cuts_one_side() -> None:
    ids, mask = np.arange(5, dtype=np.int32), np.array([1, 0, 0, 1, 1], np.int8)
    assert [x.tolist() for x in truncate(ids, mask, 3, "right")] == [[0, 1, 2], [1, 0, 0]]
    assert [x.tolist() for x in truncate(ids, mask, 3, "left")] == [[2, 3, 4], [0, 1, 1]]
    assert truncate(ids, mask, 5, "left")[0].tolist() == [0, 1, 2, 3, 4]
