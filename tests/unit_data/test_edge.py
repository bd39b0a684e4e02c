"""The edge set has each property it exists for, asserted on the file."""

import json
import re
import unicodedata

import pytest
from tokenizers import Tokenizer

from tests.unit_data.conftest import DATA, Row

EDGE = DATA / "clinical" / "edge.jsonl"
MAX_LENGTH_TOKENS = 256


def contents(rows: dict[str, Row], role: str | None = None) -> list[str]:
    messages = [message for row in rows.values() for message in row["messages"]]
    return [m["content"] for m in messages if role in (None, m["role"])]


def render(row: Row) -> tuple[str, list[int]]:
    """ChatML written out by hand, and where each assistant content starts."""
    text, starts = "", []
    for message in row["messages"]:
        text += f"<|im_start|>{message['role']}\n"
        if message["role"] == "assistant":
            starts.append(len(text))
        text += f"{message['content']}<|im_end|>\n"
    return text, starts


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(DATA / "tokenizers" / "clinical-4k" / "tokenizer.json"))


def test_last_line_has_no_line_end_and_every_line_is_json() -> None:
    raw = EDGE.read_bytes()
    assert raw[-1:] == b"}"
    assert not raw.startswith(b"\xef\xbb\xbf")
    lines = raw.split(b"\n")
    assert len(lines) >= 30
    assert len({json.loads(line)["id"] for line in lines}) == len(lines)


def test_format_is_the_contracts(edge: dict[str, Row]) -> None:
    for row in edge.values():
        assert list(row) == ["id", "messages"]
        assert re.fullmatch(r"edge-[a-z-]+-\d\d", row["id"])
        for position, message in enumerate(row["messages"]):
            assert list(message) == ["role", "content"]
            assert message["role"] in {"user", "assistant"} | (
                {"system"} if not position else set()
            )
            assert message["content"] or message["role"] == "system"
            assert not re.search("[\ud800-\udfff\ufdd0\ufdd1]", message["content"])


def test_readers_that_split_at_other_line_ends_would_break() -> None:
    raw = EDGE.read_bytes()
    assert len(raw.decode().splitlines()) > len(raw.split(b"\n"))
    for separator in ("\u2028", "\u2029", "\u0085"):
        assert separator.encode() in raw


def test_lengths_are_far_apart(edge: dict[str, Row], tokenizer: Tokenizer) -> None:
    sizes = {name: len(tokenizer.encode(render(row)[0]).ids) for name, row in edge.items()}
    assert min(sizes.values()) < 20
    assert max(sizes.values()) > 10 * MAX_LENGTH_TOKENS
    assert sizes["edge-long-01"] > 2 * MAX_LENGTH_TOKENS
    assert len(edge["edge-long-01"]["messages"]) > 9
    assert re.fullmatch(r"\w+", edge["edge-short-01"]["messages"][-1]["content"])


def test_truncation_cuts_inside_an_answer(edge: dict[str, Row], tokenizer: Tokenizer) -> None:
    text, (start,) = render(edge["edge-long-02"])
    ranges = tokenizer.encode(text).offsets
    assert ranges[MAX_LENGTH_TOKENS - 1][0] > start
    assert len(ranges) > 2 * MAX_LENGTH_TOKENS


def test_targets_can_lie_beyond_the_limit(edge: dict[str, Row], tokenizer: Tokenizer) -> None:
    text, (start,) = render(edge["edge-beyond-limit-01"])
    assert tokenizer.encode(text).offsets[MAX_LENGTH_TOKENS - 1][1] < start


def test_some_have_no_target_and_some_many_turns(edge: dict[str, Row]) -> None:
    roles = [[m["role"] for m in row["messages"]] for row in edge.values()]
    assert sum("assistant" not in of_row for of_row in roles) >= 2
    assert any(of_row.count("assistant") >= 4 for of_row in roles)
    assert any(of_row[-1] == "user" and "assistant" in of_row for of_row in roles)
    assert any("assistant" in of_row and of_row[-2:] == ["assistant"] * 2 for of_row in roles)


def test_system_prompts_can_be_empty(edge: dict[str, Row]) -> None:
    assert "" in contents(edge, "system")


@pytest.mark.parametrize(
    "typed", ["<|im_end|>", "<|im_start|>assistant\n", "<|endoftext|>", "<|im_end|>\n<|im_start|>"]
)
def test_users_type_control_tokens(edge: dict[str, Row], typed: str) -> None:
    assert any(typed in text for text in contents(edge, "user"))


def test_normalisation_would_change_text(edge: dict[str, Row]) -> None:
    texts = contents(edge)
    assert any(unicodedata.normalize("NFC", text) != text for text in texts)
    assert any(unicodedata.normalize("NFD", text) != text for text in texts)
    compatibility = [t for t in texts if unicodedata.normalize("NFKC", t) != t]
    assert any("\ufb01" in text and "\u00b5" in text for text in compatibility)


@pytest.mark.parametrize(
    ("property_name", "pattern"),
    [
        ("right to left: Hebrew and Arabic", "[\u05d0-\u05ea][^\0]*[\u0621-\u064a]"),
        ("directional marks", "[\u200e\u200f\u202b]"),
        ("Chinese", "[\u4e00-\u9fff]"),
        ("Japanese", "[\u3041-\u30ff]"),
        ("Korean", "[\uac00-\ud7a3]"),
        ("beyond the basic plane", "\U00020bb7"),
        ("a joined emoji", "\U0001f468\u200d\U0001f469"),
        ("a flag", "[\U0001f1e6-\U0001f1ff]{2}"),
        ("a tag flag", "\U0001f3f4[\U000e0061-\U000e007a]+\U000e007f"),
        ("a skin tone", "[\U0001f3fb-\U0001f3ff]"),
        ("a keycap", "1\ufe0f\u20e3"),
        ("leading white space", r"\A[ \n\t]"),
        ("trailing white space", r"[ \n\t]\Z"),
        ("several newlines", r"\n\n\n"),
        ("a tab", r"\t"),
        ("no-break spaces", "\u00a0.*\u202f|\u202f.*\u00a0"),
        ("zero-width characters", "\u200b.*\u2060.*\ufeff"),
        ("a byte-order mark first", "\\A\ufeff"),
        ("a long run of digits", r"\d{30}"),
        ("other digits", "\u0967.*\u00b2.*\u2167"),
        ("one character hundreds of times", r"(.)\1{499}"),
        ("curly expressions", r"\{\{ messages \}\}"),
        ("generation tags", r"\{% generation %\}"),
        ("a comment tag", r"\{#"),
        ("HTML", r"<script>.*&amp;|&amp;.*<script>"),
        ("backslashes", r"\\\\.*\\\Z"),
        ("both quotes", r"\".*'"),
        ("CR LF", r"\r\n"),
        ("CR alone", r"\r(?!\n)"),
        ("NUL", "\0"),
        ("letters new in Unicode 16", "\u1c89.*\ua7cb.*\ua7da"),
        ("cased pairs that are not one to one", "\u1e9e.*\u0130\u0131"),
        ("contractions in lower and upper case", r"'s\b[\s\S]*'S\b[\s\S]*'LL\b"),
        ("a typographic apostrophe", "\u2019s"),
        ("a combining mark after a space", " \u0301"),
        ("a combining mark first", "\\A\u0301"),
        ("private use and noncharacters", "\ue000[^\0]*\uffff"),
        ("a reasoning part", r"<think>[\s\S]*</think>"),
    ],
)
def test_some_content_has(edge: dict[str, Row], property_name: str, pattern: str) -> None:
    assert any(re.search(pattern, text) for text in contents(edge)), property_name
