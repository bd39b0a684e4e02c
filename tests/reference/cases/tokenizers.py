"""The tiny tokenizers of the vectors. Byte b has id b everywhere, so hand-worked ids read as bytes.

Merged tokens have ids from 256 in the order in which they first appear in the merge list; added
tokens have ids from 400.
"""

import json
from itertools import product
from typing import Any

from tests.reference.encode import ALPHABET

BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
BARE = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
SPLIT = {
    "type": "Split",
    "pattern": {
        "Regex": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+"
    },
    "behavior": "Isolated",
    "invert": False,
}
Merge = tuple[bytes, bytes]


def spell(data: bytes) -> str:
    """Bytes in the alphabet of the file."""
    return "".join(ALPHABET[byte] for byte in data)


def added(content: str, number: int, **changes: Any) -> dict[str, Any]:
    """A record of `added_tokens`; special by default."""
    record: dict[str, Any] = {"id": number, "content": content}
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    return record | flags | {"normalized": False, "special": True} | changes


def tokenizer(
    merges: list[Merge], extra: list[dict[str, Any]], *, spelled: bool = False, pre: Any = None
) -> dict[str, Any]:
    """A tokenizer with these merges; `spelled` writes them as strings instead of pairs."""
    vocab = {spell(bytes([byte])): byte for byte in range(256)}
    pairs: list[list[str]] = []
    for left, right in merges:
        vocab.setdefault(spell(left + right), len(vocab))
        pairs.append([spell(left), spell(right)])
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": extra,
        "normalizer": None,
        "pre_tokenizer": pre or BYTE_LEVEL,
        "post_processor": None,
        "decoder": BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [" ".join(pair) for pair in pairs] if spelled else pairs,
        },
    }


CHATML = [added(token, 400 + i) for i, token in enumerate(("<pad>", "<|im_start|>", "<|im_end|>"))]
# bc 256, abc 257, ab 258, yz 259, xy 260, ee 261, eee 262
RANKS: list[Merge] = [
    (b"b", b"c"),
    (b"ab", b"c"),  # never applies: bc goes first, and (a, bc) is no merge
    (b"a", b"b"),
    (b"y", b"z"),
    (b"x", b"y"),
    (b"e", b"e"),
    (b"ee", b"e"),
]
# ab 256, bc 257, abc 258: by two merges of different ranks
TWICE: list[Merge] = [(b"a", b"b"), (b"b", b"c"), (b"a", b"bc"), (b"ab", b"c")]
# U+1F600 is f0 9f 98 80, é is c3 a9: f09f 256, 9880 257, a9c3 258, a9_ 259, _f0 260
SHARED: list[Merge] = [
    (b"\xf0", b"\x9f"),
    (b"\x98", b"\x80"),
    (b"\xa9", b"\xc3"),
    (b"\xa9", b"!"),
    (b"!", b"\xf0\x9f"),
]
SYMBOLS = (b"a", b"t", b"1", b" ", b"\n", b"'", b".", b"\xc3\xa9")
# Every pair of eight symbols: two neighbours stay apart only at a border of pre-tokens
PAIRS: list[Merge] = [(b"\xc3", b"\xa9"), *product(SYMBOLS, SYMBOLS)]
OVERLAPS = [
    added("<a>", 400),
    added("<a><b>", 401),
    added("<b>", 402),
    added("ab", 403, special=False),
    added("abcd", 404, special=False),
    added("bcde", 405, special=False),
    added(" x ", 406),
    added("\U0001f600", 407),
]
TWO_KINDS = [
    added("<x>", 400, normalized=True),
    added("x><y", 401, special=False),
    added("<x><", 402, normalized=True),
]


def gaps() -> dict[str, Any]:
    """A vocabulary that lacks the symbols of the bytes 0x7a (z) and 0x9f."""
    record = tokenizer([(b"a", b"b")], [*CHATML, added("<z>", 403)])
    for data in (b"z", b"\x9f"):
        del record["model"]["vocab"][spell(data)]
    return record


