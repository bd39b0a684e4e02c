"""The tokenizer file (S-05): the keys that the contract allows, and the ids that it can produce."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.document import kind, loads
from oracle.errors import DataError
from oracle.files import read_bytes


@dataclass(frozen=True, kw_only=True)
class TokenizerSize:
    """`tokens` maps every token, added ones included, to its id."""

    path: Path
    tokens: Mapping[str, int]
    num_added: int

    @property
    def largest_id(self) -> int:
        """The largest id that the tokenizer can produce."""
        return max(self.tokens.values())


def read_tokenizer(path: Path) -> TokenizerSize:
    """Check a `tokenizer.json` against S-05; raises DataError naming the key."""
    try:
        document = loads(read_bytes(path, "tokenizer"))
    except ValueError as error:
        raise DataError(f"tokenizer {path} is not JSON ({error}).") from None
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise DataError(f"tokenizer {path} is no Hugging Face tokenizer.json: it lacks model.")
    _check_model(path, document["model"])
    if document.get("normalizer") is not None:
        raise _refused(path, "normalizer", document["normalizer"], "null")
    _check_pre_tokenizer(path, document.get("pre_tokenizer"))
    tokens = dict(document["model"]["vocab"])
    added = document.get("added_tokens") or []
    for token in added:
        _check_added(path, token)
        tokens[token["content"]] = token["id"]
    return TokenizerSize(path=path, tokens=tokens, num_added=len(added))


def check_token(tokenizer: TokenizerSize, field: str, token: str) -> None:
    """Refuse a token of the config that the tokenizer does not know (S-01)."""
    if token not in tokenizer.tokens:
        raise DataError(f"{field} is {token!r}, which is no token of {tokenizer.path} (S-01).")


def _refused(path: Path, key: str, found: object, wanted: str) -> DataError:
    shown = found if isinstance(found, (str, bool, int)) else kind(found)
    if isinstance(found, dict) and "type" in found:
        shown = found["type"]
    return DataError(f"tokenizer {path}: {key} is {shown} and should be {wanted} (S-05).")


def _check_model(path: Path, model: Mapping[str, Any]) -> None:
    if model.get("type") != "BPE":
        raise _refused(path, "model.type", model.get("type"), "BPE")
    for key in ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key) not in (None, ""):
            raise _refused(path, f"model.{key}", model[key], "null")
    for key in ("byte_fallback", "ignore_merges"):
        if model.get(key, False) is not False:
            raise _refused(path, f"model.{key}", model[key], "false")
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or not vocab:
        raise _refused(path, "model.vocab", vocab, "a table that is not empty")
    if not all(type(number) is int and number >= 0 for number in vocab.values()):
        raise DataError(
            f"tokenizer {path}: model.vocab holds an id that is no integer >= 0 (S-05)."
        )
    if not isinstance(model.get("merges"), list):
        raise _refused(path, "model.merges", model.get("merges"), "a list")
    for rank, merge in enumerate(model["merges"]):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(map(_is_text, pair)):
            raise DataError(f"tokenizer {path}: model.merges[{rank}] is no pair of texts (S-05).")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _check_pre_tokenizer(path: Path, pre_tokenizer: Any) -> None:
    key = "pre_tokenizer"
    if not isinstance(pre_tokenizer, dict):
        raise _refused(path, key, pre_tokenizer, "ByteLevel or a Sequence that ends with it")
    stages = [pre_tokenizer]
    if pre_tokenizer.get("type") == "Sequence":
        stages = pre_tokenizer.get("pretokenizers") or []
        if not isinstance(stages, list) or not all(isinstance(s, dict) for s in stages):
            raise _refused(path, f"{key}.pretokenizers", None, "a list of tables")
        key += ".pretokenizers"
    if not stages or stages[-1].get("type") != "ByteLevel":
        last = stages[-1] if stages else None
        raise _refused(path, f"the last of {key}", last, "ByteLevel")
    if stages[-1].get("add_prefix_space") is not False:
        found = stages[-1].get("add_prefix_space")
        raise _refused(path, "pre_tokenizer.add_prefix_space", found, "false")
    for position, stage in enumerate(stages[:-1]):
        _check_stage(path, f"{key}[{position}]", stage)


def _check_stage(path: Path, key: str, stage: Any) -> None:
    if not isinstance(stage, dict) or stage.get("type") not in ("Digits", "Split"):
        raise _refused(path, key, stage, "Digits or Split")
    if stage["type"] == "Digits":
        if not isinstance(stage.get("individual_digits"), bool):
            raise _refused(path, f"{key}.individual_digits", None, "true or false")
        return
    pattern = stage.get("pattern")
    if not isinstance(pattern, dict) or not _is_text(pattern.get("Regex")):
        raise _refused(path, f"{key}.pattern", pattern, "a Regex")
    if stage.get("behavior") != "Isolated":
        raise _refused(path, f"{key}.behavior", stage.get("behavior"), "Isolated")
    if stage.get("invert", False) is not False:
        raise _refused(path, f"{key}.invert", stage["invert"], "false")


def _check_added(path: Path, token: Any) -> None:
    if not isinstance(token, dict) or not (
        _is_text(token.get("content")) and type(token.get("id")) is int and token["id"] >= 0
    ):
        raise DataError(f"tokenizer {path}: an entry of added_tokens lacks content or id (S-05).")
    name = f"added_tokens {token['content']!r}"
    for key in ("lstrip", "rstrip", "single_word"):
        if token.get(key, False) is not False:
            raise _refused(path, f"{name} {key}", token[key], "false")
    if token.get("special") is not True and token.get("normalized", True) is not False:
        raise _refused(path, f"{name} normalized", True, "false for a token that is not special")
