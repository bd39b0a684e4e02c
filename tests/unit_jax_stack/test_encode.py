"""The outside judge is the `tokenizers` library; S-05's own cases are worked by hand."""

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from stacks.jax_stack.encode import ALPHABET, Encoder, Encoding, mask_of, merge
from stacks.jax_stack.errors import BadInput
from stacks.jax_stack.tokenizer import load_tokenizer

from .conftest import ROOT, SPECIAL, tokenizer_table

SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}
PRE_TOKENIZERS: list[dict[str, Any]] = [
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    {"type": "Sequence", "pretokenizers": [BYTE_LEVEL]},
    {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        ],
    },
    {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Digits", "individual_digits": False},
            {**SPLIT, "pattern": {"Regex": r"\s+|[a-c]"}},
            BYTE_LEVEL,
        ],
    },
    {"type": "Sequence", "pretokenizers": [{**SPLIT, "pattern": {"Regex": QWEN}}, BYTE_LEVEL]},
]
PIECES = [
    "hello", " world", "the", " th", "'s", "I'LL", "42", "Ⅷ²", "é", "e\u0301", "😀", "👩\u200d⚕️",
    " ", "  ", "\n", "\r\n", "\t", "\x1c", "\x85", "\xa0", "\u2028", "<|im_end|>", "<|im_end", "|>",
    "日本", "ß", "<|endoftext|><|im_start|>", "...", "-", "_", "\u0000",
]  # fmt: skip


def write(tmp_path: Path, table: dict[str, Any]) -> Path:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(table))
    return path


@pytest.mark.parametrize("pre_tokenizer", PRE_TOKENIZERS)
def test_ids_are_those_of_the_tokenizers_library(tmp_path: Path, pre_tokenizer: Any) -> None:
    path = write(tmp_path, tokenizer_table(pre_tokenizer=pre_tokenizer))
    encoder, outside = Encoder(load_tokenizer(path)), Tokenizer.from_file(str(path))
    rng = random.Random(5)
    for _ in range(300):
        text = "".join(rng.choices(PIECES, k=rng.randrange(1, 12)))
        expected = outside.encode(text, add_special_tokens=False).ids
        assert encoder.encode(text).ids == expected, repr(text)


def test_ids_of_the_sample_are_those_of_the_tokenizers_library() -> None:
    path = ROOT / "data/tokenizers/clinical-4k/tokenizer.json"
    encoder, outside = Encoder(load_tokenizer(path)), Tokenizer.from_file(str(path))
    num_tokens = 0
    for line in (ROOT / "data/clinical/edge.jsonl").read_text().split("\n")[:-1]:
        for message in json.loads(line)["messages"]:
            expected = outside.encode(message["content"], add_special_tokens=False).ids
            assert encoder.encode(message["content"]).ids == expected
            num_tokens += len(expected)
    assert num_tokens > 1000


def test_ranges_are_untrimmed_characters_and_shared_by_the_bytes_of_one(tmp_path: Path) -> None:
    encoding = Encoder(load_tokenizer(write(tmp_path, tokenizer_table()))).encode("hello w😀")
    # hell · o · Ġw · four bytes of one character
    assert encoding.starts == [0, 4, 5, 7, 7, 7, 7]
    assert encoding.ends == [4, 5, 7, 8, 8, 8, 8]


def test_ranges_cover_the_text_and_hold_every_byte(tmp_path: Path) -> None:
    encoder = Encoder(load_tokenizer(write(tmp_path, tokenizer_table())))
    names = {i: token for token, i in tokenizer_table()["model"]["vocab"].items()}
    back = {character: byte for byte, character in ALPHABET.items()}
    rng = random.Random(6)
    for _ in range(100):
        text = "".join(rng.choices(PIECES, k=8))
        encoding = encoder.encode(text)
        data = b""
        for i, start, end in zip(encoding.ids, encoding.starts, encoding.ends, strict=True):
            token = names[i]
            raw = token.encode() if token in SPECIAL else bytes(back[c] for c in token)
            assert raw in text[start:end].encode()
            data += raw
        assert data == text.encode()


