"""Rendering (S-03) and the spans of generated text (S-04).

The template is run as a stream: the two tags become calls that note how many characters have come
out so far. So the text never holds a marker, and no output is searched for one.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.parser import Parser

from tests.reference.conversations import Message
from tests.reference.errors import RefusedError, require

BUFFERED = ("set", "macro", "call", "filter")  # their bodies do not go straight to the output
Span = tuple[int, int]


class Generation(jinja2.ext.Extension):
    """`{% generation %}` … `{% endgeneration %}`: the body, between two notes of the length."""

    tags = {"generation"}  # noqa: RUF012  (the base class declares it so)

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self.num_blocks = 0  # in the template
        self.misplaced: str | None = None  # the tag around a generation block, if one is wrong
        self.length = 0  # characters that have come out
        self.spans: list[Span] = []
        self.start = 0

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Opens at the tag's name; leaves after the closing tag."""
        line = next(parser.stream).lineno
        self.num_blocks += 1
        for tag in parser._tag_stack[:-1]:
            if tag in (*BUFFERED, "generation"):
                self.misplaced = tag
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        opens = nodes.ExprStmt(self.call_method("begin", lineno=line), lineno=line)
        closes = nodes.ExprStmt(self.call_method("end", lineno=line), lineno=line)
        return [opens, *body, closes]

    def begin(self) -> None:
        """The block begins where the output stands."""
        self.start = self.length

    def end(self) -> None:
        """The block ends where the output stands; empty ones are dropped."""
        if self.length > self.start:
            self.spans.append((self.start, self.length))


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """Text of one conversation and its generated spans (none with mask = "all")."""

    text: str
    spans: tuple[Span, ...]


class Template:
    """A compiled template with its variables of the config."""

    def __init__(self, source: str, *, bos_token: str, eos_token: str, mask: str) -> None:
        require("\r" not in source, "the template's source holds CR: engines disagree on it")
        environment = jinja2.Environment(
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
            keep_trailing_newline=False,
            extensions=["jinja2.ext.loopcontrols", Generation],
        )
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        try:
            tree = environment.parse(source)
            names = {name.name for name in tree.find_all(nodes.Name)}
            self.template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise RefusedError(f"the template does not parse: {type(error).__name__}") from None
        require("strftime_now" not in names, "the template names strftime_now: dates are refused")
        extension = environment.extensions[Generation.identifier]
        assert isinstance(extension, Generation)
        self.generation = extension
        self.mask = mask
        if mask == "assistant":
            require(
                extension.num_blocks > 0,
                "the template has no generation tag: write {% generation %} before and"
                " {% endgeneration %} after the assistant's text",
            )
            require(
                extension.misplaced is None,
                f"a generation block stands inside a {extension.misplaced} block",
            )
        self.variables: dict[str, Any] = {
            "bos_token": bos_token,
            "eos_token": eos_token,
            "add_generation_prompt": False,
            "raise_exception": raise_exception,
        }

    def render(self, messages: Sequence[Message]) -> Rendered:
        """The text of one conversation. Raises RefusedError for any error of the engine."""
        generation = self.generation
        generation.length, generation.spans = 0, []
        pieces: list[str] = []
        given = [dict(message) for message in messages]
        try:
            for piece in self.template.generate(messages=given, **self.variables):
                pieces.append(piece)
                generation.length += len(piece)
        except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise RefusedError(f"the template fails: {type(error).__name__}") from None
        spans = tuple(generation.spans) if self.mask == "assistant" else ()
        return Rendered(text="".join(pieces), spans=spans)


def raise_exception(message: str) -> None:
    """The template's own way to refuse a conversation."""
    raise jinja2.TemplateError(message)