VALID: dict[str, dict[str, Any]] = {
    "bytes": tokenizer([], CHATML),
    "ranks": tokenizer(RANKS, []),
    "ranks-spelled": tokenizer(RANKS, [], spelled=True),
    "twice": tokenizer(TWICE, []),
    "shared": tokenizer(SHARED, CHATML),
    "pairs": tokenizer(PAIRS, CHATML),
    "pairs-no-use-regex-key": tokenizer(
        PAIRS,
        CHATML,
        pre={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
    ),
    "pairs-bare": tokenizer(PAIRS, [], pre=BARE),
    "pairs-digits": tokenizer(
        PAIRS,
        [],
        pre={
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL],
        },
    ),
    "pairs-digit-runs": tokenizer(
        PAIRS,
        [],
        pre={
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": False}, BARE],
        },
    ),
    "pairs-split": tokenizer(
        PAIRS, CHATML, pre={"type": "Sequence", "pretokenizers": [SPLIT, BARE]}
    ),
    "pairs-split-digits": tokenizer(
        PAIRS,
        CHATML,
        pre={
            "type": "Sequence",
            "pretokenizers": [SPLIT, {"type": "Digits", "individual_digits": True}, BYTE_LEVEL],
        },
    ),
    "overlaps": tokenizer([(b"a", b"b"), (b" ", b"x")], OVERLAPS),
    "gaps": gaps(),
    "two-kinds": tokenizer([(b"<", b"x")], TWO_KINDS),
    "ignored-parts": tokenizer([(b"a", b"b")], [added("<s>", 400)])
    | {
        "truncation": {
            "direction": "Right",
            "max_length": 2,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": {
            "strategy": {"Fixed": 8},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 400,
            "pad_type_id": 0,
            "pad_token": "<s>",
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [400], "tokens": ["<s>"]}},
        },
        "decoder": None,
    },
}


def broken(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The tokenizer `bytes` with one value replaced."""
    copy: dict[str, Any] = json.loads(json.dumps(tokenizer([(b"a", b"b")], CHATML)))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copy


SEQUENCE = {"type": "Sequence", "pretokenizers": [BYTE_LEVEL, SPLIT]}
BROKEN: dict[str, dict[str, Any]] = {
    "normalizer": broken(("normalizer",), {"type": "NFC"}),
    "prefix-space": broken(("pre_tokenizer", "add_prefix_space"), True),
    "no-pre-tokenizer": broken(("pre_tokenizer",), None),
    "whitespace": broken(("pre_tokenizer",), {"type": "Whitespace"}),
    "byte-level-first": broken(("pre_tokenizer",), SEQUENCE),
    "empty-sequence": broken(("pre_tokenizer",), {"type": "Sequence", "pretokenizers": []}),
    "split-removed": broken(
        ("pre_tokenizer",),
        {"type": "Sequence", "pretokenizers": [SPLIT | {"behavior": "Removed"}, BARE]},
    ),
    "split-inverted": broken(
        ("pre_tokenizer",),
        {"type": "Sequence", "pretokenizers": [SPLIT | {"invert": True}, BARE]},
    ),
    "split-string": broken(
        ("pre_tokenizer",),
        {"type": "Sequence", "pretokenizers": [SPLIT | {"pattern": {"String": " "}}, BARE]},
    ),
    "model-type": broken(("model", "type"), "WordPiece"),
    "dropout": broken(("model", "dropout"), 0.1),
    "unknown-token": broken(("model", "unk_token"), "<pad>"),
    "subword-prefix": broken(("model", "continuing_subword_prefix"), "##"),
    "word-suffix": broken(("model", "end_of_word_suffix"), "</w>"),
    "byte-fallback": broken(("model", "byte_fallback"), True),
    "ignore-merges": broken(("model", "ignore_merges"), True),
    "added-lstrip": broken(("added_tokens",), [added("<pad>", 400, lstrip=True)]),
    "added-rstrip": broken(("added_tokens",), [added("<pad>", 400, rstrip=True)]),
    "added-single-word": broken(("added_tokens",), [added("<pad>", 400, single_word=True)]),
    "added-normalised": broken(
        ("added_tokens",), [added("w", 400, special=False, normalized=True)]
    ),
}


def files() -> dict[str, str]:
    """Path below the vectors' folder -> text."""
    return {
        f"tokenizers/{folder}{name}.json": json.dumps(record, separators=(",", ":")) + "\n"
        for folder, group in (("", VALID), ("broken-", BROKEN))
        for name, record in group.items()
    }