def test_the_pair_of_lowest_rank_is_joined_first_and_the_leftmost_among_equals() -> None:
    ranks = {("a", "b"): 1, ("b", "c"): 0, ("a", "a"): 2}
    assert merge(list("abc"), ranks) == ["a", "bc"]
    assert merge(list("aaa"), ranks) == ["aa", "a"]
    assert merge(list("abab"), ranks) == ["ab", "ab"]


def test_a_rank_belongs_to_a_pair_and_not_to_what_it_makes() -> None:
    ranks = {("a", "b"): 0, ("ab", "c"): 1, ("b", "c"): 2}
    assert merge(list("bc"), ranks) == ["bc"]
    assert merge(["a", "bc"], ranks) == ["a", "bc"]  # no such pair, though "abc" is a token


def test_merging_agrees_with_the_plain_loop_of_the_clause() -> None:
    rng = random.Random(7)
    symbols = ["a", "b", "ab", "ba", "aa"]
    ranks = {(rng.choice(symbols), rng.choice(symbols)): rank for rank in range(14)}
    for _ in range(500):
        text = rng.choices("ab", k=rng.randrange(1, 14))
        expected = list(text)
        while found := [(ranks[p], i) for i, p in enumerate(pairwise(expected)) if p in ranks]:
            i = min(found)[1]
            expected[i : i + 2] = [expected[i] + expected[i + 1]]
        assert merge(list(text), ranks) == expected


def test_a_long_piece_is_merged_in_reasonable_time(tmp_path: Path) -> None:
    encoder = Encoder(load_tokenizer(write(tmp_path, tokenizer_table())))
    encoding = encoder.encode("hell" * 30_000)
    assert len(encoding.ids) == 30_000


def test_typed_control_tokens_are_counted_leftmost_and_longest(tmp_path: Path) -> None:
    encoder = Encoder(load_tokenizer(write(tmp_path, tokenizer_table())))
    assert encoder.count_added("<|im_end|><|im_end|> <|im_end") == 2


def test_mask_is_overlap_with_a_span() -> None:
    encoding = Encoding(ids=[0] * 5, starts=[0, 2, 4, 4, 6], ends=[2, 4, 5, 5, 8])
    assert mask_of(encoding, [(3, 4)], "assistant") == [0, 1, 0, 0, 0]
    assert mask_of(encoding, [(4, 5), (7, 9)], "assistant") == [0, 0, 1, 1, 1]
    assert mask_of(encoding, [], "assistant") == [0] * 5
    assert mask_of(encoding, [], "all") == [1] * 5


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"normalizer": {"type": "NFC"}}, "normalizer"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "pre_tokenizer.type"),
        ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}}, "add_prefix_space"),
        ({"added_tokens": [{"id": 0, "content": "x", "rstrip": True}]}, "added_tokens[0].rstrip"),
        ({"model": {"type": "WordPiece"}}, "model.type"),
        ({"model": {"type": "BPE", "dropout": 0.1}}, "model.dropout"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b c"]}}, "model.merges[0]"),
    ],
)
def test_what_the_clause_does_not_name_is_refused_by_key(
    tmp_path: Path, changes: dict[str, Any], key: str
) -> None:
    with pytest.raises(BadInput) as refusal:
        load_tokenizer(write(tmp_path, tokenizer_table(**changes)))
    assert f"{key}`" in str(refusal.value)


def test_a_byte_without_a_token_is_refused(tmp_path: Path) -> None:
    table = tokenizer_table()
    del table["model"]["vocab"]["z"]
    with pytest.raises(BadInput, match="no token"):
        Encoder(load_tokenizer(write(tmp_path, table))).encode("az")
