"""Known patterns of different ids of one text (S-05) and masks of the same ids (S-06)."""

from __future__ import annotations

import unicodedata

import numpy as np

from oracle.side import Detector, Side, first_hint
from oracle.tokendiff import Ids, common_prefix


def ids_hint(a: Side, b: Side) -> str | None:
    """Return what different ids of one text look like, or None."""
    return first_hint(IDS, a, b)


def mask_hint(a: Side, b: Side) -> str | None:
    """Return what different masks of the same ids look like, or None."""
    return first_hint(MASK, a, b)


# Ids: how `y` encoded the same text.


def _second_beginning(x: Side, y: Side) -> str | None:
    if len(y.ids) < 2 or len(y.ids) > len(x.ids) + 1 or not y.is_control()[0]:
        return None
    if not np.array_equal(y.ids[1:], x.ids[: len(y.ids) - 1]):
        return None
    mark = y.token(0)
    if len(x.ids) and x.ids[0] == y.ids[0]:
        return f"{y.name} has a second beginning-of-text token ({mark})"
    return f"{y.name} has {mark} in front"


def _missing_last(x: Side, y: Side) -> str | None:
    if len(y.ids) + 1 != len(x.ids) or not np.array_equal(y.ids, x.ids[:-1]):
        return None
    if len(x.ids) > 1 and x.ids[-1] == x.ids[-2] and x.is_control()[-1]:
        return f"{x.name} has {x.token(len(y.ids))} twice at the end"
    return f"{y.name} lacks the last token ({x.token(len(y.ids))}): a missing end token"


def _cut_other_side(x: Side, y: Side) -> str | None:
    size, lost = len(x.ids), x.num_before - len(x.ids)
    if size != len(y.ids) or lost <= 0 or x.num_before != y.num_before:
        return None
    if lost >= size:  # two ends without an overlap
        ends = x.ids[0] == y.ids[0] or x.ids[-1] == y.ids[-1]
        return None if ends else "the legs keep different ends: one cuts on the other side"
    if np.array_equal(x.ids[lost:], y.ids[: size - lost]):
        return f"{y.name} cuts on the left, {x.name} on the right: cut on the other side"
    return None


def _other_length(x: Side, y: Side) -> str | None:
    if x.num_before != y.num_before or len(x.ids) <= len(y.ids):
        return None
    if common_prefix(x.ids, y.ids) == len(y.ids) or np.array_equal(x.ids[-len(y.ids) :], y.ids):
        return f"{y.name} keeps {len(y.ids)} tokens of the same, {x.name} {len(x.ids)}"
    return None


def _typed_control(x: Side, y: Side) -> str | None:
    extra = x.is_control().sum() - y.is_control().sum()
    if extra <= 0 or len(x.ids) >= len(y.ids):
        return None
    return f"{y.name} encodes {extra} control tokens of the text as ordinary text"


def _not_normal(x: Side, y: Side) -> str | None:
    for form in ("NFC", "NFKC"):
        if unicodedata.normalize(form, x.text) != x.text:
            return f"the text is not in {form}, and one leg may normalise it before encoding"
    return None


def _after_control(x: Side, y: Side) -> str | None:
    place = common_prefix(x.ids, y.ids)
    if place and x.is_control()[place - 1] and len(x.ids) > len(y.ids):
        return f"the ids part right after {x.token(place - 1)}: white space next to a control token"
    return None


# Masks: what `y` trains on, over the same ids.


def _everything(x: Side, y: Side) -> str | None:
    if y.mask.all() and not x.mask.all():
        return f"{y.name} supervises everything"
    return None


def _nothing(x: Side, y: Side) -> str | None:
    return f"{y.name} has no targets at all" if x.mask.any() and not y.mask.any() else None


def _shifted(x: Side, y: Side) -> str | None:
    size = len(x.mask)
    if size < 2 or not x.mask.any():
        return None
    if np.array_equal(y.mask[1:], x.mask[:-1]) and y.mask[0] in (0, x.mask[0]):
        return f"the mask of {y.name} is that of {x.name} shifted right by one"
    return None


def _last_turn_only(x: Side, y: Side) -> str | None:
    turns = _turns(x.mask)
    if len(turns) < 2:
        return None
    last = np.zeros_like(x.mask)
    last[turns[-1][0] : turns[-1][1]] = 1
    return f"{y.name} trains only the last turn" if np.array_equal(y.mask, last) else None


def _first_token_lost(x: Side, y: Side) -> str | None:
    turns = _turns(x.mask)
    for words, chosen in (("the first turn", turns[:1]), ("every turn", turns)):
        less = x.mask.copy()
        less[[start for start, _ in chosen]] = 0
        if chosen and np.array_equal(y.mask, less):
            return f"{y.name} loses the first answer token of {words}"
    return None


def _control_ignored(x: Side, y: Side) -> str | None:
    lost = np.flatnonzero((x.mask == 1) & (y.mask == 0))
    if not len(lost) or (y.mask > x.mask).any():
        return None
    number = int(x.ids[lost[0]])
    every = np.flatnonzero((x.mask == 1) & (x.ids == number))
    if number in x.control and np.array_equal(lost, every):
        return f"{y.name} always ignores {x.control[number]}"
    return None


def _prompt_supervised(x: Side, y: Side) -> str | None:
    added = _turns(((y.mask == 1) & (x.mask == 0)).astype(np.int8))
    starts = {start for start, _ in _turns(x.mask)}
    if not added or (x.mask > y.mask).any() or not all(end in starts for _, end in added):
        return None
    start, end = added[0]
    if y.is_control()[start]:
        return (
            f"{y.name} supervises the generation prompt, {end - start} tokens from {y.token(start)}"
        )
    return f"{y.name} begins {end - start} tokens before the answer"


def _after_turn(x: Side, y: Side) -> str | None:
    added = _turns(((y.mask == 1) & (x.mask == 0)).astype(np.int8))
    ends = {end for _, end in _turns(x.mask)}
    if not added or (x.mask > y.mask).any() or not all(start in ends for start, _ in added):
        return None
    return f"{y.name} supervises {added[0][1] - added[0][0]} tokens after the end of a turn"


def _rolled(x: Side, y: Side) -> str | None:
    """A mask padded on the other side than the ids is rolled by the length of the padding."""
    turns_x, turns_y = _turns(x.mask), _turns(y.mask)
    if not turns_x or x.mask.sum() != y.mask.sum():
        return None
    for start, _ in turns_y:
        by = (start - turns_x[0][0]) % len(x.mask)
        if by and np.array_equal(np.roll(x.mask, by), y.mask):
            return (
                f"the mask of {y.name} is that of {x.name} rolled right by {by} of {len(x.mask)} "
                "tokens, as if padded on the other side than the ids"
            )
    return None


def _turns(mask: Ids) -> list[tuple[int, int]]:
    """Return the runs `[start, end)` of ones."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask, [0]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


IDS: tuple[Detector, ...] = (
    _second_beginning, _missing_last, _cut_other_side, _other_length, _typed_control, _not_normal,
    _after_control,
)  # fmt: skip
MASK: tuple[Detector, ...] = (
    _everything, _nothing, _last_turn_only, _first_token_lost, _control_ignored, _shifted,
    _prompt_supervised, _after_turn, _rolled,
)  # fmt: skip
