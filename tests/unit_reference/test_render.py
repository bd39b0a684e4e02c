import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.errors import RefusedError
from tests.reference.render import Template

WORDS = st.text(st.sampled_from("ab \n\u2028\U0001f600<&{%"), min_size=1, max_size=6)


def template(source: str, mask: str = "assistant") -> Template:
    return Template(source, bos_token="", eos_token="", mask=mask)


@given(st.lists(st.tuples(st.booleans(), WORDS), min_size=1, max_size=8))
def test_spans_are_exactly_what_the_blocks_printed(pieces: list[tuple[bool, str]]) -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
        "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    messages = [{"role": "assistant" if g else "user", "content": c} for g, c in pieces]
    rendered = template(source).render(messages)
    assert rendered.text == "".join(content for _, content in pieces)
    inside = [rendered.text[start:end] for start, end in rendered.spans]
    assert inside == [content for generated, content in pieces if generated]


def test_tags_change_no_text() -> None:
    block = "\n  {%- if true %}\n [{{ m.content }}] \n{% endif %}\n"
    plain = "{% for m in messages %}" + block + "{% endfor %}\n"
    tagged = plain.replace("{%- if true %}", "{%- generation %}").replace(
        "{% endif", "{% endgeneration"
    )
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    assert template(tagged).render(messages).text == template(plain, "all").render(messages).text


def test_a_template_renders_twice_alike() -> None:
    compiled = template("a{% generation %}{{ messages[0].content }}{% endgeneration %}")
    first = compiled.render([{"role": "user", "content": "xyz"}])
    assert compiled.render([{"role": "user", "content": "xyz"}]) == first
    assert first.spans == ((1, 4),)


def test_trimming_is_jinjas() -> None:
    # Template Designer Documentation, "Whitespace Control"
    source = "<div>\n    {% if true %}\n        yay\n    {% endif %}\n</div>\n"
    assert template(source, "all").render([]).text == "<div>\n        yay\n</div>"
    judge = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    assert judge.from_string(source).render() == "<div>\n        yay\n</div>"


def test_errors_do_not_quote_the_content() -> None:
    compiled = template("{{ raise_exception(messages[0].content) }}", "all")
    with pytest.raises(RefusedError) as caught:
        compiled.render([{"role": "user", "content": "secret"}])
    assert "secret" not in str(caught.value)
