"""Text to token ids, ranges, target mask and truncation (S-05, S-06, S-07).

The engine is that of Hugging Face's fast tokenizers; ranges are its untrimmed offsets, counted in
characters. A token of which only some bytes belong to a character has the whole character.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.render import Span
from stacks.torch_stack.tokenizer import TokenizerFile

IntArray = npt.NDArray[np.int32]
MaskArray = npt.NDArray[np.int8]


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """The tokens of one text: ids (n,) and ranges [start, end) in characters, each (n,)."""

    ids: IntArray
    starts: IntArray
    ends: IntArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokens:
    """An example as training sees it: its tokens and target mask after truncation, each (n,)."""

    id: str
    ids: IntArray
    mask: MaskArray


class Encoder:
    """Encodes many texts at once with the tokenizer of the run."""

    def __init__(self, tokenizer: TokenizerFile) -> None:
        self._engine = tokenizer.engine
        longest_first = sorted(tokenizer.added, key=len, reverse=True)
        # Alternatives are tried in order, so the leftmost, longest occurrence wins (S-05, step 1)
        self._added = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        # Where the model has the same string, the engine gives an added token the model's id
        self._renumbered = {
            content: number
            for content, number in tokenizer.added.items()
            if self._engine.token_to_id(content) != number
        }
        self._first_lacking = tokenizer.first_lacking

    def encode(self, texts: Sequence[str], wheres: Sequence[str]) -> list[Encoded]:
        """Tokens of each text; `wheres` name the examples in errors."""
        outcomes = []
        encodings = self._engine.encode_batch(list(texts), add_special_tokens=False)
        for text, where, encoding in zip(texts, wheres, encodings, strict=True):
            ids = encoding.ids
            if not ids:
                raise BadInput(f"S-05: {where} has no token; remove it or mend the template")
            starts, ends = np.array(encoding.offsets, np.int32).T
            encoded = Encoded(ids=np.array(ids, np.int32), starts=starts, ends=ends)
            if self._renumbered:
                self._renumber(text, encoded)
            if encoded.ids.max() >= self._first_lacking:
                at = int(encoded.ids.argmax())
                raise BadInput(
                    f"S-05: {where}: the vocabulary lacks the symbol of token {at} (characters "
                    f"{encoded.starts[at]} to {encoded.ends[at]}); use a tokenizer that has it"
                )
            outcomes.append(encoded)
        return outcomes

    def _renumber(self, text: str, encoded: Encoded) -> None:
        """Give added tokens the ids of the file; one begins where the text was cut for it."""
        for found in self._added.finditer(text):
            if (number := self._renumbered.get(found.group())) is not None:
                encoded.ids[np.searchsorted(encoded.starts, found.start())] = number

    def count_control_tokens(self, contents: Sequence[str]) -> int:
        """Added tokens that the contents of messages hold (S-24, `typed_control_tokens`)."""
        return sum(len(self._added.findall(content)) for content in contents)


def target_mask(
    encoded: Encoded, spans: Sequence[Span], mask: Literal["assistant", "all"]
) -> MaskArray:
    """1 where the range of a token overlaps a span, else 0 → (n,) (S-06)."""
    if mask == "all":
        return np.ones(len(encoded.ids), np.int8)
    if not spans:
        return np.zeros(len(encoded.ids), np.int8)
    span_starts, span_ends = np.array(spans, np.int32).T
    # Spans are in order and disjoint: a token can only overlap the first one that ends after the
    # token's start, or a later one if it reaches that far, which then begins before its end too.
    first = np.searchsorted(span_ends, encoded.starts, side="right")
    is_target = first < len(spans)
    is_target &= span_starts[np.minimum(first, len(spans) - 1)] < encoded.ends
    return is_target.astype(np.int8)


def truncate(
    ids: IntArray, mask: MaskArray, max_length: int, side: Literal["left", "right"]
) -> tuple[IntArray, MaskArray]:
    """Keep at most `max_length` tokens; `side` is the one that is cut away (S-07)."""
    if len(ids) <= max_length:
        return ids, mask
    kept = slice(None, max_length) if side == "right" else slice(len(ids) - max_length, None)
    return ids[kept].copy(), mask[kept].copy()  # not views: the whole would stay in memory
