"""Conversations to text and spans with minijinja (S-03, S-04).

A generation block is a `filter mark` block (template.py) whose output stands between U+FDD0 and
U+FDD1; S-02 keeps both out of contents. The spans are what stands between them, and they are taken
out again.
"""

import re
from dataclasses import dataclass
from typing import Any

import minijinja

from .engine import RaisedByTemplate, make_environment
from .errors import BadInput
from .examples import MARKERS, Messages
from .template import check_template, mark_generation

Span = tuple[int, int]  # characters, half-open

START, END = MARKERS
_MARKER = re.compile(f"[{START}{END}]")

# Python's white space has four characters that the engine's strip(), split() and trim do not know.
# They are replaced by these, which both know, for as long as a render takes.
_SEPARATORS = "\x1c\x1d\x1e\x1f"
_STAND_INS = "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u205f\u3000\u1680"
_TRIMS = re.compile(r"\b(strip|lstrip|rstrip|split|trim|isspace)\b")
_SPLITS_LINES = re.compile(r"\.splitlines\b")
_LINE_ENDS = re.compile("[\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """A text and its generated ranges of characters."""

    text: str
    spans: list[Span]


class Renderer:
    """One compiled template, used for every conversation of a run."""

    def __init__(
        self, *, source: str, name: str, bos_token: str, eos_token: str, mask: str
    ) -> None:
        """Compiles `source`.

        Raises:
            BadInput: the template is refused by S-03 or S-04, or the engine cannot parse it.
        """
        check_template(source, name, mask)
        source = source.removesuffix("\n")  # one, which S-03 removes
        self._name = name
        self._trims = bool(_TRIMS.search(source))
        self._splits_lines = bool(_SPLITS_LINES.search(source))
        self._has_marker = mask == "assistant"
        self._num_marked = 0
        self._source = source
        self._variables = {
            "bos_token": bos_token,
            "eos_token": eos_token,
            "add_generation_prompt": False,
        }
        self._environment = make_environment({"mark": self._mark})
        try:
            self._environment.add_template("chat", mark_generation(source, mask))
        except minijinja.TemplateError as error:
            raise BadInput(
                f"{name}: line {error.line}: the engine cannot parse it ({error.kind}); mend it"
            ) from None

    def _mark(self, text: Any) -> str:
        self._num_marked += 1
        return f"{START}{text}{END}"

    def render(self, messages: Messages, where: str) -> Rendered:
        """The text of a conversation; `where` (file:line) is for messages.

        Raises:
            BadInput: the template called raise_exception, or the engine failed.
        """
        stand_ins = self._stand_ins(messages, where)
        if stand_ins:
            table = {ord(here): there for here, there in stand_ins}
            messages = [m | {"content": m["content"].translate(table)} for m in messages]
        self._num_marked = 0
        marked = self._run(messages, where)
        if stand_ins:
            marked = marked.translate({ord(there): here for here, there in stand_ins})
        return self._take_out_markers(marked, where)

    def _run(self, messages: Messages, where: str) -> str:
        try:
            return str(
                self._environment.render_template("chat", messages=messages, **self._variables)
            )
        except RaisedByTemplate:
            raise BadInput(
                f"{where}: the template {self._name} refuses the conversation (S-03: "
                "raise_exception)"
            ) from None
        except minijinja.TemplateError as error:
            reason = f"{error.kind} at line {error.line} of the template"
            raise BadInput(
                f"{where}: the template {self._name} cannot render it ({reason}); mend either"
            ) from None
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a panic of the engine is no Exception
            reason = type(error).__name__
            raise BadInput(
                f"{where}: the template {self._name} cannot render it ({reason}); mend either"
            ) from None

    def _stand_ins(self, messages: Messages, where: str) -> list[tuple[str, str]]:
        """Pairs (separator, stand-in) that make the engine trim as Python does; mostly none."""
        if not (self._trims or self._splits_lines):
            return []
        contents = "".join(message["content"] for message in messages)
        if self._splits_lines and _LINE_ENDS.search(contents):
            raise BadInput(
                f"{where}: the template {self._name} splits lines, and the conversation has other "
                "line ends than LF, at which this engine does not split; remove either"
            )
        used = [separator for separator in _SEPARATORS if separator in contents]
        free = [c for c in _STAND_INS if c not in contents and c not in self._source]
        if len(free) < len(used):
            raise BadInput(
                f"{where}: the template {self._name} trims white space, and the conversation has "
                f"too many kinds of it for this engine ({len(free)} left over); remove some"
            )
        return list(zip(used, free[: len(used)], strict=True))

    def _take_out_markers(self, marked: str, where: str) -> Rendered:
        if not self._has_marker:
            return Rendered(text=marked, spans=[])
        pieces = _MARKER.split(marked)
        expected = [START, END] * self._num_marked
        if len(pieces) != len(expected) + 1 or _MARKER.findall(marked) != expected:
            raise BadInput(
                f"{where}: {len(expected)} marks of generation blocks were made and "
                f"{len(pieces) - 1} arrived (S-04); the template {self._name} must print each "
                "block where it stands, and no U+FDD0 or U+FDD1"
            )
        spans, position = [], 0
        for i, piece in enumerate(pieces):
            if i % 2 == 1 and piece:
                spans.append((position, position + len(piece)))
            position += len(piece)
        return Rendered(text="".join(pieces), spans=spans)
