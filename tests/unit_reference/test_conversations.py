import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.conversations import MARKERS, read_split, split_lines
from tests.reference.errors import RefusedError

CONTENT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=MARKERS), min_size=1, max_size=20
)


@given(st.lists(CONTENT, min_size=1, max_size=5), st.booleans(), st.booleans())
def test_what_json_writes_is_read(contents: list[str], ascii_only: bool, final: bool) -> None:
    lines = [
        json.dumps(
            {"id": str(i), "messages": [{"role": "user", "content": content}]},
            ensure_ascii=ascii_only,
        )
        for i, content in enumerate(contents)
    ]
    data = ("\n".join(lines) + ("\n" if final else "")).encode()
    read = read_split([("file", data)], set())
    assert [c.messages[0]["content"] for c in read] == contents


def test_lines_end_at_line_feeds_alone() -> None:
    assert split_lines("a\u2028b\rc\u0085d\n".encode()) == ["a\u2028b\rc\u0085d".encode()]
    assert split_lines(b"a\n\nb") == [b"a", b"", b"b"]
    assert split_lines(b"") == []


def test_ids_are_unique_over_splits_and_errors_name_file_and_line() -> None:
    line = b'{"id": "a", "messages": [{"role": "user", "content": "secret"}]}\n'
    seen: set[str] = set()
    read_split([("one.jsonl", line)], seen)
    with pytest.raises(RefusedError, match=r"two\.jsonl"):
        read_split([("two.jsonl", line)], seen)
    with pytest.raises(RefusedError, match=r"three\.jsonl:2") as caught:
        read_split([("three.jsonl", line.replace(b'"a"', b'"b"') + line[:-2])], set())
    assert "secret" not in str(caught.value)


def test_a_split_holds_at_least_one_example() -> None:
    line = b'{"id": "a", "messages": [{"role": "user", "content": "x"}]}\n'
    assert len(read_split([("empty.jsonl", b""), ("one.jsonl", line)], set())) == 1
    with pytest.raises(RefusedError, match="no example"):
        read_split([("empty.jsonl", b""), ("empty-2.jsonl", b"")], set())
