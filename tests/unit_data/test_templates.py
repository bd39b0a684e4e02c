"""Both templates give the text that is written here, and the same text and spans in both engines.

The one side is transformers (jinja2), the other minijinja with the two generation tags rewritten to
a filter that marks the text.
"""

import re
from typing import Any

import minijinja
import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from tests.unit_data.conftest import DATA, Row

OPEN, CLOSE = "\ufdd0", "\ufdd1"
NAMES = ("chatml", "history")
Rendered = tuple[str, list[tuple[int, int]]]


def source(name: str) -> str:
    return (DATA / "templates" / f"{name}.jinja").read_bytes().decode()


def through_transformers(
    template: str, messages: list[dict[str, str]], prompt: bool = False
) -> Rendered:
    rendered: Any = render_jinja_template(
        conversations=[messages],
        chat_template=template,
        return_assistant_tokens_mask=True,
        add_generation_prompt=prompt,
    )
    (text,), (spans,) = rendered
    return text, spans


def through_minijinja(template: str, messages: list[dict[str, str]], prompt: bool = False) -> str:
    """The text with `OPEN` and `CLOSE` around each span."""
    template = re.sub(r"\{%(-?)\s*generation\s*(-?)%\}", r"{%\1 filter mark \2%}", template)
    template = re.sub(r"\{%(-?)\s*endgeneration\s*(-?)%\}", r"{%\1 endfilter \2%}", template)
    engine = minijinja.Environment(trim_blocks=True, lstrip_blocks=True)
    engine.add_filter("mark", lambda text: f"{OPEN}{text}{CLOSE}")
    return engine.render_str(template, messages=messages, add_generation_prompt=prompt)


def recover(marked: str) -> Rendered:
    """Text without marks, and the spans that they enclosed."""
    text, spans = "", []
    for piece in re.split(f"({OPEN}.*?{CLOSE})", marked, flags=re.DOTALL):
        if piece.startswith(OPEN):
            spans.append((len(text), len(text) + len(piece) - 2))
            piece = piece[1:-1]
        text += piece
    return text, spans


def talk(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


CHAT = talk(
    ("system", " S"), ("user", "u1\n"), ("assistant", "a1 "), ("user", "u2"), ("assistant", "a2")
)


def test_chatml_is_the_text_written_here() -> None:
    text, spans = through_transformers(source("chatml"), CHAT)
    assert text == (
        "<|im_start|>system\n S<|im_end|>\n"
        "<|im_start|>user\nu1\n<|im_end|>\n"
        "<|im_start|>assistant\na1 <|im_end|>\n"
        "<|im_start|>user\nu2<|im_end|>\n"
        "<|im_start|>assistant\na2<|im_end|>\n"
    )
    assert [text[a:b] for a, b in spans] == ["a1 <|im_end|>", "a2<|im_end|>"]


def test_chatml_adds_no_system_prompt_and_a_generation_prompt_on_request() -> None:
    user = talk(("user", "u"))
    assert through_transformers(source("chatml"), user) == ("<|im_start|>user\nu<|im_end|>\n", [])
    expected = "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n"
    assert through_transformers(source("chatml"), user, prompt=True) == (expected, [])
    assert through_minijinja(source("chatml"), user, prompt=True) == expected


def test_history_rewrites_earlier_turns() -> None:
    chat = talk(
        ("user", "u1"),
        ("assistant", "<think>\nt1\n</think>\n\na1"),
        ("user", "u2"),
        ("assistant", "<think>t2</think>a2"),
    )
    text, spans = through_transformers(source("history"), chat)
    assert text == (
        "<|im_start|>user\n(1 left) u1<|im_end|>\n"
        "<|im_start|>assistant\na1<|im_end|>\n"
        "<|im_start|>user\n(0 left) u2<|im_end|>\n"
        "<|im_start|>assistant\n<think>t2</think>a2<|im_end|>\n"
    )
    assert [text[a:b] for a, b in spans] == ["a1<|im_end|>", "<think>t2</think>a2<|im_end|>"]
    shorter, _ = through_transformers(source("history"), chat[:2])
    assert not text.startswith(shorter)


@pytest.mark.parametrize("name", NAMES)
def test_engines_agree_on_edge_set_and_sample(
    name: str, edge: dict[str, Row], sample: dict[str, list[Row]]
) -> None:
    template = source(name)
    for row in [*edge.values(), *sample["train"][:300]]:
        expected = through_transformers(template, row["messages"])
        assert recover(through_minijinja(template, row["messages"])) == expected, row["id"]
        turns = sum(message["role"] == "assistant" for message in row["messages"])
        assert len(expected[1]) == turns, row["id"]
