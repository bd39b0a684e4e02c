"""Known patterns of text, ids and masks in plain words (group A of the fault catalogue).

A detector gets one example as both legs saw it, `x` and `y`, and says what `y` has and `x` has not.
It is tried both ways, so a hint names the leg that differs, and swapping the legs mirrors it. Who
of the two is wrong, the clause says. A hint holds no text and no ordinary ids.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.tokendiff import Ids, common_prefix


@dataclass(frozen=True, kw_only=True)
class Side:
    """One example in one leg. `control` maps the ids of control tokens to their contents."""

    name: str
    text: str
    ids: Ids
    mask: Ids
    num_before: int
    control: Mapping[int, str]

    def is_control(self) -> Any:
        """Return which tokens are control tokens, (T,) bool."""
        return np.isin(self.ids, list(self.control))

    def token(self, position: int) -> str:
        """Return the content of a control token, "an ordinary token", or "the end"."""
        if position >= len(self.ids):
            return "the end"
        return self.control.get(int(self.ids[position]), "an ordinary token")


Detector = Callable[[Side, Side], str | None]


def side(row: Mapping[str, Any], *, name: str, control: Mapping[int, str]) -> Side:
    """Return one leg's view of an example (a row of `example_rows`)."""
    return Side(
        name=name,
        text=row["text"],
        ids=row["ids"],
        mask=row["mask"],
        num_before=row["num_tokens_before_truncation"],
        control=control,
    )


def text_hint(a: Side, b: Side) -> str | None:
    """Return what a pair of different texts looks like, or None."""
    return _first(TEXT, a, b)


def ids_hint(a: Side, b: Side) -> str | None:
    """Return what different ids of one text look like, or None."""
    return _first(IDS, a, b)


def mask_hint(a: Side, b: Side) -> str | None:
    """Return what different masks of the same ids look like, or None."""
    return _first(MASK, a, b)


def _first(detectors: tuple[Detector, ...], a: Side, b: Side) -> str | None:
    for detector in detectors:
        for x, y in ((a, b), (b, a)):
            if (hint := detector(x, y)) is not None:
                return hint
    return None


# Text: how `y` was rendered.


def _generic_layout(x: Side, y: Side) -> str | None:
    marks = [mark for mark in x.control.values() if mark in x.text]
    if not marks or any(mark in y.text for mark in marks):
        return None
    if "User:" in y.text and "Assistant:" in y.text:
        return f"{y.name} renders a generic layout (User: / Assistant:) instead of the template"
    return f"{y.name} renders none of the template's control tokens: another layout"


def _stripped(x: Side, y: Side) -> str | None:
    if y.text == x.text.strip():
        return f"{y.name} strips white space from the rendered text"
    if y.text == x.text.rstrip():
        return f"{y.name} strips white space from the end of the rendered text"
    return None


def _leading_space(x: Side, y: Side) -> str | None:
    return f"{y.name} has a leading space" if y.text == " " + x.text else None


def _normalised(x: Side, y: Side) -> str | None:
    for form in ("NFC", "NFKC"):
        if y.text == unicodedata.normalize(form, x.text):
            return f"{y.name} normalises the text to {form}"
    return None


def _converted(x: Side, y: Side) -> str | None:
    if y.text == x.text.replace("\r\n", "\n"):
        return f"{y.name} turns CR LF into LF"
    if y.text in (html.escape(x.text), html.escape(x.text, quote=False)):
        return f"{y.name} escapes the text as HTML"
    return None


def _doubled_control(x: Side, y: Side) -> str | None:
    for mark in x.control.values():
        if mark in x.text and y.text in (
            x.text.replace(mark, mark * 2),
            _replace_last(x.text, mark, mark * 2),
            x.text + mark,
        ):
            return f"{y.name} has {mark} twice"
    return None


def _newline_after_control(x: Side, y: Side) -> str | None:
    for mark in x.control.values():
        if mark in x.text and y.text in (
            x.text.replace(mark, mark + "\n"),
            _replace_last(x.text, mark, mark + "\n"),
        ):
            return f"{y.name} has one more newline after {mark}"
    return None


def _missing_end(x: Side, y: Side) -> str | None:
    for mark in x.control.values():
        if x.text.rstrip().endswith(mark) and y.text == _replace_last(x.text, mark, ""):
            return f"{y.name} has no {mark} at the end"
    return None


def _extra_turn(x: Side, y: Side) -> str | None:
    if len(y.text) <= len(x.text):
        return None
    start, extra = _insertion(x.text, y.text)
    if not extra:
        return None
    if "system" in extra and start < len(x.text) / 2:
        return f"{y.name} has a system turn that {x.name} has not: a default system prompt"
    if extra == " ":
        return f"{y.name} has one more space, before character {start}"
    if extra == "\n":
        return f"{y.name} has one more newline, before character {start}"
    if any(mark in extra for mark in y.control.values()):
        return f"{y.name} has one more part with control tokens, {len(extra)} characters long"
    return None


def _insertion(x: str, y: str) -> tuple[int, str]:
    """Return where and what was inserted into x to give y; an empty text when it is not one."""
    head = 0
    while head < len(x) and x[head] == y[head]:
        head += 1
    extra = len(y) - len(x)
    return (head, y[head : head + extra]) if y[head + extra :] == x[head:] else (head, "")


def _replace_last(text: str, old: str, new: str) -> str:
    before, found, after = text.rpartition(old)
    return before + new + after if found else text


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


TEXT: tuple[Detector, ...] = (
    _generic_layout, _leading_space, _stripped, _normalised, _converted, _doubled_control,
    _newline_after_control, _missing_end, _extra_turn,
)  # fmt: skip
IDS: tuple[Detector, ...] = (
    _second_beginning, _missing_last, _cut_other_side, _other_length, _typed_control, _not_normal,
    _after_control,
)  # fmt: skip
MASK: tuple[Detector, ...] = (
    _everything, _nothing, _last_turn_only, _first_token_lost, _control_ignored, _shifted,
    _prompt_supervised, _after_turn, _rolled,
)  # fmt: skip
