"""Cases of S-03 and S-04. Texts and spans are worked by hand from the clause."""

from typing import Any

from tests.reference.case import Case, Clause, computed, hand, refused

USER, ANSWER = "u", "a"
TURNS = (("user", "hi"), ("assistant", "yo"))


def messages(*turns: tuple[str, str]) -> list[dict[str, str]]:
    """The list of messages of (role, content) pairs."""
    return [{"role": role, "content": content} for role, content in turns]


def _given(template: str, turns: tuple[tuple[str, str], ...] = TURNS, **changes: Any) -> Any:
    given = {
        "template": template,
        "messages": messages(*turns),
        "bos_token": "<s>",
        "eos_token": "</s>",
        "mask": "assistant",
    }
    return given | changes


def _span(name: str, template: str, text: str, *spans: tuple[int, int], **changes: Any) -> Case:
    expected = {"text": text, "spans": [list(span) for span in spans]}
    return hand(name, "render", _given(template, **changes), expected)


def _text(name: str, template: str, text: str, **changes: Any) -> Case:
    """Without generation tags, so with mask = "all" and no spans."""
    return _span(name, template, text, **({"mask": "all"} | changes))


def _refused(name: str, template: str, **changes: Any) -> Case:
    return refused(name, "render", _given(template, **changes))


LOOP = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
G, E = "{% generation %}", "{% endgeneration %}"
CHATML = """{% for message in messages %}
{% if message['role'] == 'assistant' %}
{{ '<|im_start|>assistant\\n' }}
{%- generation %}
{{ message['content'] + '<|im_end|>' }}
{%- endgeneration %}
{{ '\\n' }}
{%- else %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endif %}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{%- endif %}
"""

