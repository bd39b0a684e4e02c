"""Lines are cut at LF alone and checked strictly; messages never show text (S-02)."""

import hashlib
import json
from pathlib import Path

import pytest

from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.examples import load_splits, parse_line, parse_lines

USER = {"role": "user", "content": "secret"}


def line(**changes: object) -> bytes:
    return json.dumps({"id": "a", "messages": [USER], **changes}, ensure_ascii=False).encode()


def test_contents_are_used_as_they_are() -> None:
    content = "  a\u2028b\u0085c\rd\r\n\ufeffe\u0301  "
    source = json.dumps(content, ensure_ascii=False)[1:-1].encode()
    raw = b'{"id": "a", "messages": [{"role": "user", "content": "%s"}]}' % source
    (example,) = parse_lines(raw + b"\r\n", "f")
    assert example == {"id": "a", "messages": [{"role": "user", "content": content}]}


def test_the_last_line_counts_without_a_line_feed() -> None:
    source = line(id="a") + b"\n" + line(id="b")
    assert [one["id"] for one in parse_lines(source, "f")] == ["a", "b"]
    assert parse_lines(source, "f") == parse_lines(source + b"\n", "f")
    assert parse_lines(b"", "f") == []


def test_an_empty_system_content_is_allowed() -> None:
    messages = [{"role": "system", "content": ""}, USER]
    assert parse_line(line(messages=messages), "f")[1] == messages


REFUSED = {
    "empty": b"",
    "white space": b" \t",
    "no-break space": "\u00a0".encode(),
    "byte-order mark": b"\xef\xbb\xbf" + line(),
    "not UTF-8": b'{"id": "\xff"}',
    "not JSON": b"{secret",
    "two values": line() + line(),
    "NaN": b'{"id": "a", "messages": NaN}',
    "raw control character": b'{"id": "a", "messages": [{"role":"user","content":"secret\x01"}]}',
    "deep": b"[" * 100_000,
    "long number": b"1" * 5_000,
    "array": b"[]",
    "repeated key": b'{"id": "a", "id": "b", "messages": []}',
    "repeated inner key": b'{"id":"a","messages":[{"role":"user","role":"user","content":"s"}]}',
    "missing key": b'{"id": "a"}',
    "unknown key": line(more=1),
    "empty id": line(id=""),
    "long id": line(id="a" * 257),
    "number as id": line(id=1),
    "control character in id": line(id="a\x7f"),
    "no messages": line(messages=[]),
    "messages is an object": line(messages={}),
    "unknown message key": line(messages=[{**USER, "name": "x"}]),
    "unknown role": line(messages=[{**USER, "role": "tool"}]),
    "role is a list": line(messages=[{**USER, "role": []}]),
    "late system": line(messages=[USER, {"role": "system", "content": "secret"}]),
    "empty content": line(messages=[{**USER, "content": ""}]),
    "null content": line(messages=[{**USER, "content": None}]),
    "surrogate in content": rb'{"id":"a","messages":[{"role":"user","content":"secret\ud800"}]}',
    "surrogate in id": rb'{"id":"\udc00","messages":[{"role":"user","content":"secret"}]}',
    "noncharacter": line(messages=[{**USER, "content": "secret\ufdd0"}]),
}


@pytest.mark.parametrize("source", REFUSED.values(), ids=REFUSED)
def test_a_bad_line_is_refused_by_place(source: bytes) -> None:
    with pytest.raises(BadInput, match=r"^S-02: f line 2: ") as refusal:
        parse_lines(line(id="first") + b"\n" + source + b"\n" + line(id="last"), "f")
    assert "secret" not in str(refusal.value)


def test_a_surrogate_pair_is_one_character() -> None:
    source = rb'{"id":"a","messages":[{"role":"user","content":"\ud83e\udec0"}]}'
    assert parse_line(source, "f")[1][0]["content"] == "\U0001fac0"


def test_splits_keep_order_place_and_hash(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("1", "2", "3", "4", "5")]
    for path, ids in zip(paths, ("ab", "c", "de", "", "f"), strict=True):
        path.write_bytes(b"\n".join(line(id=one) for one in ids))
    splits = load_splits({"train": paths[:2], "eval": [paths[2]], "edge": paths[3:]})
    train = splits["train"]
    assert train.conversations is not None
    assert train.conversations["id"][:] == ["a", "b", "c"]
    assert train.conversations[2]["messages"] == [USER]
    assert [train.where(index) for index in range(3)] == [
        f"{paths[0]} line 1",
        f"{paths[0]} line 2",
        f"{paths[1]} line 1",
    ]
    digests = tuple(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths[:2])
    assert train.files_sha256 == digests
    assert splits["edge"].where(0) == f"{paths[4]} line 1"


def test_ids_are_unique_over_splits(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(line(id="a"))
    two.write_bytes(line(id="b") + b"\n" + line(id="a"))
    with pytest.raises(BadInput, match=r"two line 2: the id 'a' was used before at .*one line 1"):
        load_splits({"train": [one], "eval": [two], "edge": []})


def test_each_split_holds_an_example(tmp_path: Path) -> None:
    one, none = tmp_path / "one", tmp_path / "none"
    one.write_bytes(line(id="a" * 256))
    none.write_bytes(b"")
    with pytest.raises(BadInput, match="the split eval has no example in .*none"):
        load_splits({"train": [one], "eval": [none], "edge": [one]})


def test_a_missing_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="gone cannot be read"):
        load_splits({"train": [tmp_path / "gone"], "eval": [], "edge": []})
