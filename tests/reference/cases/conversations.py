"""Cases of S-02, all worked by hand. Texts are written as the bytes of the file."""

import json
from typing import Any

from tests.reference.case import Case, Clause, hand, refused


def line(identifier: str, *turns: tuple[str, str]) -> str:
    """One line as `json.dumps` writes it, in ASCII, without its LF."""
    messages = [{"role": role, "content": content} for role, content in turns]
    return json.dumps({"id": identifier, "messages": messages})


def record(identifier: str, *turns: tuple[str, str]) -> dict[str, Any]:
    """The example as read."""
    return {"id": identifier, "messages": [{"role": r, "content": c} for r, c in turns]}


def _reads(name: str, text: str, *examples: dict[str, Any]) -> Case:
    return hand(name, "conversations", {"text": text}, {"examples": list(examples)})


def _reads_bytes(name: str, data: bytes, *examples: dict[str, Any]) -> Case:
    given = {"bytes_hex": data.hex()}
    return hand(name, "conversations", given, {"examples": list(examples)})


def _refused(name: str, text: str) -> Case:
    return refused(name, "conversations", {"text": text})


def _refused_bytes(name: str, data: bytes) -> Case:
    return refused(name, "conversations", {"bytes_hex": data.hex()})


A, B = line("a", ("user", "x"), ("assistant", "y")), line("b", ("user", "z"))
A_READ, B_READ = record("a", ("user", "x"), ("assistant", "y")), record("b", ("user", "z"))


def _content(raw: str) -> str:
    """A line whose only content is the JSON string literal with `raw` between its quotes."""
    return f'{{"id": "a", "messages": [{{"role": "user", "content": "{raw}"}}]}}'


def _reads_content(name: str, raw: str, content: str) -> Case:
    return _reads(name, _content(raw) + "\n", record("a", ("user", content)))


READ = [
    _reads("two lines", f"{A}\n{B}\n", A_READ, B_READ),
    _reads("no LF at the end", f"{A}\n{B}", A_READ, B_READ),
    _reads("one line without LF", A, A_READ),
    _reads("CR before LF is JSON white space", f"{A}\r\n{B}\r\n", A_READ, B_READ),
    _reads("white space around the value", f" \t{A} \r\n", A_READ),
    _reads_content("U+2028 does not end a line", "p\u2028q", "p\u2028q"),
    _reads_content("U+2029 does not end a line", "p\u2029q", "p\u2029q"),
    _reads_content("U+0085 does not end a line", "p\u0085q", "p\u0085q"),
    _reads_content("escaped CR LF are kept", "p\\r\\nq\\r", "p\r\nq\r"),
    _reads_content("escaped vertical tab and form feed", "p\\u000bq\\fr", "p\u000bq\u000cr"),
    _reads_content("escaped NUL in a content", "p\\u0000q", "p\u0000q"),
    _reads_content("DEL in a content", "p\u007fq", "p\u007fq"),
    _reads_content("no strip", "  \\n p \\t ", "  \n p \t "),
    _reads_content("white space alone is a content", " ", " "),
    _reads_content(
        "no normalisation", "e\u0301 \u00e9 \ufb01 \u212b", "e\u0301 \u00e9 \ufb01 \u212b"
    ),
    _reads_content("an escaped surrogate pair is one character", "\\ud83d\\ude00", "\U0001f600"),
    _reads_content(
        "astral characters", "\U0001f469\u200d\u2695\ufe0f", "\U0001f469\u200d\u2695\ufe0f"
    ),
    _reads_content("byte-order mark inside a content", "\ufeffp\\ufeff", "\ufeffp\ufeff"),
    _reads_content(
        "other noncharacters", "\ufffe\uffff\ufdd2\U0001ffff", "\ufffe\uffff\ufdd2\U0001ffff"
    ),
    _reads_content("replacement character", "\ufffd", "\ufffd"),
    _reads_content("escaped solidus and quote", '\\/ \\" \\\\n', '/ " \\n'),
    _reads(
        "a system content may be empty",
        line("a", ("system", ""), ("user", "x")),
        record("a", ("system", ""), ("user", "x")),
    ),
    _reads(
        "roles in any order after that",
        line("a", ("assistant", "x"), ("assistant", "y"), ("user", "z"), ("user", "z")),
        record("a", ("assistant", "x"), ("assistant", "y"), ("user", "z"), ("user", "z")),
    ),
    _reads("system alone", line("a", ("system", "s")), record("a", ("system", "s"))),
    _reads(
        "keys in another order",
        '{"messages": [{"content": "x", "role": "user"}], "id": "a"}\n',
        record("a", ("user", "x")),
    ),
    _reads(
        "keys with escapes",
        '{"\\u0069d": "a", "messages": [{"role": "us\\u0065r", "content": "x"}]}\n',
        record("a", ("user", "x")),
    ),
    _reads(
        "ids that differ in case and in form",
        "\n".join(line(i, ("user", "x")) for i in ("a", "A", "\u00e9", "e\u0301", "a ", " ")),
        *(record(i, ("user", "x")) for i in ("a", "A", "\u00e9", "e\u0301", "a ", " ")),
    ),
    _reads(
        "an id may hold U+0085, U+2028 and emoji",
        line("\u0085\u2028\U0001f600", ("user", "x")),
        record("\u0085\u2028\U0001f600", ("user", "x")),
    ),
    _reads(
        "an id of 256 characters", line("i" * 256, ("user", "x")), record("i" * 256, ("user", "x"))
    ),
    # 1024 bytes of UTF-8, 512 units of UTF-16
    _reads(
        "an id of 256 emoji",
        line("\U0001f600" * 256, ("user", "x")),
        record("\U0001f600" * 256, ("user", "x")),
    ),
    _reads_bytes(
        "U+2028 and U+0085 as bytes, no LF at the end",
        _content("\u2028\u0085").encode(),
        record("a", ("user", "\u2028\u0085")),
    ),
]

