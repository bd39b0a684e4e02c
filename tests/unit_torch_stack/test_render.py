"""Rendering and spans on templates whose output is plain to see (S-03, S-04)."""

from pathlib import Path
from typing import Any, Literal

import pytest

from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.render import Rendered, Template, load_template

MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "secret é"}]
TAGGED = "{% generation %}x{% endgeneration %}"


def render(source: str, mask: Literal["assistant", "all"] = "assistant") -> Rendered:
    template = Template("t", source, bos_token="<b>", eos_token="<e>", mask=mask)
    return template.render(MESSAGES, "f line 3")


def test_spans_are_what_each_generation_block_wrote() -> None:
    rendered = render(
        "{% for m in messages %}[{{ m.role }}]"
        "{%- generation -%} {{ m.content }}{{ eos_token }} {%- endgeneration %}{% endfor %}"
    )
    assert rendered.text == "[user]hi<e>[assistant]secret é<e>"
    assert [rendered.text[start:end] for start, end in rendered.spans] == ["hi<e>", "secret é<e>"]


def test_empty_spans_are_dropped_and_all_ignores_spans() -> None:
    source = "a{% generation %}{% endgeneration %}b" + TAGGED
    assert render(source).spans == ((2, 3),)
    assert render(source, "all") == Rendered(text="abx", spans=())
    assert render("plain", "all").text == "plain"


def test_white_space_is_trimmed_as_the_clause_says() -> None:
    assert render("a\n  {% if true %}\n b\n  {% endif %}\n" + TAGGED + "\n").text == "a\n b\nx"
    assert render("a  \n\n", "all").text == "a  \n"  # one line feed is removed, no more
    assert render("  {{ ' ' }} ", "all").text == "    "


def test_generation_tags_trim_like_block_tags() -> None:
    rendered = render("a\n  {% generation %}\nb\n  {% endgeneration %}\nc")
    assert rendered.text == "a\nb\nc"
    assert rendered.spans == ((2, 4),)


def test_only_the_stated_variables_are_defined() -> None:
    names = ("tools", "documents", "date_string", "strftime", "pad_token")
    source = "".join(f"{{{{ {name} is defined }}}}{{{{ {name} }}}}," for name in names)
    assert render(source, "all").text == "False," * len(names)
    assert render("{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}", "all").text == (
        "<b><e>False"
    )


def test_text_is_not_escaped_and_loop_controls_work() -> None:
    source = "{% for m in messages %}<&>{{ loop.first }}{% break %}{% endfor %}"
    assert render(source, "all").text == "<&>True"


@pytest.mark.parametrize(
    "source",
    [
        "{{ tools.x }}",
        "{{ raise_exception(messages[1].content) }}",
        "{{ messages[1].content + 1 }}",
    ],
)
def test_an_error_of_the_engine_names_places_and_no_text(source: str) -> None:
    with pytest.raises(BadInput, match=r"template t does not render f line 3") as refusal:
        render(source, "all")
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("source", ["{% if %}", "{{ 'a }}", "{% nosuch %}"])
def test_a_template_that_is_no_jinja_is_refused(source: str) -> None:
    with pytest.raises(BadInput, match="refused by the engine"):
        render(source, "all")


def test_a_template_must_not_name_the_date() -> None:
    with pytest.raises(BadInput, match="line 2 names strftime_now"):
        render("a\n{% if false %}{{ strftime_now('%d') }}{% endif %}", "all")


@pytest.mark.parametrize(
    ("source", "where"),
    [
        ("{% generation %}" + TAGGED + "{% endgeneration %}", "another generation block"),
        ("{% set a %}" + TAGGED + "{% endset %}{{ a }}", "set"),
        ("{% macro f() %}" + TAGGED + "{% endmacro %}{{ f() }}", "macro"),
        ("{% filter upper %}" + TAGGED + "{% endfilter %}", "filter"),
        (
            "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}" + TAGGED + "{% endcall %}",
            "call",
        ),
        ("{% for m in messages recursive %}" + TAGGED + "{% endfor %}", "recursive"),
        ("{% block b %}" + TAGGED + "{% endblock %}{{ self.b() }}", "block"),
    ],
)
def test_a_generation_block_that_is_collected_is_refused(source: str, where: str) -> None:
    with pytest.raises(BadInput, match=f"S-04: .*{where}"):
        render(source)
    assert render(source, "all").text  # its spans do not matter there


def test_a_template_without_tags_is_told_how_to_add_them() -> None:
    with pytest.raises(BadInput, match=r"no generation tag; wrap .*\{% generation %\}"):
        render("{{ messages[0].content }}")


def test_spans_match_those_of_apply_chat_template(tmp_path: Path) -> None:
    """The whole route of the library, on a tokenizer of one token per character."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    source = "{% for m in messages %}{{ m.role }}:" + (
        "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    rendered = render(source)
    vocab = {character: number for number, character in enumerate(sorted(set(rendered.text)))}
    engine = Tokenizer(models.WordLevel(vocab))
    engine.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    load: Any = PreTrainedTokenizerFast  # untyped
    tokenizer = load(tokenizer_object=engine)
    library = tokenizer.apply_chat_template(
        MESSAGES, chat_template=source, return_dict=True, return_assistant_tokens_mask=True
    )
    own = [int(any(s <= i < e for s, e in rendered.spans)) for i in range(len(rendered.text))]
    assert library["assistant_masks"] == own
    assert sum(own) == len("secret é")


def test_a_carriage_return_in_a_template_is_refused() -> None:
    with pytest.raises(BadInput, match="line 2 holds a CR"):
        render("a\nb\r\n", "all")


def test_a_template_file_is_read_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t.jinja"
    path.write_bytes("é{{ eos_token }}\n".encode())
    template, source, _ = load_template(path, bos_token="", eos_token="!", mask="all")
    assert template.render(MESSAGES, "f").text == "é!"
    assert source == path.read_bytes()
    path.write_bytes(b"\xff")
    with pytest.raises(BadInput, match="not UTF-8"):
        load_template(path, bos_token="", eos_token="", mask="all")
    with pytest.raises(BadInput, match="cannot be read"):
        load_template(tmp_path / "gone", bos_token="", eos_token="", mask="all")
