"""Chat template: messages to text and the ranges that the assistant generated (S-03, S-04).

The route is that of `transformers`: its sandboxed Jinja environment and its `{% generation %}`
tracker, the parts that `apply_chat_template(..., return_assistant_tokens_mask=True)` is made of.
They are called below `render_jinja_template` because that function also defines `tools` and
`documents`, which S-03 leaves undefined.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.examples import Message

_HOW_TO_TAG = (
    "wrap what the assistant says in {% generation %} and {% endgeneration %}, for example "
    "{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}, "
    'or set data.mask = "all"'
)

Span = tuple[int, int]  # characters [start, end) of the rendered text


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """The text of one conversation and the non-empty spans in it, in order."""

    text: str
    spans: tuple[Span, ...]  # empty with mask = "all"


class Template:
    """A compiled chat template with the settings of S-03.

    `name` stands for the template in messages, `source` is its text. Raises `BadInput` when it
    is no Jinja, depends on the date, or (mask = "assistant") cannot say what was generated.
    """

    def __init__(
        self,
        name: str,
        source: str,
        *,
        bos_token: str,
        eos_token: str,
        mask: Literal["assistant", "all"],
    ) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        from transformers.utils import chat_template_utils

        if "\r" in source:  # Jinja would read it as LF, other engines as it is
            line = source[: source.index("\r")].count("\n") + 1
            raise BadInput(f"S-03: the template {name} line {line} holds a CR; end lines with LF")
        self.name = name
        self._tracks = mask == "assistant"
        self._render_with_spans: Any = chat_template_utils._render_with_assistant_indices
        try:
            compile_template: Any = chat_template_utils._compile_jinja_template
            self._compiled = compile_template(source)
            tree = self._compiled.environment.parse(source)
        except Exception as error:  # S-03: any error of the engine is bad input
            raise BadInput(
                f"S-03: the template {name} is refused by the engine ({type(error).__name__}"
                f"{_line(error)}); correct it"
            ) from error
        undefined = self._compiled.environment.undefined
        self._variables = {"bos_token": bos_token, "eos_token": eos_token}
        self._absent = {"tools": undefined(name="tools"), "documents": undefined(name="documents")}
        _refuse_dates(name, tree)
        if self._tracks:
            _check_generation(name, tree)

    def render(self, messages: list[Message], where: str) -> Rendered:
        """Render one conversation; `where` names the file and line, or the example, in errors."""
        try:
            text, spans = self._render_with_spans(
                self._compiled,
                messages,
                add_generation_prompt=False,
                **self._absent,
                **self._variables,
            )
        except Exception as error:  # S-03: any error of the engine is bad input
            raise BadInput(
                f"S-03: the template {self.name} does not render {where} ({type(error).__name__}"
                f"{_line(error)}); correct one of the two"
            ) from error
        kept = tuple((start, end) for start, end in spans if start < end) if self._tracks else ()
        return Rendered(text=text, spans=kept)


def load_template(
    path: Path, *, bos_token: str, eos_token: str, mask: Literal["assistant", "all"]
) -> tuple[Template, bytes, str]:
    """The template at `path`, the bytes that were read, and their hash."""
    source, text, sha256 = read_template(path)
    template = Template(str(path), text, bos_token=bos_token, eos_token=eos_token, mask=mask)
    return template, source, sha256


def read_template(path: Path) -> tuple[bytes, str, str]:
    """The bytes of a template, its text, and the hash of the bytes."""
    try:
        source = path.read_bytes()
        text = source.decode("utf-8")
    except OSError as error:
        raise BadInput(
            f"S-03: the template {path} cannot be read: {error.strerror}; check data.template"
        ) from error
    except UnicodeDecodeError as error:
        raise BadInput(f"S-03: the template {path}: byte {error.start} is not UTF-8") from None
    return source, text, hashlib.sha256(source).hexdigest()


def _line(error: Exception) -> str:
    """Where in the template an error of Jinja lies; its message is left out: it can hold text."""
    is_jinja = type(error).__module__.startswith("jinja2")  # Python's own count other lines
    number = getattr(error, "lineno", None) if is_jinja else None
    return f", line {number}" if number is not None else ""


def _descend(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Every node of a syntax tree below `node`, with its ancestors, outermost first."""
    for child in node.iter_child_nodes():
        yield child, (*path, node)
        yield from _descend(child, (*path, node))


def _refuse_dates(name: str, tree: Any) -> None:
    for node, _ in _descend(tree):
        if type(node).__name__ == "Name" and node.name == "strftime_now":
            raise BadInput(
                f"S-03: the template {name} line {node.lineno} names strftime_now; "
                "a render must not depend on the date, write the date out"
            )


def _is_generation(node: Any) -> bool:
    """`{% generation %}` is parsed to a call block on a method of transformers' extension."""
    return type(node).__name__ == "CallBlock" and (
        getattr(node.call.node, "name", None) == "_generation_support"
    )


# Where output is collected before it joins the text, so that the tracker's positions are wrong.
_COLLECTORS = {
    "AssignBlock": "a {% set %} capture",
    "Macro": "a macro",
    "CallBlock": "a call block",
    "FilterBlock": "a filter block",
}


def _check_generation(name: str, tree: Any) -> None:
    """S-04: there is a generation block, and each writes straight to the text."""
    found = False
    # Two more collectors that S-04 does not name: a recursive loop, and a block called as self.x()
    calls_blocks = any(
        type(node).__name__ == "Name" and node.name == "self" for node, _ in _descend(tree)
    )
    for node, ancestors in _descend(tree):
        if not _is_generation(node):
            continue
        found = True
        for outer in ancestors:
            kind = type(outer).__name__
            if _is_generation(outer):
                inside = "another generation block"
            elif kind == "For" and outer.recursive:
                inside = "a recursive for loop"
            elif kind == "Block" and calls_blocks:
                inside = "a {% block %} that may be called through self"
            elif kind in _COLLECTORS:
                inside = _COLLECTORS[kind]
            else:
                continue
            raise BadInput(
                f"S-04: the template {name} line {node.lineno} has a generation block inside "
                f"{inside}, so its place in the text is unknown; move it out"
            )
    if not found:
        raise BadInput(f"S-04: the template {name} has no generation tag; {_HOW_TO_TAG}")
