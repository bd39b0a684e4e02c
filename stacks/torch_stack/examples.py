"""Conversations: JSONL files to validated examples, in file order (S-02).

Lines are parsed strictly, one by one, and a split is then held as an in-memory `datasets.Dataset`
with the columns `id` and `messages`; no cache file is written and nothing is fetched.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stacks.torch_stack.errors import BadInput

if TYPE_CHECKING:
    from datasets import Dataset

SPLITS = ("train", "eval", "edge")
ROLES = ("system", "user", "assistant")

_CONTROL = re.compile("[\x00-\x1f\x7f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NONCHARACTER = re.compile("[\ufdd0\ufdd1]")
_MAX_ID_CHARACTERS = 256
_CHUNK_LINES = 5_000  # lines that are Python objects at one time, before they become Arrow columns

Message = dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Split:
    """One split: its conversations, and its files in the order given."""

    name: str
    conversations: "Dataset | None"  # id: string, messages: list of {role, content}
    paths: tuple[Path, ...]
    num_lines: tuple[int, ...]  # of each file
    files_sha256: tuple[str, ...]  # of each file's bytes

    @property
    def num_examples(self) -> int:
        """Each line holds one."""
        return sum(self.num_lines)

    def where(self, index: int) -> str:
        """The file and the 1-based line of an example: each line holds one."""
        for path, num_lines in zip(self.paths, self.num_lines, strict=True):
            if index < num_lines:
                return f"{path} line {index + 1}"
            index -= num_lines
        raise IndexError(index)


def load_splits(files: dict[str, Sequence[Path]]) -> dict[str, Split]:
    """Read every split, in the order train, eval, edge; ids are unique over all of them.

    Raises `BadInput` with the file and the 1-based line, never the content.
    """
    seen: dict[str, str] = {}
    return {name: _load_split(name, files[name], seen) for name in SPLITS}


def count_splits(files: dict[str, Sequence[Path]]) -> dict[str, Split]:
    """Hash the files of every split and count their lines; no example is read."""
    splits = {}
    for name, paths in files.items():
        hashes, num_lines = [], []
        for path in paths:
            digest = hashlib.sha256()
            num_lines.append(sum(1 for _ in _lines(path, digest)))
            hashes.append(digest.hexdigest())
        splits[name] = Split(
            name=name,
            conversations=None,
            paths=tuple(paths),
            num_lines=tuple(num_lines),
            files_sha256=tuple(hashes),
        )
    return splits


def _load_split(name: str, paths: Sequence[Path], seen: dict[str, str]) -> Split:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from datasets import Dataset, Features, List, Value, concatenate_datasets

    features = Features(
        {
            "id": Value("string"),
            "messages": List({"role": Value("string"), "content": Value("string")}),
        }
    )
    ids: list[str] = []
    messages: list[list[Message]] = []
    hashes, num_lines, chunks = [], [], []

    def close_chunk() -> None:
        chunks.append(Dataset.from_dict({"id": ids, "messages": messages}, features=features))
        ids.clear()
        messages.clear()

    for path in paths:
        digest = hashlib.sha256()
        num_before = len(seen)
        for where, line in _lines(path, digest):
            example_id, conversation = parse_line(line, where)
            if example_id in seen:
                raise BadInput(
                    f"S-02: {where}: the id {example_id!r} was used before at {seen[example_id]}; "
                    "ids are unique over all splits, rename one"
                )
            seen[example_id] = where
            ids.append(example_id)
            messages.append(conversation)
            if len(ids) == _CHUNK_LINES:
                close_chunk()
        hashes.append(digest.hexdigest())
        num_lines.append(len(seen) - num_before)
    close_chunk()
    if not sum(num_lines):
        raise BadInput(
            f"S-02: the split {name} has no example in {', '.join(map(str, paths))}; "
            "list a file that has"
        )
    return Split(
        name=name,
        conversations=concatenate_datasets(chunks),
        paths=tuple(paths),
        num_lines=tuple(num_lines),
        files_sha256=tuple(hashes),
    )


def _lines(path: Path, digest: Any) -> Iterator[tuple[str, bytes]]:
    """Lines of a file without their LF, each with "file line n"; feeds the bytes to `digest`."""
    try:
        with path.open("rb") as file:  # a binary file is cut at LF and at nothing else
            for number, line in enumerate(file, start=1):
                digest.update(line)
                yield f"{path} line {number}", line.removesuffix(b"\n")
    except OSError as error:
        raise BadInput(
            f"S-02: {path} cannot be read: {error.strerror}; check the paths under [data]"
        ) from error


def parse_lines(source: bytes, name: str) -> list[dict[str, object]]:
    """The examples in the bytes of one file, as read: `{id, messages}` (S-27)."""
    lines = source.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    seen: set[str] = set()
    examples: list[dict[str, object]] = []
    for number, line in enumerate(lines, start=1):
        where = f"{name} line {number}"
        example_id, messages = parse_line(line, where)
        if example_id in seen:
            raise BadInput(f"S-02: {where}: the id was used before; ids are unique, rename one")
        seen.add(example_id)
        examples.append({"id": example_id, "messages": messages})
    return examples


def parse_line(line: bytes, where: str) -> tuple[str, list[Message]]:
    """One line without its LF → the id and the messages of its example."""

    def refuse(what: str) -> BadInput:
        return BadInput(f"S-02: {where}: {what}")

    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise refuse(f"byte {error.start} is not UTF-8; save the file as UTF-8") from None
    if text.startswith("\ufeff"):
        raise refuse("it begins with a byte-order mark; remove it")
    if not text or text.isspace():
        raise refuse("it is empty or only white space; remove the line")
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except _RepeatedKey:
        raise refuse("an object repeats a key; keep one") from None
    except (ValueError, RecursionError):  # the decoder's own message could show text
        raise refuse("it is not one JSON value; mend it") from None
    return _check_example(value, refuse)


class _RepeatedKey(ValueError):
    pass


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _RepeatedKey
    return value


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _check_example(value: object, refuse: Any) -> tuple[str, list[Message]]:
    if not isinstance(value, dict) or value.keys() != {"id", "messages"}:
        raise refuse('it is not an object with exactly the keys "id" and "messages"')
    example_id, messages = value["id"], value["messages"]
    is_id = isinstance(example_id, str) and 1 <= len(example_id) <= _MAX_ID_CHARACTERS
    if not is_id or _CONTROL.search(example_id):
        raise refuse("id is not a string of 1 to 256 characters without control characters")
    if _SURROGATE.search(example_id):
        raise refuse("id holds an unpaired surrogate")
    if not isinstance(messages, list) or not messages:
        raise refuse("messages is not a non-empty array")
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or message.keys() != {"role", "content"}:
            raise refuse(f'message {number} has not exactly the keys "role" and "content"')
        role, content = message["role"], message["content"]
        if role not in ROLES:
            raise refuse(f"message {number}: role is not one of {', '.join(ROLES)}")
        if role == "system" and number > 0:
            raise refuse(f"message {number} is a system message; only the first may be one")
        if not isinstance(content, str) or not (content or role == "system"):
            raise refuse(f"message {number}: content is not a string, or is empty")
        if _SURROGATE.search(content):
            raise refuse(f"message {number}: content holds an unpaired surrogate")
        if _NONCHARACTER.search(content):
            raise refuse(f"message {number}: content holds U+FDD0 or U+FDD1, which are reserved")
    return example_id, messages
