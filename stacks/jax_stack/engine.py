"""minijinja, set up to do what Jinja documents (S-03).

Where it differs and can be told to do as Jinja does, it is told so here; what it would get wrong in
silence is refused by name (`UNFAITHFUL`); what it does not know it refuses itself. Left as it is: a
float of 1e16 or more, or under 1e-4, is printed without an exponent.
"""

import html
import json
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import minijinja

# Pattern in a template's source -> why this engine cannot render it as Jinja does.
UNFAITHFUL = {
    r"\.title\s*\(": "`title()` capitalises after an apostrophe in Python; use the filter",
    r"\bloop\s*\.\s*revindex0?\b": "`loop.revindex` is not known; use loop.length - loop.index0",
    r"\{%[-+]?\s*do\b": "the tag `do` is an extension that S-03 does not switch on; use set",
}
NOT_IN_JINJA = {
    "filters": ("bool", "chain", "lines", "pluralize", "split", "zip"),
    "tests": ("endingwith", "int", "safe", "startingwith"),
}


class RaisedByTemplate(Exception):
    """The template called raise_exception."""


def make_environment(filters: Mapping[str, Callable[..., Any]]) -> minijinja.Environment:
    """The engine with the settings of S-03, Jinja's built-ins and `filters`."""
    environment = minijinja.Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,  # the one that S-03 removes is removed before
        undefined_behavior="lenient",
        auto_escape_callback=lambda _: False,
        filters=FILTERS | dict(filters),
        tests={"sequence": _is_sequence},
        globals={"raise_exception": _raise_exception, "cycler": Cycler},
        debug=False,  # debug information quotes variables
    )
    environment.remove_global("debug")
    for name in NOT_IN_JINJA["filters"]:
        environment.remove_filter(name)
    for name in NOT_IN_JINJA["tests"]:
        environment.remove_test(name)
    return environment


def _raise_exception(message: object = "") -> None:
    raise RaisedByTemplate


def _is_sequence(value: Any) -> bool:
    """In Jinja a string is a sequence too."""
    return hasattr(value, "__len__") and hasattr(value, "__getitem__")


class Cycler:
    """Jinja's `cycler`: `next()` returns its values in turn, `current` is the one to come."""

    def __init__(self, *values: Any) -> None:
        self._values, self._position = values, 0

    @property
    def current(self) -> Any:
        """The value that `next` returns."""
        return self._values[self._position]

    def next(self) -> Any:
        """The current value; the next one becomes current."""
        value = self.current
        self._position = (self._position + 1) % len(self._values)
        return value

    def reset(self) -> None:
        """Begins again."""
        self._position = 0


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)  # S-03: order kept, no escapes


def _escape(value: Any) -> str:
    return html.escape(str(value)).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")


def _indent(value: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    prefix = width if isinstance(width, str) else " " * width
    head, newline, tail = value.partition("\n")
    tail = textwrap.indent(tail, prefix, (lambda _: True) if blank else None)
    return (prefix if first else "") + head + newline + tail


def _trim(value: Any, chars: str | None = None) -> str:
    return str(value).strip(chars)


def _wordcount(value: Any) -> int:
    return len(re.findall(r"\w+", str(value)))


FILTERS: dict[str, Callable[..., Any]] = {
    "tojson": _tojson,
    "escape": _escape,
    "e": _escape,
    "indent": _indent,
    "trim": _trim,
    "wordcount": _wordcount,
}
