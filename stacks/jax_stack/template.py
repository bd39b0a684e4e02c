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
_PIECE = re.compile(
    r"""'(?:[^'\\]|\\(?s:.))*'|"(?:[^"\\]|\\(?s:.))*"|[-+]?%\}|-?\}\}|[\[({]|[\])}]|(?s:.)"""
)
_INLINE_SET = re.compile(r"[\w.\s,()]+=(?!=)")
_STRING = re.compile(r"""'(?:[^'\\]|\\(?s:.))*'|"(?:[^"\\]|\\(?s:.))*\"""")


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
    """Where the `%}` or `}}` that closes `start` ends; brackets inside are balanced first."""
    closing, depth = ("%}" if source[start + 1] == "%" else "}}"), 0
    for piece in _PIECE.finditer(source, start + 2):
        token = piece.group()
        if token.endswith(closing) and token[0] not in "'\"":
            if depth == 0 or closing == "%}":
                return piece.end()
            depth -= 2  # `}}` closes two braces of a nested mapping
        elif token in ("[", "(", "{"):
            depth += 1
        elif token in ("]", ")", "}"):
            depth = max(depth - 1, 0)
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
    open_blocks: list[str] = []
    found = False
    for tag in tags(source):
        where = f"{name}: line {source.count(chr(10), 0, tag.start) + 1}"
        if tag.name == "do":
            raise BadInput(
                f"{where}: the tag `do` is an extension that S-03 does not switch on; use set"
            )
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
    opening = "{% filter mark " if mask == "assistant" else None
    result, position = [], 0
    for tag in tags(source):
        left, right = "{%" + tag.left, tag.right + "%}"
        if tag.name == "generation":
            new = f"{left} with %}}{opening}{right}" if opening else f"{left} with {right}"
        elif tag.name == "endgeneration":
            new = (
                f"{left} endfilter %}}{{% endwith {right}" if opening else f"{left} endwith {right}"
            )
        elif tag.name == "filter":
            new = f"{left} with %}}{{% filter {tag.rest} {right}"
        elif tag.name == "endfilter":
            new = f"{left} endfilter %}}{{% endwith {right}"
        else:
            continue
        result += [source[position : tag.start], new]
        position = tag.end
    return "".join([*result, source[position:]])
