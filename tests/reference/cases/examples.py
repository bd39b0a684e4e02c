"""Cases of S-06 and S-07, on whole examples (S-03 to S-07)."""

from typing import Any

from tests.reference.case import Case, Clause, computed, hand, refused
from tests.reference.cases.encode import CLINICAL
from tests.reference.cases.render import CHATML, LOOP, E, G, messages

Turns = tuple[tuple[str, str], ...]
ONE: Turns = (("user", "x"),)
# First letter of the role, then the content; the assistant's content is generated
BRIEF = (
    "{% for m in messages %}{{ m.role[0] }}{% if m.role == 'assistant' %}"
    + G
    + "{{ m.content }}"
    + E
    + "{% else %}{{ m.content }}{% endif %}{% endfor %}"
)


def _given(tokenizer: str, template: str, turns: Turns, **changes: Any) -> dict[str, Any]:
    path = tokenizer if tokenizer.startswith("..") else f"tokenizers/{tokenizer}.json"
    given: dict[str, Any] = {
        "tokenizer": path,
        "template": template,
        "messages": messages(*turns),
        "bos_token": "",
        "eos_token": "<|im_end|>",
        "mask": "assistant",
        "max_length": 64,
        "truncation_side": "right",
    }
    return given | changes


def _hand(
    name: str,
    tokenizer: str,
    template: str,
    turns: Turns,
    tokens: tuple[tuple[int, int], ...],
    *,
    total: int | None = None,
    typed: int = 0,
    **changes: Any,
) -> Case:
    """`tokens` are (id, mask)."""
    expected = {
        "ids": [t[0] for t in tokens],
        "mask": [t[1] for t in tokens],
        "num_tokens_before_truncation": len(tokens) if total is None else total,
        "typed_control_tokens": typed,
    }
    return hand(name, "example", _given(tokenizer, template, turns, **changes), expected)


def _case(name: str, tokenizer: str, template: str, turns: Turns, **changes: Any) -> Case:
    return computed(name, "example", _given(tokenizer, template, turns, **changes))


def _refused(name: str, tokenizer: str, template: str, turns: Turns, **changes: Any) -> Case:
    return refused(name, "example", _given(tokenizer, template, turns, **changes))


def zeros(*ids: int) -> tuple[tuple[int, int], ...]:
    """Tokens outside every span."""
    return tuple((i, 0) for i in ids)


def ones(*ids: int) -> tuple[tuple[int, int], ...]:
    """Tokens that overlap a span."""
    return tuple((i, 1) for i in ids)


EMOJI: Turns = (("user", "x"), ("assistant", "y\U0001f600"))
ODD: Turns = (
    ("system", ""),
    ("user", " What is\r\n\u201cA00.1\u201d?\u2028"),
    ("assistant", "\n Cholera \U0001f9a0\ufe0f"),
    ("user", "e\u0301 <|im_end|> 12,5 \u03bcg"),
    ("assistant", "  \u00e9 "),
)

