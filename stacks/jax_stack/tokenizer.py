"""A Hugging Face `tokenizer.json` to the parts that byte-level BPE needs (S-05).

Whatever the clause does not name is an error that names the key: a tokenizer that would be read
wrongly is refused, not approximated.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regex

from .errors import BadInput

Split = Callable[[str], list[str]]  # a piece of text -> its pieces, in order, nothing lost

BYTE_LEVEL_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CLASSES = {r"\s": r"\p{White_Space}", r"\S": r"\P{White_Space}"}
_NULLS = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")


@dataclass(frozen=True, kw_only=True)
class TokenizerFile:
    """What `tokenizer.json` says.

    Attributes:
        vocab: token in the 256-character alphabet -> id.
        ranks: pair of neighbours -> rank, lowest first.
        added: content of each added token -> id.
        splits: the stages of the pre-tokenizer, each applied to the pieces of the one before.
    """

    vocab: dict[str, int]
    ranks: dict[tuple[str, str], int]
    added: dict[str, int]
    splits: tuple[Split, ...]
    sha256: str

    def id_of(self, token: str, key: str) -> int:
        """The id of a token that the config names: an added token or one of `vocab` (S-01)."""
        found = self.added.get(token, self.vocab.get(token))
        if found is None:
            raise BadInput(
                f"`{key}` must be a token of the tokenizer (S-01), and it has no such token; "
                "change it"
            )
        return found

    def highest_id(self) -> int:
        """The highest id of `vocab` or of an added token."""
        return max([*self.vocab.values(), *self.added.values()], default=-1)


def load_tokenizer(path: Path) -> TokenizerFile:
    """Reads `tokenizer.json`.

    Raises:
        BadInput: the file cannot be read, or has a feature that S-05 does not name.
    """
    try:
        data = path.read_bytes()
        table = json.loads(data.decode("utf-8"))
    except OSError as error:
        raise BadInput(
            f"{path}: the tokenizer cannot be read ({error.strerror}); check data.tokenizer"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: the tokenizer is not JSON in UTF-8; restore the file") from error
    if not isinstance(table, dict) or not isinstance(table.get("model"), dict):
        raise BadInput(f"{path}: a tokenizer is an object with the key `model` (S-05)")
    _require(table.get("normalizer") is None, path, "normalizer", "null")
    vocab, ranks = _read_model(table["model"], path)
    return TokenizerFile(
        vocab=vocab,
        ranks=ranks,
        added=_read_added(table.get("added_tokens") or [], path),
        splits=_read_pre_tokenizer(table.get("pre_tokenizer"), path),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _require(satisfied: bool, path: Path, key: str, wanted: str) -> None:
    if not satisfied:
        raise BadInput(
            f"{path}: `{key}` must be {wanted} (S-05); this stack reads no other tokenizer"
        )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _read_model(
    model: dict[str, Any], path: Path
) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
    _require(model.get("type") == "BPE", path, "model.type", '"BPE"')
    for key in _NULLS:
        _require(
            model.get(key) in (None, "", 0) and model.get(key) is not False,
            path,
            f"model.{key}",
            "null or empty",
        )
    for key in ("byte_fallback", "ignore_merges"):
        _require(model.get(key) in (None, False), path, f"model.{key}", "false or absent")
    vocab, merges = model.get("vocab"), model.get("merges")
    if not isinstance(vocab, dict) or not all(map(_is_int, vocab.values())):
        raise BadInput(f"{path}: `model.vocab` must be an object of ids (S-05)")
    _require(isinstance(merges, list), path, "model.merges", "an array")
    ranks: dict[tuple[str, str], int] = {}
    for rank, merge in enumerate(merges or []):
        key = f"model.merges[{rank}]"
        pair = merge.split(" ") if isinstance(merge, str) else merge
        is_pair = (
            isinstance(pair, list)
            and len(pair) == 2
            and all(isinstance(part, str) and part for part in pair)
        )
        _require(is_pair, path, key, "two tokens, as an array or with one space between")
        left, right = pair
        in_vocab = left in vocab and right in vocab and left + right in vocab
        _require(
            in_vocab,
            path,
            key,
            "made of tokens of the vocabulary that make a token of the vocabulary",
        )
        ranks.setdefault((left, right), rank)
    return vocab, ranks


def _read_added(entries: Any, path: Path) -> dict[str, int]:
    _require(isinstance(entries, list), path, "added_tokens", "an array")
    added: dict[str, int] = {}
    for i, entry in enumerate(entries):
        key = f"added_tokens[{i}]"
        _require(isinstance(entry, dict), path, key, "an object")
        content, number = entry.get("content"), entry.get("id")
        _require(
            isinstance(content, str) and content != "", path, f"{key}.content", "a non-empty string"
        )
        _require(_is_int(number), path, f"{key}.id", "an id")
        for flag in ("lstrip", "rstrip", "single_word"):
            _require(entry.get(flag) in (None, False), path, f"{key}.{flag}", "false")
        _require(
            bool(entry.get("special")) or not entry.get("normalized"),
            path,
            f"{key}.normalized",
            "false",
        )
        _require(added.get(content, number) == number, path, f"{key}.content", "listed with one id")
        added[content] = number
    return added


def _read_pre_tokenizer(value: Any, path: Path) -> tuple[Split, ...]:
    key = "pre_tokenizer"
    _require(isinstance(value, dict), path, key, "ByteLevel, or a Sequence that ends in it")
    if value.get("type") != "Sequence":
        return _read_byte_level(value, path, key)
    stages = value.get("pretokenizers")
    _require(
        isinstance(stages, list) and bool(stages),
        path,
        f"{key}.pretokenizers",
        "a list that ends in ByteLevel",
    )
    splits: list[Split] = []
    for i, stage in enumerate(stages[:-1]):
        name = f"{key}.pretokenizers[{i}]"
        kind = stage.get("type") if isinstance(stage, dict) else None
        _require(
            kind in ("Digits", "Split"),
            path,
            f"{name}.type",
            "Digits or Split before the last stage",
        )
        splits.append(
            _read_digits(stage, path, name) if kind == "Digits" else _read_split(stage, path, name)
        )
    return (*splits, *_read_byte_level(stages[-1], path, f"{key}.pretokenizers[{len(stages) - 1}]"))


def _read_byte_level(stage: Any, path: Path, key: str) -> tuple[Split, ...]:
    _require(
        isinstance(stage, dict) and stage.get("type") == "ByteLevel",
        path,
        f"{key}.type",
        '"ByteLevel"',
    )
    _require(stage.get("add_prefix_space") is False, path, f"{key}.add_prefix_space", "false")
    use_regex = stage.get("use_regex", True)
    _require(isinstance(use_regex, bool), path, f"{key}.use_regex", "true or false")
    return (isolating(BYTE_LEVEL_PATTERN),) if use_regex else ()


def _read_digits(stage: dict[str, Any], path: Path, key: str) -> Split:
    individual = stage.get("individual_digits", False)
    _require(isinstance(individual, bool), path, f"{key}.individual_digits", "true or false")
    return isolating(r"\p{N}" if individual else r"\p{N}+")


def _read_split(stage: dict[str, Any], path: Path, key: str) -> Split:
    pattern = stage.get("pattern")
    is_regex = (
        isinstance(pattern, dict)
        and list(pattern) == ["Regex"]
        and isinstance(pattern["Regex"], str)
    )
    _require(is_regex, path, f"{key}.pattern", "a Regex")
    _require(stage.get("behavior") == "Isolated", path, f"{key}.behavior", '"Isolated"')
    _require(stage.get("invert") is False, path, f"{key}.invert", "false")
    assert isinstance(pattern, dict)
    try:
        return isolating(pattern["Regex"])
    except regex.error:
        raise BadInput(
            f"{path}: `{key}.pattern` is not a regular expression that this stack can read (S-05)"
        ) from None


def isolating(pattern: str) -> Split:
    r"""A split at every match of `pattern`; `\s` means Unicode's White_Space."""
    spelled = regex.sub(r"\\(?s:.)", lambda found: _CLASSES.get(found[0], found[0]), pattern)
    compiled = regex.compile(spelled)

    def split(text: str) -> list[str]:
        matches: list[str] = compiled.findall(text) if compiled.groups == 0 else []
        if sum(map(len, matches)) == len(text) and "" not in matches:
            return matches  # the pattern covers the text, as most do: nothing stands between
        pieces, position = [], 0
        for match in compiled.finditer(text):
            start, end = match.span()
            pieces += [text[position:start], text[start:end]]
            position = end
        return [piece for piece in (*pieces, text[position:]) if piece]

    return split
