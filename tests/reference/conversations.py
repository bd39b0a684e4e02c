"""Conversations (S-02): JSONL bytes to a list of examples, or a refusal that quotes nothing."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.reference.errors import RefusedError, require

ROLES = ("system", "user", "assistant")
MARKERS = ("\ufdd0", "\ufdd1")
MAX_ID = 256  # characters
CONTROLS = {chr(code) for code in range(0x20)} | {"\x7f"}

Message = dict[str, str]  # role and content


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """One example as read."""

    id: str
    messages: tuple[Message, ...]


def split_lines(data: bytes) -> list[bytes]:
    """Lines end at LF alone; the last counts without one, and no line follows a final LF."""
    lines = data.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def parse_json(line: bytes, where: str) -> Any:
    """One JSON value; repeated keys, NaN and Infinity are refused."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        require(len(record) == len(pairs), f"{where}: an object repeats a key")
        return record

    def constant(_word: str) -> Any:
        raise RefusedError(f"{where}: JSON has no NaN and no Infinity")

    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RefusedError(f"{where}: not UTF-8 at byte {error.start}") from None
    require(not text.startswith("\ufeff"), f"{where}: begins with a byte-order mark")
    require(text.strip() != "", f"{where}: empty line")
    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=constant)
    except RefusedError:
        raise
    except (ValueError, RecursionError):
        raise RefusedError(f"{where}: not one JSON value") from None


def has_surrogate(text: str) -> bool:
    """True when a code point is half of a pair."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def check_message(message: Any, place: int, where: str) -> Message:
    """Message `place` of a line, checked."""
    where = f"{where}: message {place}"
    is_object = isinstance(message, dict) and set(message) == {"role", "content"}
    require(is_object, f"{where}: must have exactly role and content")
    role, content = message["role"], message["content"]
    require(isinstance(role, str) and role in ROLES, f"{where}: role is none of {ROLES}")
    require(isinstance(content, str), f"{where}: content is not a string")
    require(role != "system" or place == 0, f"{where}: system is allowed in first place only")
    require(content != "" or role == "system", f"{where}: content is empty")
    require(not has_surrogate(content), f"{where}: content has an unpaired surrogate")
    require(not any(m in content for m in MARKERS), f"{where}: content has U+FDD0 or U+FDD1")
    return {"role": role, "content": content}


def check_record(record: Any, where: str) -> Conversation:
    """One line's value, checked."""
    is_object = isinstance(record, dict) and set(record) == {"id", "messages"}
    require(is_object, f"{where}: must have exactly id and messages")
    identifier, messages = record["id"], record["messages"]
    require(isinstance(identifier, str), f"{where}: id is not a string")
    length = len(identifier)
    require(1 <= length <= MAX_ID, f"{where}: id has {length} characters, not 1 to {MAX_ID}")
    require(not CONTROLS & set(identifier), f"{where}: id has a control character")
    require(not has_surrogate(identifier), f"{where}: id has an unpaired surrogate")
    require(isinstance(messages, list) and messages != [], f"{where}: messages is no list or empty")
    checked = tuple(check_message(message, i, where) for i, message in enumerate(messages))
    return Conversation(id=identifier, messages=checked)


def read_file(name: str, data: bytes) -> Iterator[Conversation]:
    """The examples of one file; `name` is for errors only."""
    for number, line in enumerate(split_lines(data), start=1):
        yield check_record(parse_json(line, f"{name}:{number}"), f"{name}:{number}")


def read_split(files: Iterable[tuple[str, bytes]], seen: set[str]) -> list[Conversation]:
    """The examples of a split, in order, at least one. `seen`, the ids of the run, is added to."""
    split = []
    for name, data in files:
        for conversation in read_file(name, data):
            require(conversation.id not in seen, f"{name}: an id is repeated in the run")
            seen.add(conversation.id)
            split.append(conversation)
    require(split != [], "a split holds no example")
    return split
