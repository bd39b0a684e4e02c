"""A template's source: what S-03 and S-04 refuse in it, and the marking of generation blocks.

minijinja does not know `{% generation %}`. `mark_generation` rewrites the two tags to block tags
that it does know; an expression would not do, because trim_blocks and lstrip_blocks act on block
tags only:

    {%- generation -%} … {%+ endgeneration %}   becomes
    {%- with %}{% filter mark -%} … {%+ endfilter %}{% endwith %}

The `with` keeps a variable that is set inside the block inside it, as Jinja documents of blocks.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .engine import UNFAITHFUL
from .errors import BadInput

CAPTURES = ("set", "macro", "call", "filter")
SCOPES = ("filter", "set", "macro", "call", "with", "block", "autoescape", "generation")
OPENERS = ("for", "if", *SCOPES)
HOW_TO_ADD = (
    "put {% generation %} before and {% endgeneration %} after what the assistant writes, "
    'or train on everything with data.mask = "all"'
)

_RAW = re.compile(r"\{%[-+]?\s*raw\s*[-+]?%\}(?s:.*?)\{%[-+]?\s*endraw\s*[-+]?%\}")
_COMMENT = re.compile(r"\{#(?s:.*?)#\}")
_STRING = re.compile(r"""'(?:[^'\\]|\\(?s:.))*'|"(?:[^"\\]|\\(?s:.))*"|(?s:.)""")
_INLINE_SET = re.compile(r"[\w.\s,()]+=(?!=)")


@dataclass(frozen=True, kw_only=True)
class Tag:
    """One `{% … %}`: `left` and `right` are its white-space control signs, or empty."""

    name: str
    rest: str
    left: str
    right: str
    start: int
    end: int


def tags(source: str) -> Iterator[Tag]:
    """The block tags in order; comments, raw blocks and `{{ … }}` are stepped over."""
    position = 0
    while (start := _next_opening(source, position)) is not None:
        if skipped := _RAW.match(source, start) or _COMMENT.match(source, start):
            position = skipped.end()
            continue
        end = _closing(source, start)
        if end is None:
            return  # not closed: the engine says where
        if source.startswith("{%", start):
            yield _tag(source, start, end)
        position = end


def _next_opening(source: str, position: int) -> int | None:
    found = re.compile(r"\{[%{#]").search(source, position)
    return found.start() if found else None


def _closing(source: str, start: int) -> int | None:
    """The end of what opens at `start`; its `%}` or `}}` counts outside of strings and brackets."""
    closing, depth, position = ("%}" if source[start + 1] == "%" else "}}"), 0, start + 2
    while position < len(source):
        if depth == 0 and source.startswith(closing, position):
            return position + 2
        piece = _STRING.match(source, position)
        assert piece is not None
        if piece[0] in "[({":
            depth += 1
        elif piece[0] in "])}":
            depth = max(depth - 1, 0)
        position = piece.end()
    return None


def _tag(source: str, start: int, end: int) -> Tag:
    body = source[start + 2 : end - 2]
    left = body[:1] if body[:1] in ("-", "+") else ""
    right = body[-1:] if body[-1:] in ("-", "+") and len(body) > len(left) else ""
    inner = body[len(left) : len(body) - len(right)]
    name = re.match(r"\s*(\w*)", inner)
    assert name is not None
    return Tag(
        name=name[1], rest=inner[name.end() :].strip(), left=left, right=right, start=start, end=end
    )


def check_template(source: str, name: str, mask: str) -> None:
    """Refuses what S-03 and S-04 refuse, and what the engine would get wrong in silence.

    Raises:
        BadInput: the sentence names the template and the line in it.
    """
    if "\r" in source:
        raise BadInput(
            f"{name}: a template has no CR (S-03), this one has; save it with LF line ends"
        )
    if re.search(r"\bstrftime_now\b", source):
        raise BadInput(
            f"{name}: a render must not depend on the date (S-03), but the template names "
            "strftime_now"
        )
    for pattern, reason in UNFAITHFUL.items():
        if re.search(pattern, source):
            raise BadInput(f"{name}: this stack's engine cannot render it as Jinja does: {reason}")
    open_blocks: list[str] = []
    found = False
    for tag in tags(source):
        where = f"{name}: line {source.count(chr(10), 0, tag.start) + 1}"
        if tag.name in ("break", "continue"):
            _check_jump(tag.name, open_blocks, where)
        if tag.name == "generation" and mask == "assistant":
            _check_generation(tag, open_blocks, where)
            found = True
        if tag.name in OPENERS and not (tag.name == "set" and _INLINE_SET.match(tag.rest)):
            open_blocks.append(tag.name)
        elif tag.name.startswith("end") and open_blocks and tag.name == f"end{open_blocks[-1]}":
            open_blocks.pop()
    if mask == "assistant" and not found:
        raise BadInput(
            f"{name}: the mask needs generation tags (S-04) and the template has none; {HOW_TO_ADD}"
        )


def _check_generation(tag: Tag, open_blocks: list[str], where: str) -> None:
    if "generation" in open_blocks:
        raise BadInput(
            f"{where}: a generation block stands inside another (S-04); close the first one "
            "before it"
        )
    for block in open_blocks:
        if block in CAPTURES:
            raise BadInput(
                f"{where}: a generation block stands inside a {block} block, which captures it "
                "(S-04)"
            )
    if tag.rest:
        raise BadInput(
            f"{where}: the generation tag takes no arguments (S-04); remove what follows its name"
        )


def _check_jump(jump: str, open_blocks: list[str], where: str) -> None:
    """minijinja loses its output, or panics, when a jump leaves a block that captures or scopes."""
    for block in reversed(open_blocks):
        if block == "for":
            return
        if block in SCOPES:
            raise BadInput(
                f"{where}: `{jump}` leaves a {block} block, which has no meaning; move it out of "
                "the block"
            )


def mark_generation(source: str, mask: str) -> str:
    """The source with generation and filter tags rewritten to what minijinja scopes and marks."""
    opening, closing = "with", "endwith"
    if mask == "assistant":
        opening, closing = "with %}{% filter mark", "endfilter %}{% endwith"
    result, position = [], 0
    for tag in tags(source):
        new = {
            "generation": opening,
            "endgeneration": closing,
            "filter": f"with %}}{{% filter {tag.rest}",
            "endfilter": "endfilter %}{% endwith",
        }.get(tag.name)
        if new is not None:
            result += [source[position : tag.start], f"{{%{tag.left} {new} {tag.right}%}}"]
            position = tag.end
    return "".join([*result, source[position:]])
