import hashlib
import io
import json
from pathlib import Path

import pytest

from stacks.jax_stack.errors import BadInput
from stacks.jax_stack.examples import ConversationReader, parse_line

from .conftest import conversation


def read(data: bytes) -> list[str]:
    return [e.id for e in ConversationReader().read_lines(io.BytesIO(data), "f")]


def test_only_lf_ends_a_line_and_the_last_line_counts() -> None:
    first = '{"id": "a", "messages": [{"role": "user", "content": "p\u2028q\u0085r"}]}\r\n'
    assert read((first + conversation("b", "x").rstrip("\n")).encode()) == ["a", "b"]


def test_files_of_a_split_follow_one_another_and_are_hashed(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(conversation(name, "x"))
    reader = ConversationReader()
    assert [e.id for e in reader.read([tmp_path / "b", tmp_path / "a"])] == ["b", "a"]
    assert reader.hashes[0] == hashlib.sha256((tmp_path / "b").read_bytes()).hexdigest()


def test_an_id_is_unique_over_splits() -> None:
    reader = ConversationReader()
    list(reader.read_lines([conversation("a", "x").encode()], "train"))
    with pytest.raises(BadInput, match=r"eval:1: .* train:1"):
        list(reader.read_lines([conversation("a", "y").encode()], "eval"))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b" \t",
        b"\xef\xbb\xbf{}",
        b'{"id": "a"}',
        b'{"id": "a", "messages": []}',
        b'{"id": "", "messages": [{"role": "user", "content": "SECRET"}]}',
        b'{"id": "%s", "messages": [{"role": "user", "content": "SECRET"}]}' % (b"x" * 257),
        b'{"id": "a\\u0007", "messages": [{"role": "user", "content": "SECRET"}]}',
        b'{"id": "a", "messages": [{"role": "tool", "content": "SECRET"}]}',
        b'{"id": "a", "messages": [{"role": "user", "content": ""}]}',
        b'{"id": "a", "messages": [{"role": "user", "content": "SECRET\\ud800"}]}',
        b'{"id": "a", "messages": [{"role": "user", "content": "SECRET\\ufdd0"}]}',
        b'{"id": "a", "id": "b", "messages": [{"role": "user", "content": "SECRET"}]}',
        b'{"id": NaN, "messages": [{"role": "user", "content": "SECRET"}]}',
        b'{"id": "a", "messages": [{"role": "user", "content": "SECRET", "name": "x"}]}',
        b'{"id": "SECRET" "messages"',
        b"[" * 100_000,
    ],
)
def test_a_broken_line_is_refused_by_place_and_without_its_content(line: bytes) -> None:
    with pytest.raises(BadInput, match="^data:1: ") as refusal:
        parse_line(line, "data", 1)
    assert "SECRET" not in str(refusal.value)


def test_system_is_allowed_in_first_place_only_and_may_be_empty() -> None:
    def line(*roles: str) -> bytes:
        messages = [{"role": role, "content": "" if role == "system" else "x"} for role in roles]
        return json.dumps({"id": "a", "messages": messages}).encode()

    assert len(parse_line(line("system", "user"), "f", 1).messages) == 2
    with pytest.raises(BadInput, match="first place"):
        parse_line(line("user", "system"), "f", 2)
