"""Conversation files (S-02): every line of every split is checked before a leg starts.

About 100,000 lines a second. Messages name file and line, never a content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oracle.document import kind
from oracle.errors import DataError
from oracle.files import read_bytes

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
SURROGATE = re.compile(r"[\ud800-\udfff]")
NONCHARACTER = re.compile(r"[\ufdd0\ufdd1]")
ROLES = ("system", "user", "assistant")
LONGEST_ID = 256  # characters
KEYS = {"id", "messages"}
MESSAGE_KEYS = {"role", "content"}


class _Refused(ValueError):
    """Why a line is no conversation; becomes a DataError with file and line."""


@dataclass(kw_only=True)
class ExampleIds:
    """The ids met so far, over all splits of a run, each with its place."""

    places: dict[str, tuple[Path, int]] = field(default_factory=dict)

    def add(self, example_id: str, path: Path, line: int) -> None:
        """Remember an id; refuses one that was there before, naming both places."""
        if example_id in self.places:  # also when one file is named for two splits
            first_path, first_line = self.places[example_id]
            raise _Refused(f"the id {example_id!r} is already that of {first_path}:{first_line}")
        self.places[example_id] = (path, line)


@dataclass(frozen=True, kw_only=True)
class SplitSize:
    """What one data file holds."""

    num_examples: int
    num_bytes: int


def check_file(path: Path, split: str, ids: ExampleIds) -> SplitSize:
    """Check one file of a split; raises DataError with the 1-based line of the first fault."""
    content = read_bytes(path, f"{split} data")
    if content.startswith(BYTE_ORDER_MARK):
        raise DataError(f"{path}:1 begins with a byte-order mark; save it as UTF-8 without one.")
    number = 0
    for number, line in enumerate(_lines(content), start=1):
        try:
            ids.add(_checked_id(line), path, number)
        except UnicodeDecodeError:
            raise DataError(f"{path}:{number}: the line is not UTF-8 (S-02).") from None
        except json.JSONDecodeError as error:
            raise DataError(
                f"{path}:{number}: the line is not JSON ({error.msg}, column {error.colno})."
            ) from None
        except RecursionError:
            raise DataError(f"{path}:{number}: the JSON is nested too deep.") from None
        except _Refused as error:
            raise DataError(f"{path}:{number}: {error} (S-02).") from None
        except ValueError:  # an integer of thousands of digits
            raise DataError(f"{path}:{number}: a number in the line is too long.") from None
    return SplitSize(num_examples=number, num_bytes=len(content))


def _lines(content: bytes) -> Iterator[bytes]:
    """Yield lines: they end at LF alone, and the last counts with or without one."""
    start = 0
    while start < len(content):
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        yield content[start:end]
        start = end + 1


def _no_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise _Refused("an object repeats a key")
    return entries


_DECODER = json.JSONDecoder(object_pairs_hook=_no_repeated_keys)


def _checked_id(line: bytes) -> str:
    text = line.decode("utf-8")
    if not text or text.isspace():
        raise _Refused("the line is empty; remove it")
    example = _DECODER.decode(text)
    # Only an escape can make a surrogate, so most lines need no search of their strings.
    suspicious = "\\u" in text or "\ufdd0" in text or "\ufdd1" in text
    if not isinstance(example, dict):
        raise _Refused(f"the line is {kind(example)} and should be an object")
    if example.keys() != KEYS:
        raise _Refused(_keys(example, KEYS, "the object"))
    example_id, messages = example["id"], example["messages"]
    if not isinstance(example_id, str) or not example_id:
        raise _Refused(f"id is {_shape(example_id)} and should be text that is not empty")
    if len(example_id) > LONGEST_ID:
        raise _Refused(f"id has {len(example_id)} characters and should have at most {LONGEST_ID}")
    if CONTROL.search(example_id) or (suspicious and SURROGATE.search(example_id)):
        raise _Refused("id holds a control character or an unpaired surrogate")
    if not isinstance(messages, list) or not messages:
        raise _Refused(f"messages is {_shape(messages)} and should be a list that is not empty")
    for position, message in enumerate(messages):
        _check_message(message, position, suspicious)
    return example_id


def _check_message(message: Any, position: int, suspicious: bool) -> None:
    name = f"messages[{position}]"
    if not isinstance(message, dict):
        raise _Refused(f"{name} is {kind(message)} and should be an object")
    if message.keys() != MESSAGE_KEYS:
        raise _Refused(_keys(message, MESSAGE_KEYS, name))
    role, content = message["role"], message["content"]
    if role not in ROLES:
        # The value may be a misplaced content, so only its kind and the roles are shown.
        raise _Refused(f"{name}.role is no known role; known are {', '.join(ROLES)}")
    if role == "system" and position:
        raise _Refused(f"{name} is a system message; one is allowed in first place only")
    if not isinstance(content, str):
        raise _Refused(f"{name}.content is {kind(content)} and should be text")
    if not content and role != "system":
        raise _Refused(f"{name}.content is empty; only a system content may be")
    if suspicious and (SURROGATE.search(content) or NONCHARACTER.search(content)):
        raise _Refused(f"{name}.content holds an unpaired surrogate, U+FDD0 or U+FDD1")


def _shape(value: Any) -> str:
    return f"empty {kind(value).split()[-1]}" if value in ("", []) else kind(value)


def _keys(found: dict[str, Any], wanted: set[str], what: str) -> str:
    if missing := sorted(wanted - found.keys()):
        return f"{what} lacks {', '.join(map(repr, missing))}"
    # An unknown key may be anything that a person typed: it is counted and not shown.
    return f"{what} has {len(found.keys() - wanted)} keys besides {', '.join(sorted(wanted))}"
