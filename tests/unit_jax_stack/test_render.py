"""Expected texts and spans are written by hand from S-03 and S-04."""

import pytest

from stacks.jax_stack.errors import BadInput
from stacks.jax_stack.examples import Messages
from stacks.jax_stack.render import Rendered, Renderer

FOR = "{% for m in messages %}"
BLOCK = "{% generation %}y{% endgeneration %}"
USER: Messages = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]


def render(source: str, messages: Messages = USER, mask: str = "all") -> Rendered:
    renderer = Renderer(source=source, name="t", bos_token="<s>", eos_token="</s>", mask=mask)
    return renderer.render(messages, "f:1")


def spans(source: str, messages: Messages = USER) -> tuple[str, list[str]]:
    rendered = render(source, messages, "assistant")
    return rendered.text, [rendered.text[start:end] for start, end in rendered.spans]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("a\n", "a"),
        ("a\n\n", "a\n"),
        ("{% set c = cycler('p', 'q') %}{{ c.next() }}{{ c.current }}{{ c.next() }}", "pqq"),
        ("{{ {'a': {'b': 1}}}}{% set x = {'a': {}} %}|", "{'a': {'b': 1}}|"),
        ("{{ 'a' is sequence }}{{ {} is sequence }}{{ 1 is sequence }}", "TrueTrueFalse"),
        ("{{ 1.0 }} {{ 1 / 2 }} {{ 7 // 2 }}", "1.0 0.5 3"),
        ("{{ 'say {% generation %}' }}", "say {% generation %}"),
        ("{% set comma = joiner(',') %}{{ comma() }}a{{ comma() }}b", "a,b"),
        ("{% if true %}\nx\n{% endif %}\ny", "x\ny"),
        ("a\n   {% if true %}x{% endif %}", "a\nx"),
        ("a\n   {%+ if true %}x{% endif +%}\nb", "a\n   x\nb"),
        ("a \n {%- if true -%} \n b{% endif %}", "ab"),
        ("{# {% generation %} #}{% raw %}{% generation %}{% endraw %}", "{% generation %}"),
        ("{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}", "<s></s>False"),
        ("{{ missing }}|{{ none }}|{{ true }}", "|None|True"),
        ("{{ '<&>' }}{{ '<&\"'|e }}", "<&>&lt;&amp;&#34;"),
        (FOR + "{% if loop.last %}{% break %}{% endif %}{{ m.content }}{% endfor %}", "u"),
        (FOR + "{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% endfor %}", "assistant"),
        ("{{ {'b': 1, 'a': '<é>'}|tojson }}", '{"b": 1, "a": "<é>"}'),
        ("{% set x = 0 %}{% filter upper %}{% set x = 1 %}q{% endfilter %}{{ x }}", "Q0"),
        ("{{ 'a\nb'|indent }}|{{ 'a\n'|indent(2) }}", "a\n    b|a\n"),
    ],
)  # fmt: skip
def test_jinja_as_documented(source: str, text: str) -> None:
    assert render(source).text == text


@pytest.mark.parametrize("separator", ["\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\u2028", "\xa0"])
def test_white_space_is_pythons(separator: str) -> None:
    messages = [{"role": "user", "content": f"{separator} a{separator}b {separator}"}]
    assert render("{{ messages[0].content.strip() }}", messages).text == f"a{separator}b"
    assert render("{{ messages[0].content|trim }}", messages).text == f"a{separator}b"
    assert render("{{ messages[0].content }}", messages).text == messages[0]["content"]


def test_white_space_control_of_generation_tags_acts_as_on_any_block_tag() -> None:
    assert spans("x\n  {% generation %}\ny\n  {% endgeneration %}\nz") == ("x\ny\nz", ["y\n"])
    assert spans("x\n  {%- generation -%}\n y \n {%- endgeneration -%}\n z") == ("xyz", ["y"])
    assert spans("x\n  {%+ generation +%}\ny{% endgeneration +%}\nz") == ("x\n  \ny\nz", ["\ny"])


