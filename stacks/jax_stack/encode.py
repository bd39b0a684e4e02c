"""Text to ids and ranges of characters with byte-level BPE (S-05, S-06).

An own encoder: ranks belong to pairs of neighbours, not to the token that a pair makes, so an
engine that ranks results (as tiktoken's does) may differ where several merges give one token.
"""

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from .errors import BadInput
from .tokenizer import TokenizerFile

MAX_CACHED_PIECES = 1 << 18
MAX_CACHED_CHARACTERS = 64  # a longer piece hardly comes again


def _byte_alphabet() -> dict[int, str]:
    """byte -> the character that byte-level BPE writes for it: itself where it is printable."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + i) for i, byte in enumerate(others)
    }


ALPHABET = _byte_alphabet()


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoding:
    """Token i is `ids[i]` and covers the characters `starts[i]` to `ends[i]`, half-open."""

    ids: list[int]
    starts: list[int]
    ends: list[int]


_Piece = tuple[list[int], list[int], list[int]]  # ids, starts, ends: of an Encoding


class Encoder:
    """Encodes with one tokenizer, and remembers the pieces it has met."""

    def __init__(self, tokenizer: TokenizerFile) -> None:
        self._vocab, self._ranks, self._added = tokenizer.vocab, tokenizer.ranks, tokenizer.added
        self._splits = tokenizer.splits
        self._cache: dict[str, _Piece] = {}
        longest_first = sorted(tokenizer.added, key=len, reverse=True)
        self._cut = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def count_added(self, text: str) -> int:
        """How many added tokens step 1 of S-05 finds in `text`."""
        return len(self._cut.findall(text)) if self._cut else 0

    def encode(self, text: str) -> Encoding:
        """The tokens of `text`.

        Raises:
            BadInput: a token is not in the vocabulary.
        """
        encoding = Encoding(ids=[], starts=[], ends=[])
        position = 0
        for found in self._cut.finditer(text) if self._cut else ():
            start, end = found.span()
            if start > position:
                self._encode_between(text[position:start], position, encoding)
            encoding.ids.append(self._added[found.group()])
            encoding.starts.append(start)
            encoding.ends.append(end)
            position = end
        if position < len(text):
            self._encode_between(text[position:], position, encoding)
        return encoding

    def _encode_between(self, text: str, offset: int, encoding: Encoding) -> None:
        """Pre-tokenises and merges what stands between added tokens; appends to `encoding`."""
        pieces = [text]
        for split in self._splits:
            pieces = [part for piece in pieces for part in split(piece)]
        ids, starts, ends, cache = encoding.ids, encoding.starts, encoding.ends, self._cache
        for piece in pieces:
            known = cache.get(piece) or self._encode_piece(piece)
            if len(known[0]) == 1:  # most pieces are one token
                ids.append(known[0][0])
                starts.append(offset)
                offset += len(piece)
                ends.append(offset)
            else:
                ids += known[0]
                starts += [offset + start for start in known[1]]
                ends += [offset + end for end in known[2]]
                offset += len(piece)

    def _encode_piece(self, piece: str) -> _Piece:
        data = piece.encode("utf-8")
        tokens = merge([ALPHABET[byte] for byte in data], self._ranks)
        missing = [token for token in tokens if token not in self._vocab]
        if missing:
            raise BadInput(
                "a byte of the text has no token in model.vocab (S-05); use a complete tokenizer"
            )
        starts, ends = _character_ranges(piece, [len(token) for token in tokens])
        encoded = ([self._vocab[token] for token in tokens], starts, ends)
        if len(piece) <= MAX_CACHED_CHARACTERS:
            if len(self._cache) >= MAX_CACHED_PIECES:
                self._cache.clear()
            self._cache[piece] = encoded
        return encoded


def _character_ranges(piece: str, lengths_bytes: list[int]) -> tuple[list[int], list[int]]:
    """The smallest range of characters that holds the bytes of each token."""
    ends_bytes = list(accumulate(lengths_bytes))
    if piece.isascii():
        return [0, *ends_bytes[:-1]], ends_bytes
    character_of = [i for i, character in enumerate(piece) for _ in character.encode("utf-8")]
    starts_bytes = [0, *ends_bytes[:-1]]
    return [character_of[start] for start in starts_bytes], [
        character_of[end - 1] + 1 for end in ends_bytes
    ]


def merge(symbols: list[str], ranks: dict[tuple[str, str], int]) -> list[str]:
    """Joins neighbours, lowest rank first, leftmost among equals (S-05, step 3).

    A heap of pairs over a linked list: n log n for a piece of n bytes.
    """
    following = [*range(1, len(symbols)), -1]
    previous = list(range(-1, len(symbols) - 1))
    heap = [
        (rank, i, left, right)
        for i, (left, right) in enumerate(pairwise(symbols))
        if (rank := ranks.get((left, right))) is not None
    ]
    heapq.heapify(heap)
    parts: list[str] = list(symbols)
    while heap:
        _, i, left, right = heapq.heappop(heap)
        j = following[i]
        if parts[i] != left or j < 0 or parts[j] != right:
            continue  # one of the two has been joined since
        parts[i], parts[j] = left + right, ""
        following[i] = following[j]
        if following[j] >= 0:
            previous[following[j]] = i
        for a, b in ((previous[i], i), (i, following[i])):
            if a >= 0 and b >= 0 and (rank := ranks.get((parts[a], parts[b]))) is not None:
                heapq.heappush(heap, (rank, a, parts[a], parts[b]))
    return [part for part in parts if part]


def mask_of(encoding: Encoding, spans: Sequence[tuple[int, int]], mask: str) -> list[int]:
    """1 for each token whose range overlaps a span, else 0; with mask "all" always 1 (S-06)."""
    if mask == "all":
        return [1] * len(encoding.ids)
    result = [0] * len(encoding.ids)
    remaining = iter(spans)
    span = next(remaining, None)
    for i, (start, end) in enumerate(zip(encoding.starts, encoding.ends, strict=True)):
        while span is not None and span[1] <= start:  # tokens and spans both ascend
            span = next(remaining, None)
        if span is None:
            break
        result[i] = int(start < span[1] and span[0] < end)
    return result
