"""Conversations: JSONL files to examples (S-02).

Errors name the file and the 1-based line, never the content.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import BadInput

Messages = list[dict[str, str]]  # each {"role", "content"}

ROLES = ("system", "user", "assistant")
MAX_ID_CHARACTERS = 256
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MARKERS = ("\ufdd0", "\ufdd1")  # noncharacters that render.py marks spans with


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A conversation and the place it was read from."""

    id: str
    messages: Messages
    file: str
    line: int  # from 1


@dataclass(kw_only=True)
class ConversationReader:
    """Reads the splits of one run; ids are unique over all of them.

    Attributes:
        places: id -> "file:line" of every example read so far.
        hashes: the hash of each file's bytes, in the order in which they were read.
    """

    places: dict[str, str] = field(default_factory=dict)
    hashes: list[str] = field(default_factory=list)

    def read(self, paths: Sequence[Path]) -> Iterator[Example]:
        """The examples of a split: its files one after the other.

        Raises:
            BadInput: a line breaks S-02, or a file cannot be read.
        """
        for path in paths:
            yield from self._read_file(path)

    def _read_file(self, path: Path) -> Iterator[Example]:
        try:
            with path.open("rb") as file:
                yield from self.read_lines(file, str(path))
        except OSError as error:
            raise BadInput(
                f"{path}: the data file cannot be read ({error.strerror}); check the config"
            ) from error

    def read_lines(self, lines: Iterable[bytes], name: str) -> Iterator[Example]:
        """The examples of one file; a binary file's lines end at LF and at nothing else."""
        digest = hashlib.sha256()
        for number, line in enumerate(lines, start=1):
            digest.update(line)
            example = parse_line(line.removesuffix(b"\n"), name, number)
            self._register(example)
            yield example
        self.hashes.append(digest.hexdigest())

    def _register(self, example: Example) -> None:
        place = f"{example.file}:{example.line}"
        first = self.places.setdefault(example.id, place)
        if first is not place:
            raise BadInput(
                f"{place}: an id is unique over all splits (S-02), but {first} has the same; "
                "rename one"
            )


def parse_line(line: bytes, file: str, number: int) -> Example:
    """One line of JSONL, without its LF, as an example.

    Raises:
        BadInput: the line breaks S-02.
    """
    where = f"{file}:{number}"
    if number == 1 and line.startswith(BYTE_ORDER_MARK):
        raise BadInput(
            f"{where}: a data file has no byte-order mark (S-02), this one has; save it without"
        )
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{where}: a data file is UTF-8 (S-02), byte {error.start} of the line is not"
        ) from error
    if not text.strip():
        raise BadInput(
            f"{where}: a line holds one conversation (S-02), this one is empty; remove it"
        )
    value = _parse_json(text, where)
    if not isinstance(value, dict) or value.keys() != {"id", "messages"}:
        raise BadInput(f"{where}: a line is an object with exactly the keys id and messages (S-02)")
    messages = value["messages"]
    if not isinstance(messages, list) or not messages:
        raise BadInput(f"{where}: messages is a non-empty array (S-02)")
    for position, message in enumerate(messages):
        _check_message(message, position, where)
    return Example(id=_checked_id(value["id"], where), messages=messages, file=file, line=number)


def _parse_json(text: str, where: str) -> Any:
    def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(result := dict(pairs)) != len(pairs):
            raise BadInput(f"{where}: a key is repeated in an object (S-02); keep one")
        return result

    def refuse_constant(name: str) -> None:
        raise BadInput(f"{where}: {name} is not JSON (S-02)")

    try:
        return json.loads(text, object_pairs_hook=unique_keys, parse_constant=refuse_constant)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"{where}: the line is not one JSON value (S-02), see column {error.colno}"
        ) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, deep nesting
        raise BadInput(f"{where}: the line is not a JSON value that can be read (S-02)") from error


def _checked_id(value: Any, where: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_ID_CHARACTERS:
        raise BadInput(f"{where}: id is a string of 1 to {MAX_ID_CHARACTERS} characters (S-02)")
    if any(character < " " or character == "\x7f" for character in value):
        raise BadInput(f"{where}: an id has no control characters (S-02); remove them")
    _refuse_surrogates(value, "id", where)
    return value


def _check_message(message: Any, position: int, where: str) -> None:
    name = f"messages[{position}]"
    if not isinstance(message, dict) or message.keys() != {"role", "content"}:
        raise BadInput(
            f"{where}: {name} is an object with exactly the keys role and content (S-02)"
        )
    role, content = message["role"], message["content"]
    if not isinstance(role, str) or role not in ROLES:
        raise BadInput(f"{where}: {name}.role is one of {', '.join(ROLES)} (S-02)")
    if role == "system" and position > 0:
        raise BadInput(
            f"{where}: {name}.role is system, which is allowed in first place only (S-02)"
        )
    if not isinstance(content, str):
        raise BadInput(f"{where}: {name}.content is a string (S-02)")
    if not content and role != "system":
        raise BadInput(
            f"{where}: {name}.content is empty, which only a system content may be (S-02)"
        )
    _refuse_surrogates(content, f"{name}.content", where)
    if any(marker in content for marker in MARKERS):
        raise BadInput(
            f"{where}: {name}.content holds U+FDD0 or U+FDD1 (S-02); remove the noncharacter"
        )


def _refuse_surrogates(text: str, name: str, where: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadInput(
            f"{where}: {name} holds an unpaired surrogate (S-02) at character {error.start}"
        ) from error
