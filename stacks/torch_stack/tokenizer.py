"""`tokenizer.json`: which ones the contract covers, and the engine that is built from one (S-05).

Everything that S-05 does not allow is refused by name. What it ignores (post-processor,
truncation, padding, decoder) is taken out before the engine sees the file: a ByteLevel
post-processor trims ranges even when no special token is added.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stacks.torch_stack.errors import BadInput

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_TOP_KEYS = {
    "version",
    "truncation",
    "padding",
    "added_tokens",
    "normalizer",
    "pre_tokenizer",
    "post_processor",
    "decoder",
    "model",
}
_MODEL_KEYS = {
    "type",
    "dropout",
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",  # without an unk_token it has no effect
    "byte_fallback",
    "ignore_merges",
    "vocab",
    "merges",
}
_ADDED_KEYS = {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}


@dataclass(frozen=True, kw_only=True)
class TokenizerFile:
    """A tokenizer that S-05 covers.

    `added` maps the content of each added token to its id, `vocab` is that of the model. The
    same string may be in both with two ids: typed whole it is the one, merged it is the other.
    """

    path: Path
    source: bytes
    sha256: str
    engine: "Tokenizer"
    first_lacking: int  # the engine's ids from here on stand for symbols that `vocab` lacks
    added: Mapping[str, int]
    vocab: Mapping[str, int]

    def token_id(self, key: str, token: str) -> int:
        """The id of a token that the config names under `key` (S-01)."""
        found = self.added.get(token, self.vocab.get(token))
        if found is None:
            raise BadInput(
                f"S-01: data.{key} = {token!r} is no token of {self.path}; name one that is"
            )
        return found

    def check_vocab_size(self, vocab_size: int, model: Path) -> None:
        """S-05: every id that can be produced is below the model's `vocab_size`."""
        highest = self.first_lacking - 1
        if highest >= vocab_size:
            raise BadInput(
                f"S-05: {self.path} can produce the id {highest}, but {model} has vocab_size "
                f"{vocab_size}; use the tokenizer of that model"
            )


def load_tokenizer(path: Path) -> TokenizerFile:
    """Read, check and build the tokenizer at `path`; raises `BadInput` that names the key."""
    try:
        source = path.read_bytes()
        document = json.loads(source.decode("utf-8"))
    except OSError as error:
        raise BadInput(
            f"S-05: the tokenizer {path} cannot be read: {error.strerror}; check data.tokenizer"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"S-05: the tokenizer {path} is not JSON; use a tokenizer.json") from error
    _check_document(document, path)
    added = {token["content"]: token["id"] for token in document["added_tokens"]}
    vocab = document["model"]["vocab"]
    first_lacking = max((*vocab.values(), *added.values())) + 1
    return TokenizerFile(
        path=path,
        source=source,
        sha256=hashlib.sha256(source).hexdigest(),
        engine=_build_engine(document, added, first_lacking, path),
        first_lacking=first_lacking,
        added=added,
        vocab=vocab,
    )


def _build_engine(
    document: dict[str, Any], added: dict[str, int], first_lacking: int, path: Path
) -> "Tokenizer":
    from tokenizers import Tokenizer

    # The engine wants every symbol in its vocabulary, and drops a byte that is not. Symbols that
    # the file lacks get ids above all others, so that one that is left over is seen.
    vocab = document["model"]["vocab"]
    merges = [_pair(merge) for merge in document["model"]["merges"]]
    symbols = {*byte_alphabet(), *(part for pair in merges for part in (*pair, "".join(pair)))}
    lacking = {symbol: first_lacking + n for n, symbol in enumerate(sorted(symbols - vocab.keys()))}
    # The engine gives an added token that its vocabulary lacks the next free id, whatever id the
    # file states; it looks for tokens that are not `normalized` first, so that a longer one that
    # is would lose; and it knows no default for a ByteLevel's flags. All three are put right here.
    pre = document["pre_tokenizer"]
    plain = {
        **document,
        "post_processor": None,
        "truncation": None,
        "padding": None,
        "decoder": None,
        "pre_tokenizer": _with_flags(pre)
        if pre["type"] == "ByteLevel"
        else {**pre, "pretokenizers": [_with_flags(stage) for stage in pre["pretokenizers"]]},
        "model": {**document["model"], "vocab": {**added, **vocab, **lacking}},
        "added_tokens": [{**token, "normalized": False} for token in document["added_tokens"]],
    }
    try:
        return Tokenizer.from_str(json.dumps(plain))
    except Exception as error:  # the engine raises bare Exception
        raise BadInput(
            f"S-05: the tokenizer engine refuses {path} (model or pre_tokenizer): {error}; mend it"
        ) from error


def _with_flags(stage: dict[str, Any]) -> dict[str, Any]:
    flags = {"use_regex": True, "trim_offsets": False} if stage["type"] == "ByteLevel" else {}
    return flags | stage