REFUSED = [
    _refused("empty line between", f"{A}\n\n{B}\n"),
    _refused("empty line at the end", f"{A}\n\n"),
    _refused("empty line at the start", f"\n{A}\n"),
    _refused("a line of blanks", f"{A}\n \t\n{B}\n"),
    _refused("a last line of blanks without LF", f"{A}\n "),
    _refused("a line of CR", f"{A}\r\n\r\n{B}\r\n"),
    _refused("a line of U+2028", f"{A}\n\u2028\n"),
    _refused_bytes("byte-order mark", b"\xef\xbb\xbf" + A.encode() + b"\n"),
    _refused("byte-order mark on the second line", f"{A}\n\ufeff{B}\n"),
    _refused_bytes("UTF-16", A.encode("utf-16")),
    _refused_bytes("invalid UTF-8", _content("\u00e9").encode("latin-1")),
    _refused_bytes("truncated UTF-8", _content("\u00e9").encode().replace(b"\xa9", b"")),
    _refused_bytes("overlong UTF-8", _content("!").encode().replace(b"!", b"\xc0\xaf")),
    _refused_bytes(
        "a surrogate as UTF-8 bytes", _content("!").encode().replace(b"!", b"\xed\xa0\x80")
    ),
    _refused_bytes("above U+10FFFF", _content("!").encode().replace(b"!", b"\xf4\x90\x80\x80")),
    _refused("not JSON", "id: a\n"),
    _refused("cut off", A[:-1] + "\n"),
    _refused("two values on a line", f"{A}{B}\n"),
    _refused("two values with a comma", f"{A},\n"),
    _refused("single quotes", A.replace('"', "'")),
    _refused("trailing comma", A[:-1] + ",}"),
    _refused("a comment", A + " // note"),
    _refused("U+2028 outside a string", A + "\u2028"),
    _refused("CR alone does not end a line", f"{A}\r{B}\n"),
    _refused("LF inside a string", _content("p\nq")),
    _refused("raw tab inside a string", _content("p\tq")),
    _refused("raw NUL inside a string", _content("p\u0000q")),
    _refused("bad escape", _content("\\x41")),
    _refused("not an object", '["a"]\n'),
    _refused("null", "null\n"),
    _refused("NaN", '{"id": "a", "messages": NaN}\n'),
    _refused(
        "repeated key", '{"id": "a", "id": "b", "messages": [{"role": "user", "content": "x"}]}'
    ),
    _refused(
        "repeated key, once escaped",
        '{"id": "a", "\\u0069d": "a", "messages": [{"role": "user", "content": "x"}]}',
    ),
    _refused(
        "repeated key in a message",
        '{"id": "a", "messages": [{"role": "user", "content": "x", "content": "x"}]}',
    ),
    _refused("missing id", '{"messages": [{"role": "user", "content": "x"}]}'),
    _refused("missing messages", '{"id": "a"}'),
    _refused("another key", A[:-1] + ', "source": "s"}'),
    _refused(
        "another key in a message",
        '{"id": "a", "messages": [{"role": "user", "content": "x", "name": "n"}]}',
    ),
    _refused("missing content", '{"id": "a", "messages": [{"role": "user"}]}'),
    _refused("id is a number", '{"id": 1, "messages": [{"role": "user", "content": "x"}]}'),
    _refused("id is empty", line("", ("user", "x"))),
    _refused("id of 257 characters", line("i" * 257, ("user", "x"))),
    _refused("id of 257 emoji", line("\U0001f600" * 257, ("user", "x"))),
    _refused(
        "id is a number of thousands of digits",
        f'{{"id": {"1" * 5000}, "messages": [{{"role": "user", "content": "x"}}]}}',
    ),
    _refused("arrays 20000 deep", f'{{"id": "a", "messages": {"[" * 20_000}'),
    _refused("id with LF", line("a\n", ("user", "x"))),
    _refused("id with NUL", line("a\u0000", ("user", "x"))),
    _refused("id with DEL", line("a\u007f", ("user", "x"))),
    _refused("id with U+001F", line("a\u001f", ("user", "x"))),
    _refused("id repeated", f"{A}\n{A}\n"),
    _refused("id repeated far away", f"{A}\n{B}\n{line('a', ('user', 'other'))}\n"),
    _refused("id repeated in another spelling", f"{B}\n" + B.replace('"b"', '"\\u0062"')),
    _refused("messages is empty", '{"id": "a", "messages": []}'),
    _refused("messages is an object", '{"id": "a", "messages": {"role": "user", "content": "x"}}'),
    _refused("a message is a string", '{"id": "a", "messages": ["x"]}'),
    _refused("content is null", '{"id": "a", "messages": [{"role": "user", "content": null}]}'),
    _refused("content is a list", '{"id": "a", "messages": [{"role": "user", "content": ["x"]}]}'),
    _refused("user content is empty", line("a", ("user", ""))),
    _refused("assistant content is empty", line("a", ("user", "x"), ("assistant", ""))),
    _refused("system in second place", line("a", ("user", "x"), ("system", "s"))),
    _refused("system twice", line("a", ("system", "s"), ("system", "s"), ("user", "x"))),
    _refused("unknown role", line("a", ("tool", "x"))),
    _refused("role in capitals", line("a", ("User", "x"))),
    _refused("role with a blank", line("a", ("user ", "x"))),
    _refused("role is empty", line("a", ("", "x"))),
    _refused("high surrogate alone", _content("\\ud83d")),
    _refused("low surrogate alone", _content("\\ude00")),
    _refused("surrogates in the wrong order", _content("\\ude00\\ud83d")),
    _refused(
        "surrogate in an id", '{"id": "\\ud800", "messages": [{"role": "user", "content": "x"}]}'
    ),
    _refused("U+FDD0 in a content", _content("p\ufdd0q")),
    _refused("U+FDD1 in a content", _content("p\ufdd1q")),
    _refused("U+FDD0 as an escape", _content("\\ufdd0")),
    _refused("U+FDD1 in a system content", line("a", ("system", "\ufdd1"), ("user", "x"))),
    _refused("the second line is wrong", f"{A}\n{{}}\n"),
]

CLAUSE = Clause(clause="S-02", note="Exact.", cases=READ + REFUSED)
