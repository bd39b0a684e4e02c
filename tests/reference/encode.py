"""A byte-level byte-pair encoder (S-05), written for clearness and not for speed.

`tokenizer.json` is read and checked in `load`; `Tokenizer.encode` follows the four numbered parts
of the clause: added tokens, pre-tokens, merges, vocabulary.
"""

import json
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import regex

from tests.reference.errors import RefusedError, require

BYTE_LEVEL = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
Stage = Callable[[str], list[str]]  # a piece into its pieces


def byte_alphabet() -> list[str]:
    """The character of each byte: itself where it prints, else 256, 257, … in byte order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


ALPHABET = byte_alphabet()


@dataclass(frozen=True, kw_only=True)
class Token:
    """An id and the range of characters that holds its bytes."""

    id: int
    start: int
    stop: int


def isolate(pattern: "regex.Pattern[str]") -> Stage:
    """Matches and what lies between them, in order."""

    def stage(piece: str) -> list[str]:
        pieces, end = [], 0
        for match in pattern.finditer(piece):
            pieces += [piece[end : match.start()], match.group()]
            end = match.end()
        return [part for part in [*pieces, piece[end:]] if part]

    return stage


def digits(individual: bool) -> Stage:
    """Numeric characters (Nd, Nl, No) apart from the rest, alone or in runs."""

    def stage(piece: str) -> list[str]:
        pieces: list[str] = []
        before: bool | None = None  # whether the character before was numeric
        for character in piece:
            numeric = unicodedata.category(character) in ("Nd", "Nl", "No")
            if numeric == before and not (numeric and individual):
                pieces[-1] += character
            else:
                pieces.append(character)
            before = numeric
        return pieces

    return stage


def merge(symbols: list[str], ranks: dict[tuple[str, str], int]) -> list[str]:
    """Joins the pair of lowest rank, the leftmost among equals, until no pair is in the list."""
    symbols = list(symbols)
    while True:
        found = [(ranks[pair], i) for i, pair in enumerate(pairwise(symbols)) if pair in ranks]
        if not found:
            return symbols
        _, i = min(found)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """A checked tokenizer."""

    vocab: dict[str, int]
    ranks: dict[tuple[str, str], int]
    stages: tuple[Stage, ...]
    added: dict[str, int]

    def cut(self, text: str) -> Iterator[tuple[int, str, bool]]:
        """(first character, piece, is an added token): leftmost, the longest at each place."""
        by_length = sorted(self.added, key=len, reverse=True)
        start = at = 0
        while at < len(text):
            token = next((token for token in by_length if text.startswith(token, at)), None)
            if token is None:
                at += 1
                continue
            if start < at:
                yield start, text[start:at], False
            yield at, token, True
            start = at = at + len(token)
        if start < len(text):
            yield start, text[start:], False

    def count_added(self, text: str) -> int:
        """Added tokens that occur in `text`."""
        return sum(is_added for _, _, is_added in self.cut(text))

    def encode(self, text: str) -> list[Token]:
        """The tokens of a whole text, each with its range in it."""
        tokens: list[Token] = []
        for start, piece, is_added in self.cut(text):
            if is_added:
                stop = start + len(piece)
                tokens.append(Token(id=self.added[piece], start=start, stop=stop))
                continue
            pieces = [piece]
            for stage in self.stages:
                pieces = [part for whole in pieces for part in stage(whole)]
            for part in pieces:
                tokens += self.encode_word(part, start)
                start += len(part)
        return tokens

    def encode_word(self, word: str, start: int) -> Iterator[Token]:
        """The tokens of one pre-token, whose first character is number `start` of the text."""
        owner = [start + i for i, c in enumerate(word) for _ in c.encode()]  # character of a byte
        symbols = merge([ALPHABET[byte] for byte in word.encode()], self.ranks)
        first = 0
        for symbol in symbols:
            require(symbol in self.vocab, "a result of the merges is not in the vocabulary")
            last = first + len(symbol) - 1  # one character of the alphabet is one byte
            yield Token(id=self.vocab[symbol], start=owner[first], stop=owner[last] + 1)
            first = last + 1


def check(holds: bool, key: str) -> None:
    """Refuses a tokenizer for the value of `key`."""
    require(holds, f"tokenizer: unsupported value of {key}")


def load_stage(record: dict[str, Any], *, is_last: bool) -> list[Stage]:
    """The stage of one pre-tokenizer record; a ByteLevel without its expression adds none."""
    kind = record.get("type")
    if kind == "ByteLevel":
        check(is_last, "pre_tokenizer (ByteLevel must be last)")
        check(record.get("add_prefix_space") is False, "pre_tokenizer.add_prefix_space")
        return [isolate(regex.compile(BYTE_LEVEL))] if record.get("use_regex", True) else []
    check(not is_last, "pre_tokenizer (the last must be ByteLevel)")
    if kind == "Digits":
        return [digits(bool(record.get("individual_digits", False)))]
    check(kind == "Split", "pre_tokenizer.type")
    check(set(record["pattern"]) == {"Regex"}, "pre_tokenizer.pattern")
    check(record.get("behavior") == "Isolated", "pre_tokenizer.behavior")
    check(record.get("invert") is False, "pre_tokenizer.invert")
    return [isolate(regex.compile(record["pattern"]["Regex"]))]


def load_stages(record: dict[str, Any] | None) -> tuple[Stage, ...]:
    """The stages of `pre_tokenizer`, in order."""
    check(record is not None, "pre_tokenizer")
    assert record is not None
    records = record["pretokenizers"] if record.get("type") == "Sequence" else [record]
    check(records != [], "pre_tokenizer.pretokenizers")
    last = len(records) - 1
    return tuple(s for i, r in enumerate(records) for s in load_stage(r, is_last=i == last))


def load_added(records: list[dict[str, Any]]) -> dict[str, int]:
    """content -> id."""
    for record in records:
        for flag in ("lstrip", "rstrip", "single_word"):
            check(record.get(flag) is False, f"added_tokens.{flag}")
        check(record["special"] or not record["normalized"], "added_tokens.normalized")
    return {record["content"]: record["id"] for record in records}


def load_ranks(merges: list[Any]) -> dict[tuple[str, str], int]:
    """pair -> rank."""
    ranks: dict[tuple[str, str], int] = {}
    for rank, entry in enumerate(merges):
        pair = entry.split(" ") if isinstance(entry, str) else entry
        check(len(pair) == 2, "model.merges")
        ranks.setdefault((pair[0], pair[1]), rank)
    return ranks


def load(text: str) -> Tokenizer:
    """A tokenizer from the text of `tokenizer.json`. Raises RefusedError, which names the key."""
    try:
        record = json.loads(text)
    except ValueError:
        raise RefusedError("tokenizer: not JSON") from None
    check(record.get("normalizer") is None, "normalizer")
    model = record["model"]
    check(model.get("type") == "BPE", "model.type")
    for key in ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        check(model.get(key) in (None, ""), f"model.{key}")
    for key in ("byte_fallback", "ignore_merges"):
        check(not model.get(key, False), f"model.{key}")
    return Tokenizer(
        vocab=model["vocab"],
        ranks=load_ranks(model["merges"]),
        stages=load_stages(record.get("pre_tokenizer")),
        added=load_added(record.get("added_tokens") or []),
    )
