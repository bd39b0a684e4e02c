"""The chat template (S-03, S-04): what can be refused from its source alone.

Parsed with Jinja2 and never rendered; each leg renders with its own engine.
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from oracle.errors import DataError
from oracle.files import read_text

REMEDY = "wrap what the assistant says: {% generation %}{{ message['content'] }}{% endgeneration %}"
CAPTURES: dict[type[nodes.Node], str] = {
    nodes.AssignBlock: "a {% set %} capture",
    nodes.Macro: "a macro",
    nodes.CallBlock: "a call block",
    nodes.FilterBlock: "a filter block",
}


class _GenerationTag(Extension):
    """Parses `{% generation %}` … `{% endgeneration %}` so that the tree shows where it stands."""

    tags = {"generation"}  # noqa: RUF012 (the type that Jinja2 declares)

    def parse(self, parser: Parser) -> nodes.Node:
        """Return a call block that `_is_generation` knows again."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("generation"), [], [], body).set_lineno(line)


def check_template(path: Path, *, mask: str) -> int:
    """Check a template's source and return its number of generation blocks; raises DataError."""
    source = read_text(path, "template")
    if "\r" in source:
        line = source.count("\n", 0, source.index("\r")) + 1
        raise DataError(
            f"template {path}:{line} holds a carriage return (CR), on which engines disagree "
            "(S-03); save it with line ends of LF alone."
        )
    environment = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        extensions=[_GenerationTag, "jinja2.ext.loopcontrols"],
    )
    try:
        tree = environment.parse(source)
    except TemplateSyntaxError as error:
        reason = (error.message or "syntax error").rstrip(".")
        raise DataError(f"template {path}:{error.lineno} does not parse: {reason}.") from None
    except RecursionError:
        raise DataError(f"template {path} is nested too deep.") from None
    for name in tree.find_all(nodes.Name):
        if name.name == "strftime_now":
            raise DataError(
                f"template {path}:{name.lineno} names strftime_now; a render must not depend on "
                "the date (S-03): write the date as text."
            )
    if mask == "all":
        return sum(map(_is_generation, tree.find_all(nodes.CallBlock)))
    num_blocks = _count_blocks(tree, path, inside=None)
    if not num_blocks:
        raise DataError(
            f'template {path} has no generation tags and data.mask is "assistant"; {REMEDY}, or '
            'set mask = "all" to train on everything (S-04).'
        )
    return num_blocks


def _count_blocks(node: nodes.Node, path: Path, *, inside: str | None) -> int:
    """Count generation blocks below a node; `inside` is what captures them, which S-04 forbids."""
    count = 0
    for child in node.iter_child_nodes():
        capture = inside
        if isinstance(child, nodes.CallBlock) and _is_generation(child):
            if inside is not None:
                raise DataError(
                    f"template {path}:{child.lineno}: a generation block stands inside {inside}, "
                    "where its place in the text is lost (S-04); move it to where the text is "
                    "printed."
                )
            count += 1
            capture = "another generation block"
        else:
            capture = CAPTURES.get(type(child), inside)
        count += _count_blocks(child, path, inside=capture)
    return count


def _is_generation(block: nodes.CallBlock) -> bool:
    called = block.call.node
    return isinstance(called, nodes.ExtensionAttribute) and called.name == "generation"