MASK = [
    _hand(
        "an answer that ends in an emoji of two tokens",
        "shared",
        BRIEF,
        EMOJI,
        zeros(117, 120, 97) + ones(121, 256, 257),
    ),
    _hand(
        "an answer that ends in an emoji of four tokens",
        "bytes",
        BRIEF,
        EMOJI,
        zeros(117, 120, 97) + ones(121, 0xF0, 0x9F, 0x98, 0x80),
    ),
    _hand(
        "an emoji before the answer",
        "shared",
        "\U0001f600" + G + "a" + E + "\U0001f600",
        ONE,
        zeros(256, 257) + ones(97) + zeros(256, 257),
    ),
    _hand(
        "every turn of the assistant",
        "bytes",
        BRIEF,
        (("assistant", "b"), ("user", "c"), ("assistant", "d")),
        zeros(97) + ones(98) + zeros(117, 99, 97) + ones(100),
    ),
    _hand("a border between tokens", "ranks", "a" + G + "bc" + E, ONE, zeros(97) + ones(256)),
    _hand(
        "a border between tokens, the other side",
        "ranks",
        G + "a" + E + "bc",
        ONE,
        ones(97) + zeros(256),
    ),
    _hand("a token that begins before the span", "twice", "ab" + G + "c" + E, ONE, ones(258)),
    _hand("a token that ends after the span", "twice", G + "a" + E + "bc", ONE, ones(258)),
    _hand("a span inside a token", "twice", "a" + G + "b" + E + "c", ONE, ones(258)),
    _hand("two spans in one token", "twice", G + "a" + E + "b" + G + "c" + E, ONE, ones(258)),
    # c3 | a9 c3 | a9: the middle token holds a part of each é
    _hand(
        "the second of two characters that share a token",
        "shared",
        "\u00e9" + G + "\u00e9" + E,
        ONE,
        zeros(0xC3) + ones(258, 0xA9),
    ),
    _hand(
        "the first of two characters that share a token",
        "shared",
        G + "\u00e9" + E + "\u00e9",
        ONE,
        ones(0xC3, 258) + zeros(0xA9),
    ),
    _hand(
        "a mark and half an emoji in one token",
        "shared",
        "\u00e9" + G + "!" + E + "\U0001f600",
        ONE,
        zeros(0xC3, 0xA9) + ones(260) + zeros(257),
    ),
    _hand(
        "half an emoji and a mark before it",
        "shared",
        "\u00e9!" + G + "\U0001f600" + E,
        ONE,
        zeros(0xC3, 0xA9) + ones(260, 257),
    ),
    _hand(
        "a blank before the span joins the word",
        "pairs",
        "t " + G + "a" + E,
        ONE,
        zeros(116) + ones(281),
    ),
    _hand(
        "LF before the span stays outside",
        "pairs",
        "t\n" + G + "a" + E,
        ONE,
        zeros(116, 10) + ones(97),
    ),
    _hand(
        "an end-of-turn token inside the span",
        "bytes",
        G + "a{{ eos_token }}" + E + "b",
        ONE,
        ones(97, 402) + zeros(98),
    ),
    _hand(
        "an end-of-turn token after the span",
        "bytes",
        G + "a" + E + "{{ eos_token }}",
        ONE,
        ones(97) + zeros(402),
    ),
    _hand("an added token across the border", "bytes", "<|im_" + G + "end|>" + E, ONE, ones(402)),
    _hand("no span in this example", "bytes", BRIEF, ONE, zeros(117, 120)),
    _hand("mask all", "bytes", BRIEF, EMOJI[:1], ones(117, 120), mask="all"),
    _hand(
        "mask all without tags",
        "bytes",
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        EMOJI[:1],
        ones(120),
        mask="all",
    ),
    _hand(
        "a beginning token from the config",
        "bytes",
        "{{ bos_token }}" + G + "a" + E,
        ONE,
        zeros(400) + ones(97),
        bos_token="<pad>",
    ),
    _hand(
        "two beginning tokens where the template has two",
        "bytes",
        "<pad>{{ bos_token }}" + G + "a" + E,
        ONE,
        zeros(400, 400) + ones(97),
        bos_token="<pad>",
    ),
    _case("ChatML, awkward text", CLINICAL, CHATML, ODD, max_length=256),
    _case("ChatML in bytes", "bytes", CHATML, ODD, max_length=512),
    _case("ChatML in pairs", "pairs-split", CHATML, ODD, max_length=512),
]