def test_one_span_for_each_execution_and_none_for_an_empty_one() -> None:
    source = FOR + "{% generation %}{{ m.content[1:] }}{% endgeneration %}{% endfor %}"
    messages = [{"role": "user", "content": c} for c in ("-ab", "-", "-c")]
    rendered = render(source, messages, "assistant")
    assert (rendered.text, rendered.spans) == ("abc", [(0, 2), (2, 3)])


def test_what_a_block_sets_stays_in_it_and_a_namespace_does_not() -> None:
    source = (
        "{% set x = 0 %}{% set n = namespace(y=0) %}{% generation %}{% set x = 1 %}"
        "{% set n.y = 1 %}{{ x }}{% endgeneration %}{{ x }}{{ n.y }}"
    )
    assert spans(source) == ("101", ["1"])


def test_spans_count_characters_not_bytes() -> None:
    rendered = render("é😀{% generation %}é{% endgeneration %}", mask="assistant")
    assert rendered.spans == [(2, 3)]


def test_with_mask_all_the_tags_trim_and_their_spans_are_ignored() -> None:
    rendered = render("x\n {% generation %}\ny{% endgeneration %}\n", mask="all")
    assert (rendered.text, rendered.spans) == ("x\ny", [])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("a\r\n" + BLOCK, "has no CR"),
        ("{% do messages.append(1) %}" + BLOCK, "extension"),
        ("{{ messages[0].content.title() }}" + BLOCK, "apostrophe"),
        (FOR + "{{ loop.revindex }}{% endfor %}" + BLOCK, "revindex"),
        ("{{ 'no tags' }}", "put {% generation %} before"),
        ("{% generation %}" + BLOCK + "{% endgeneration %}", "inside another"),
        ("{% set x %}" + BLOCK + "{% endset %}", "inside a set block"),
        ("{% macro f() %}" + BLOCK + "{% endmacro %}", "inside a macro block"),
        ("{% filter upper %}" + BLOCK + "{% endfilter %}", "inside a filter"),
        ("{% call f() %}" + BLOCK + "{% endcall %}", "inside a call block"),
        (FOR + "{% generation %}{% break %}{% endgeneration %}{% endfor %}", "`break` leaves"),
        ("{% generation %}{{ strftime_now('%Y') }}{% endgeneration %}", "strftime_now"),
        ("{% generation %}{% if %}{% endgeneration %}", "line 1"),
        ("a\n{% generation %}{% set x = 1 %}", "cannot parse"),
    ],
)  # fmt: skip
def test_a_template_that_is_refused(source: str, words: str) -> None:
    with pytest.raises(BadInput) as refusal:
        render(source, mask="assistant")
    assert words in str(refusal.value)


def test_inline_set_around_a_block_is_no_capture() -> None:
    assert spans("{% set x = 1 %}{% generation %}{{ x }}{% endgeneration %}") == ("1", ["1"])


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception(messages[0].content) }}",
        "{{ missing.attribute }}",
        "{{ messages[0].content + 1 }}",
        "{{ messages[0].content|no_filter }}",
        "{{ messages[0].content.no_method() }}",
        "{{ debug() }}",
        "{{ 'a;b'|split(';') }}",
        "{% if 'a' is startingwith 'a' %}{% endif %}",
    ],
)
def test_an_error_of_the_engine_names_template_file_and_line_and_no_text(source: str) -> None:
    with pytest.raises(BadInput) as refusal:
        render(source, [{"role": "user", "content": "SECRET"}])
    assert "f:1" in str(refusal.value)
    assert "SECRET" not in str(refusal.value)


def test_marks_that_the_template_prints_itself_are_refused() -> None:
    with pytest.raises(BadInput, match="U\\+FDD0"):
        render("{{ '\\ufdd0x\\ufdd1' }}{% generation %}y{% endgeneration %}", mask="assistant")


def test_lines_that_the_engine_would_split_otherwise_are_refused() -> None:
    source = "{{ messages[0].content.splitlines()|length }}"
    assert render(source, [{"role": "user", "content": "a\nb"}]).text == "2"
    with pytest.raises(BadInput, match="line ends"):
        render(source, [{"role": "user", "content": "a\u2028b"}])