def _check_document(document: object, path: Path) -> None:
    def demand(holds: bool, key: str, allowed: str) -> None:
        if not holds:
            raise BadInput(f"S-05: {path}: {key} is not {allowed}; use another tokenizer")

    demand(isinstance(document, dict), "the document", "an object")
    assert isinstance(document, dict)
    for key in sorted(document.keys() - _TOP_KEYS):
        demand(False, key, "a known key")
    demand(document.get("normalizer") is None, "normalizer", "null")
    _check_pre_tokenizer(document.get("pre_tokenizer"), demand)
    _check_model(document.get("model"), demand)
    _check_added(document.setdefault("added_tokens", []), document["model"]["vocab"], demand)


def _check_model(model: Any, demand: Any) -> None:
    demand(isinstance(model, dict) and model.get("type") == "BPE", "model.type", '"BPE"')
    for key in sorted(model.keys() - _MODEL_KEYS):
        demand(False, f"model.{key}", "a known key")
    for key in ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        demand(model.get(key) is None or model[key] == "", f"model.{key}", "null or empty")
    for key in ("byte_fallback", "ignore_merges"):
        demand(model.get(key) in (None, False), f"model.{key}", "false or absent")
    vocab, merges = model.get("vocab"), model.get("merges")
    demand(isinstance(vocab, dict) and len(vocab) > 0, "model.vocab", "a non-empty object")
    demand(all(_is_id(x) for x in vocab.values()), "model.vocab", "an object of ids")
    demand(len(set(vocab.values())) == len(vocab), "model.vocab", "free of repeated ids")
    demand(isinstance(merges, list), "model.merges", "an array")
    pairs = set()
    for merge in merges:
        pair = _pair(merge)
        is_pair = (
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, str) for x in pair)
        )
        demand(is_pair, "model.merges", "an array of pairs")
        pairs.add(tuple(pair))
    demand(len(pairs) == len(merges), "model.merges", "free of repeated pairs")


def _check_pre_tokenizer(pre: Any, demand: Any) -> None:
    stages: Any = [pre]
    if isinstance(pre, dict) and pre.get("type") == "Sequence":
        stages = pre.get("pretokenizers")
        demand(
            isinstance(stages, list) and len(stages) > 0, "pre_tokenizer.pretokenizers", "a list"
        )
    for number, stage in enumerate(stages):
        key = f"pre_tokenizer stage {number}"
        demand(isinstance(stage, dict), key, "an object")
        is_last = number == len(stages) - 1
        if stage.get("type") == "ByteLevel" and is_last:
            known = {"type", "add_prefix_space", "trim_offsets", "use_regex"}
            demand(stage.get("add_prefix_space") is False, f"{key} add_prefix_space", "false")
            demand(isinstance(stage.get("use_regex", True), bool), f"{key} use_regex", "a boolean")
        elif stage.get("type") == "Split" and not is_last:
            known = {"type", "pattern", "behavior", "invert"}
            pattern = stage.get("pattern")
            is_regex = isinstance(pattern, dict) and pattern.keys() == {"Regex"}
            demand(is_regex, f"{key} pattern", "a Regex")
            demand(stage.get("behavior") == "Isolated", f"{key} behavior", '"Isolated"')
            demand(stage.get("invert") is False, f"{key} invert", "false")
        elif stage.get("type") == "Digits" and not is_last:
            known = {"type", "individual_digits"}
            flag = stage.get("individual_digits")
            demand(isinstance(flag, bool), f"{key} individual_digits", "a boolean")
        else:
            demand(False, f"{key} type", "Digits or Split before one last ByteLevel")
        for unknown in sorted(stage.keys() - known):
            demand(False, f"{key} {unknown}", "a known key")


def _check_added(added: Any, vocab: Mapping[str, int], demand: Any) -> None:
    demand(isinstance(added, list), "added_tokens", "an array")
    owners = {number: token for token, number in vocab.items()}
    contents: set[str] = set()
    for number, token in enumerate(added):
        key = f"added_tokens {number}"
        demand(isinstance(token, dict), key, "an object")
        for unknown in sorted(token.keys() - _ADDED_KEYS):
            demand(False, f"{key} {unknown}", "a known key")
        content = token.get("content")
        demand(isinstance(content, str) and content != "", f"{key} content", "a non-empty string")
        demand(content not in contents, f"{key} content", "new")
        contents.add(content)
        demand(_is_id(token.get("id")), f"{key} id", "an id")
        owner = owners.setdefault(token["id"], content)
        demand(owner == content, f"{key} id", "its own")
        for flag in ("lstrip", "rstrip", "single_word"):
            demand(token.get(flag) is False, f"{key} {flag}", "false")
        for flag in ("special", "normalized"):
            demand(isinstance(token.get(flag), bool), f"{key} {flag}", "a boolean")
        demand(token["special"] or not token["normalized"], f"{key} normalized", "false")


def byte_alphabet() -> list[str]:
    """The 256 characters that byte-level BPE writes bytes with, printable ones first."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [256 + number for number in range(256 - len(printable))]
    return [chr(code) for code in (*printable, *others)]


def _pair(merge: Any) -> Any:
    return merge.split(" ") if isinstance(merge, str) else merge


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