TYPED = [
    _hand(
        "a typed control token is one",
        "bytes",
        BRIEF,
        (("user", "a<|im_end|>"), ("assistant", "<pad>")),
        zeros(117, 97, 402, 97) + ones(400),
        typed=2,
    ),
    _hand(
        "control tokens of the template are not typed",
        "bytes",
        "<|im_start|>" + G + "a<|im_end|>" + E,
        ONE,
        zeros(401) + ones(97, 402),
    ),
    _hand(
        "typed in a content that is not rendered",
        "bytes",
        G + "a" + E,
        (("system", "<pad>"), ("user", "<pad><pad>")),
        ones(97),
        typed=3,
    ),
    _hand(
        "a control token that two contents form is not typed",
        "bytes",
        "{% for m in messages %}" + G + "{{ m.content }}" + E + "{% endfor %}",
        (("user", "<|im_"), ("user", "end|>")),
        ones(402),
    ),
    _hand(
        "the longest counts once",
        "overlaps",
        G + "q" + E,
        (("user", "<a><b><b>"),),
        ones(113),
        typed=2,
    ),
    _hand(
        "counted before truncation",
        "bytes",
        "zz" + G + "{{ messages[0].content }}" + E,
        (("user", "<pad><pad>"),),
        zeros(122, 122),
        total=4,
        typed=2,
        max_length=2,
    ),
]

CUT: Turns = (("user", "bcd"), ("assistant", "ef"))  # u b c d a e f
TRUNCATION = [
    _hand(
        "exactly as long as allowed",
        "bytes",
        BRIEF,
        CUT,
        zeros(117, 98, 99, 100, 97) + ones(101, 102),
        max_length=7,
    ),
    _hand(
        "right: the first are kept",
        "bytes",
        BRIEF,
        CUT,
        zeros(117, 98, 99, 100, 97) + ones(101),
        total=7,
        max_length=6,
    ),
    _hand(
        "left: the last are kept",
        "bytes",
        BRIEF,
        CUT,
        zeros(98, 99, 100, 97) + ones(101, 102),
        total=7,
        max_length=6,
        truncation_side="left",
    ),
    _hand(
        "right: all targets are lost and the example stays",
        "bytes",
        BRIEF,
        CUT,
        zeros(117, 98, 99),
        total=7,
        max_length=3,
    ),
    _hand(
        "left: only targets are left",
        "bytes",
        BRIEF,
        CUT,
        ones(101, 102),
        total=7,
        max_length=2,
        truncation_side="left",
    ),
    _hand(
        "left: all targets are lost",
        "bytes",
        BRIEF,
        (("assistant", "b"), ("user", "cd")),
        zeros(99, 100),
        total=5,
        max_length=2,
        truncation_side="left",
    ),
    _hand(
        "a cut through an emoji",
        "bytes",
        BRIEF,
        EMOJI,
        zeros(117, 120, 97) + ones(121, 0xF0, 0x9F),
        total=8,
        max_length=6,
    ),
    _hand(
        "a cut through an emoji from the left",
        "bytes",
        BRIEF,
        EMOJI,
        ones(0x9F, 0x98, 0x80),
        total=8,
        max_length=3,
        truncation_side="left",
    ),
    _hand(
        "shorter than allowed, left",
        "bytes",
        BRIEF,
        CUT,
        zeros(117, 98, 99, 100, 97) + ones(101, 102),
        truncation_side="left",
    ),
    _hand("mask all, cut", "bytes", BRIEF, CUT, ones(117, 98), total=7, max_length=2, mask="all"),
    _case("ChatML cut on the right", CLINICAL, CHATML, ODD, max_length=24),
    _case("ChatML cut on the left", CLINICAL, CHATML, ODD, max_length=24, truncation_side="left"),
    _refused("an example without a token", "bytes", G + "{{ nothing }}" + E, ONE),
    _refused("an example without a token, mask all", "bytes", "{{ bos_token }}", ONE, mask="all"),
    _refused("no generation tag", "bytes", LOOP, ONE),
    _refused("an unsupported tokenizer", "broken-normalizer", BRIEF, ONE),
]

CLAUSES = [
    Clause(
        clause="S-06", note="Exact. `typed_control_tokens` is that of S-24.", cases=MASK + TYPED
    ),
    Clause(clause="S-07", note="Exact.", cases=TRUNCATION),
]