TEXTS = [
    _text("a loop", LOOP, "user:hi;assistant:yo;"),
    _text("subscripts", "{% for m in messages %}{{ m['content'] }}{% endfor %}", "hiyo"),
    _text("one final LF of the source is removed", LOOP + "\n", "user:hi;assistant:yo;"),
    _text("only one final LF is removed", LOOP + "{{ '' }}\n\n", "user:hi;assistant:yo;\n"),
    _text("a final blank stays", "x \n", "x "),
    _text("the text is not stripped", "  \t{{ 'x' }}{{ '  ' }}\n \n", "  \tx  \n "),
    _text(
        "trim_blocks: the first LF after a block goes",
        "{% if true %}\n\nx{% endif %}\n\ny",
        "\nx\ny",
    ),
    _text("trim_blocks does not touch expressions", "{{ 'x' }}\n{{ 'y' }}\n!", "x\ny\n!"),
    _text("trim_blocks: plus keeps the LF", "{% if true +%}\nx{% endif %}", "\nx"),
    _text("trim_blocks takes LF only, not blanks", "{% if true %} \nx{% endif %}", " \nx"),
    _text("lstrip_blocks: blanks before a block go", "a\n \t {% if true %}b{% endif %}", "a\nb"),
    _text("lstrip_blocks at the start of the source", "  {% if true %}b{% endif %}", "b"),
    _text("lstrip_blocks does not touch expressions", "a\n  {{ 'b' }}", "a\n  b"),
    _text("lstrip_blocks only at the start of a line", "a  {% if true %}b{% endif %}", "a  b"),
    _text("lstrip_blocks: plus keeps the blanks", "  {%+ if true %}b{% endif %}", "  b"),
    _text(
        "tojson keeps the order and escapes what JSON demands alone",
        "{{ {'b': 1, 'a': '<é>\\n'} | tojson }}",
        '{"b": 1, "a": "<é>\\n"}',
    ),
    _text("comments trim like blocks", "a\n  {# note #}\nb", "a\nb"),
    _text(
        "minus trims all white space", "a \n\n {%- if true -%} \n\t b \n {%- endif -%} \n c", "abc"
    ),
    _text("minus on an expression", "a \n {{- 'b' -}} \n c", "abc"),
    _text(
        "break and continue",
        "{% for m in messages %}{% if m.content == 'skip' %}{% continue %}{% endif %}"
        "{% if m.content == 'stop' %}{% break %}{% endif %}[{{ m.content }}]{% endfor %}!",
        "[p][q]!",
        turns=(("user", "p"), ("user", "skip"), ("user", "q"), ("user", "stop"), ("user", "r")),
    ),
    _text(
        "variables of the loop",
        "{% for m in messages %}{{ loop.index0 }}{{ loop.index }}{% if loop.first %}F{% endif %}"
        "{% if loop.last %}L{% endif %}{% if not loop.last %},{% endif %}{% endfor %}",
        "01F,12L",
    ),
    _text("bos and eos", "{{ bos_token }}x{{ eos_token }}", "<s>x</s>"),
    _text("empty bos", "[{{ bos_token }}]", "[]", bos_token=""),
    _text(
        "add_generation_prompt is false",
        "{% if add_generation_prompt %}p{% else %}n{% endif %}"
        "{% if add_generation_prompt is defined %}d{% endif %}",
        "nd",
    ),
    _text("an undefined variable prints nothing", "[{{ nothing }}]", "[]"),
    _text("an undefined attribute prints nothing", "[{{ messages[0].nothing }}]", "[]"),
    _text("an undefined key prints nothing", "[{{ messages[0]['nothing'] }}]", "[]"),
    _text("an undefined variable is false", "[{% if tools %}t{% endif %}]", "[]"),
    _text("tools are not defined", "{% if tools is defined %}t{% else %}n{% endif %}", "n"),
    _text(
        "the date is not defined",
        "{% if date_string is defined %}d{% endif %}{% if documents is defined %}d{% endif %}x",
        "x",
    ),
    _text(
        "content is not escaped",
        LOOP,
        "user:<b>&amp; \"q\" 'a' {{ x }} {% y %} {# z #};",
        turns=(("user", "<b>&amp; \"q\" 'a' {{ x }} {% y %} {# z #}"),),
    ),
    _text(
        "line ends of a content are kept",
        LOOP,
        "user:p\r\nq\rr\u2028s\n\n;",
        turns=(("user", "p\r\nq\rr\u2028s\n\n"),),
    ),
    _text("escapes in a literal", "{{ 'a\\n\\tb\\\\n' }}", "a\n\tb\\n"),
    # a backslash and an r in the source are no CR
    _text("an escaped CR in a literal", "{{ 'a\\r\\nb' }}", "a\r\nb"),
    _text(
        "functions of Jinja itself",
        "{% set comma = joiner(',') %}{% for i in range(3) %}{{ comma() }}{{ i }}{% endfor %}"
        "{% set c = cycler('p', 'q') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}"
        "{{ dict(k='v').k }}",
        "0,1,2pqpv",
    ),
    _text("raw", "{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
    _text("a macro", "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f('p') }}{{ f('q') }}", "<p><q>"),
    _text(
        "a namespace outlives the loop",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
        "{{ ns.n }}",
        "2",
    ),
    _text(
        "a set inside a loop does not",
        "{% set n = 0 %}{% for m in messages %}{% set n = n + 1 %}{% endfor %}{{ n }}",
        "0",
    ),
    _text(
        "a slice of the messages", "{% for m in messages[1:] %}{{ m.content }}{% endfor %}", "yo"
    ),
    _text("the last message", "{{ messages[-1].content }}{{ messages | length }}", "yo2"),
    _text("trim filter", "[{{ messages[0].content | trim }}]", "[x]", turns=(("user", " \n x\t"),)),
    _text("joined with a tilde", "{{ 'n=' ~ 3 ~ nothing ~ '!' }}", "n=3!"),
    _text(
        "methods of strings that templates use",
        "{{ messages[0].content.split('|')[-1].lstrip('\\n') }}/{{ messages[0].content.strip() }}/"
        "{% if messages[0].content.startswith(' p') %}s{% endif %}"
        "{% if messages[0].content.endswith('q ') %}e{% endif %}",
        "q /p|\n\nq/se",
        turns=(("user", " p|\n\nq "),),
    ),
    _text("an inline condition without else", "[{{ 'x' if false }}]", "[]"),
    _text("else of a loop", "{% for m in [] %}x{% else %}none{% endfor %}", "none"),
    _text(
        "a filtered loop",
        "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
        "hi",
    ),
    _text(
        "raise_exception that is not reached",
        "{% if false %}{{ raise_exception('no') }}{% endif %}x",
        "x",
    ),
    _text(
        "an empty system content is rendered as it is",
        LOOP,
        "system:;user:x;",
        turns=(("system", ""), ("user", "x")),
    ),
]

SPANS = [
    _span("one block", f"ab{G}cde{E}f", "abcdef", (2, 5)),
    _span("a block at the start and one at the end", f"{G}a{E}b{G}cd{E}", "abcd", (0, 1), (2, 4)),
    _span("neighbouring blocks stay apart", f"{G}ab{E}{G}cd{E}", "abcd", (0, 2), (2, 4)),
    _span("an empty block is dropped", f"a{G}{E}b{G}c{E}", "abc", (2, 3)),
    _span("a block of nothing printed is dropped", f"a{G}{{{{ nothing }}}}{E}b", "ab"),
    _span("a block that is never run", "a{% if false %}" + G + "b" + E + "{% endif %}", "a"),
    _span(
        "characters are code points",
        f"\U0001f600\u00e9{G}\U0001f469\u200d\u2695\ufe0f{E}.",
        "\U0001f600\u00e9\U0001f469\u200d\u2695\ufe0f.",
        (2, 6),
    ),
    _span("combining marks are characters", f"e\u0301{G}e\u0301{E}", "e\u0301e\u0301", (2, 4)),
    _span(
        "one span for each execution",
        "{% for m in messages %}{{ m.role[0] }}=" + G + "{{ m.content }}" + E + ";{% endfor %}",
        "u=hi;a=yo;",
        (2, 4),
        (7, 9),
    ),
    _span("the tag trims like a block", f"a\n  {G}\nb\n  {E}\nc", "a\nb\nc", (2, 4)),
    _span(
        "minus on the outer sides",
        "a \n {%- generation %}b{% endgeneration -%} \n c",
        "abc",
        (1, 2),
    ),
    _span(
        "minus on the inner sides",
        "a {% generation -%} \n b \n {%- endgeneration %} c",
        "a b c",
        (2, 3),
    ),
    _span("minus on all sides", "a {%- generation -%} b {%- endgeneration -%} c", "abc", (1, 2)),
    _span("plus keeps the LF inside", "a{% generation +%}\nb{% endgeneration %}", "a\nb", (1, 3)),
    _span(
        "plus keeps the blanks outside",
        "a\n  {%+ generation %}b{% endgeneration %}",
        "a\n  b",
        (4, 5),
    ),
    _span("blanks inside the tag", "a{%generation%}b{%   endgeneration   %}c", "abc", (1, 2)),
    _span("LF after the end tag goes", f"{G}a{E}\nb", "ab", (0, 1)),
    _span(
        "a block around a loop",
        G + "{% for m in messages %}{{ m.content }},{% endfor %}" + E + "!",
        "hi,yo,!",
        (0, 6),
    ),
    _span(
        "conditions inside a block",
        "<" + G + "{% if messages[0].role == 'user' %}U{% else %}N{% endif %}{{ 'x' }}" + E + ">",
        "<Ux>",
        (1, 3),
    ),
    _span(
        "a macro called inside a block",
        "{% macro f(x) %}({{ x }}){% endmacro %}a" + G + "{{ f('b') }}" + E,
        "a(b)",
        (1, 4),
    ),
    _span(
        "a capture inside a block is printed where it is used",
        "a" + G + "b{% set x %}cc{% endset %}d{{ x }}" + E + "e",
        "abdcce",
        (1, 5),
    ),
    _span("a filter applied inside a block", f"a{G}{{{{ 'b' | upper }}}}{E}", "aB", (1, 2)),
    _span(
        "a content that looks like a tag",
        "{% for m in messages %}" + G + "{{ m.content }}" + E + "{% endfor %}",
        "{% generation %}x{% endgeneration %}",
        (0, 36),
        turns=(("assistant", "{% generation %}x{% endgeneration %}"),),
    ),
    _span(
        "a literal that looks like a tag",
        "{{ '{% generation %}' }}" + G + "b" + E,
        "{% generation %}b",
        (16, 17),
    ),
    _span(
        "break and continue around blocks",
        "{% for m in messages %}{% if m.content == 'q' %}{% continue %}{% endif %}"
        "{% if m.content == 's' %}{% break %}{% endif %}["
        + G
        + "{{ m.content }}"
        + E
        + "]{% endfor %}",
        "[p][r]",
        (1, 2),
        (4, 5),
        turns=(("user", "p"), ("user", "q"), ("user", "r"), ("user", "s"), ("user", "t")),
    ),
    _span("with mask all the spans are ignored", f"ab{G}cde{E}f", "abcdef", mask="all"),
    _span(
        "ChatML",
        CHATML,
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n",
        (52, 64),
    ),
    computed(
        "ChatML with several turns",
        "render",
        _given(
            CHATML,
            turns=(
                ("system", ""),
                ("user", " a\r\nb "),
                ("assistant", "\n\U0001f600"),
                ("user", "<|im_end|>"),
                ("assistant", "{{ x }} "),
            ),
        ),
    ),
]

REFUSED = [
    _refused("strftime_now", G + "x" + E + "{{ strftime_now('%Y') }}"),
    _refused(
        "strftime_now in a branch that is not taken",
        G + "x" + E + "{% if false %}{{ strftime_now('%Y') }}{% endif %}",
    ),
    _refused(
        "strftime_now is defined", G + "x" + E + "{% if strftime_now is defined %}x{% endif %}"
    ),
    _refused("strftime_now with mask all", "{{ strftime_now('%d %b %Y') }}", mask="all"),
    _refused(
        "strftime_now in a macro that is not called",
        G + "x" + E + "{% macro f() %}{{ strftime_now('%Y') }}{% endmacro %}",
    ),
    _refused("CR LF in the source", f"{G}x{E}\r\ny"),
    _refused("CR alone in the source", f"{G}x{E}\ry"),
    _refused("CR LF at the end of the source", f"{G}x{E}\r\n"),
    _refused("CR in a comment", f"{G}x{E}" + "{# p\rq #}"),
    _refused("CR in a literal", f"{G}x{E}" + "{{ 'p\rq' }}"),
    _refused("CR inside a tag, with mask all", "{% if true\r\n%}x{% endif %}", mask="all"),
    _refused("raise_exception", G + "x" + E + "{{ raise_exception('roles must alternate') }}"),
    _refused("raise_exception with mask all", "{{ raise_exception('no') }}", mask="all"),
    _refused("attribute of an undefined variable", G + "{{ nothing.x }}" + E),
    _refused("attribute of an undefined attribute", G + "{{ messages[0].nothing.x }}" + E),
    _refused("subscript of an undefined variable", G + "{{ nothing['x'] }}" + E),
    _refused("an undefined function", G + "{{ nothing() }}" + E),
    _refused("a message out of range", G + "{{ messages[7].content }}" + E),
    _refused("a division by zero", G + "{{ 1 // 0 }}" + E),
    _refused("a syntax error", G + "{{ messages" + E),
    _refused("an unknown tag", G + "x" + E + "{% nonsense %}"),
    _refused("an unknown filter", G + "{{ 'x' | nonsense }}" + E),
    _refused("a loop that is not closed", G + "x" + E + "{% for m in messages %}"),
    _refused("no generation tag", LOOP),
    _refused("a generation tag in a comment only", LOOP + "{# " + G + "x" + E + " #}"),
    _refused(
        "a generation tag in raw text only", LOOP + "{% raw %}" + G + "x" + E + "{% endraw %}"
    ),
    _refused("a generation tag in a literal only", "{{ '" + G + "' }}"),
    _refused("a generation block that is not closed", G + "x"),
    _refused("an end without a beginning", "x" + E),
    _refused("a block inside a block", G + "a" + G + "b" + E + "c" + E),
    _refused(
        "a block inside a block, in a loop",
        G + "{% for m in messages %}" + G + "b" + E + "{% endfor %}" + E,
    ),
    _refused("a block in a capture", "{% set x %}" + G + "b" + E + "{% endset %}{{ x }}"),
    _refused(
        "a block deep in a capture",
        "{% set x %}{% if true %}" + G + "b" + E + "{% endif %}{% endset %}{{ x }}",
    ),
    _refused(
        "a block in a capture with a filter",
        "{% set x | upper %}" + G + "b" + E + "{% endset %}{{ x }}",
    ),
    _refused("a block in a macro", "{% macro f() %}" + G + "b" + E + "{% endmacro %}{{ f() }}"),
    _refused(
        "a block in a macro that is not called",
        G + "a" + E + "{% macro f() %}" + G + "b" + E + "{% endmacro %}",
    ),
    _refused(
        "a block in a call",
        "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}" + G + "b" + E + "{% endcall %}",
    ),
    _refused("a block in a filter", "{% filter upper %}" + G + "b" + E + "{% endfilter %}"),
]

SPLIT = next(i for i, case in enumerate(REFUSED) if case.name == "no generation tag")
CLAUSES = [
    Clause(
        clause="S-03",
        note="Exact. With mask = all the list of spans is empty.",
        cases=TEXTS + REFUSED[:SPLIT],
    ),
    Clause(clause="S-04", note="Exact.", cases=SPANS + REFUSED[SPLIT:]),
]
