"""Known patterns of different renderings of one conversation (S-03), in plain words."""

from __future__ import annotations

import html
import unicodedata

from oracle.side import Detector, Side, first_hint


def text_hint(a: Side, b: Side) -> str | None:
    """Return what a pair of different texts looks like, or None."""
    return first_hint(TEXT, a, b)


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


TEXT: tuple[Detector, ...] = (
    _generic_layout, _leading_space, _stripped, _normalised, _converted, _doubled_control,
    _newline_after_control, _missing_end, _extra_turn,
)  # fmt: skip
