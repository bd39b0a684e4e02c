"""A trace directory (S-24) as a value, finished, whole and valid, or one sentence why not.

N steps, E examples of the three splits, R rows of tensor statistics. Nothing of a trace is trusted
before its footer was found, the hashes in it hold, and every document and column satisfies
`trace.schema.json`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

from oracle.columns import dtypes
from oracle.contract import CONTRACT_VERSION
from oracle.document import loads_text, violation
from oracle.errors import TraceError
from oracle.tables import read_jsonl, read_tables

LISTED = re.compile(r"header\.json|steps\.jsonl|(tokens|tensors)/[0-9]+\.(parquet|jsonl)")
SPLITS = ("train", "eval", "edge")


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """What one leg did. `steps` has N rows in step order; `tokens` (E) and `tensors` (R) are lazy,
    the latter a segment (a file) each too.

    Columns are those of the schema's `step`, `token_row` and `tensor_row`; what is not finite is a
    float here. In memory are `digests`, `tokens` with hashes in place of the long columns, and
    `reach`: step, kind, name and norm of `tensors`, and the length of the sketch over the norm. A
    trace of mode `render` has empty `steps` and `tensors` of the right types.
    """

    path: Path
    header: dict[str, Any]
    steps: pl.DataFrame
    tokens: pl.LazyFrame
    digests: pl.DataFrame
    tensor_segments: Sequence[pl.LazyFrame]
    reach: pl.DataFrame
    done: dict[str, Any]

    @property
    def tensors(self) -> pl.LazyFrame:
        """All rows of tensor statistics."""
        return pl.concat([pl.LazyFrame(schema=dtypes("tensor_row")), *self.tensor_segments])


def read_trace(path: Path, *, nonce: str | None = None, config_sha256: str | None = None) -> Trace:
    """Read a finished trace.

    Raises TraceError when it is unfinished, damaged, malformed, or of another nonce or config than
    the given ones.
    """
    if not path.is_dir():
        raise TraceError(
            f"{path} is not a directory; a trace is a directory with a done.json (S-24)."
        )
    _refuse_error(path, nonce)
    done = _read_done(path)
    header = _read_header(path, nonce=nonce, config_sha256=config_sha256)
    _check_same(path, header, done)
    _check_files(path, header["mode"], done["files"])
    tokens, digests = read_tables(_segments(path, done["files"], "tokens"), "token_row")
    _check_tokens(path, digests, done["num_examples"])
    tensors, reach = read_tables(_segments(path, done["files"], "tensors"), "tensor_row")
    _check_tensors(path, reach)
    if header["mode"] == "render":
        steps = pl.DataFrame(schema=dtypes("step"))
    else:
        steps = read_jsonl(path / "steps.jsonl", "step")
    _check_steps(path, steps, done["num_steps"])
    return Trace(
        path=path,
        header=header,
        steps=steps,
        tokens=pl.concat(tokens),
        digests=digests,
        tensor_segments=tensors,
        reach=reach,
        done=done,
    )


def read_document(path: Path, definition: Literal["header", "done", "error"]) -> dict[str, Any]:
    """Read one JSON document of a trace and hold it against its schema; raises TraceError."""
    try:
        document = loads_text(path.read_bytes())
    except ValueError:
        raise TraceError(f"{path} is not JSON; it was cut or written by hand.") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read ({error.strerror}).") from None
    if (reason := violation(document, "trace", definition)) is not None:
        raise TraceError(f"{path}: {reason} (trace.schema.json, {definition}).")
    checked: dict[str, Any] = document
    return checked


def _refuse_error(path: Path, nonce: str | None) -> None:
    if not (path / "error.json").exists():
        return
    error = read_document(path / "error.json", "error")
    if nonce is not None and error["nonce"] != nonce:
        raise _other("nonce", path / "error.json", error["nonce"], nonce)
    raise TraceError(f"{path}: the leg ended with an error ({error['kind']}): {error['message']}")


def _read_done(path: Path) -> dict[str, Any]:
    if not (path / "done.json").is_file():
        raise TraceError(
            f"{path} has no done.json, so the leg did not finish; resume it or run it again."
        )
    return read_document(path / "done.json", "done")


def _read_header(path: Path, *, nonce: str | None, config_sha256: str | None) -> dict[str, Any]:
    try:
        raw = loads_text((path / "header.json").read_bytes())
    except (OSError, ValueError):
        raw = None  # read_document below says what is wrong
    # Versions first: a trace of another contract may break the schema in many places.
    for key in ("trace_version", "contract"):
        if isinstance(raw, dict) and isinstance(raw.get(key), str) and raw[key] != CONTRACT_VERSION:
            raise _other(key, path / "header.json", raw[key], CONTRACT_VERSION)
    header = read_document(path / "header.json", "header")
    if nonce is not None and header["nonce"] != nonce:
        raise _other("nonce", path / "header.json", header["nonce"], nonce)
    if config_sha256 is not None and header["config_sha256"] != config_sha256:
        raise _other("config hash", path / "header.json", header["config_sha256"], config_sha256)
    return header


def _other(what: str, path: Path, found: str, wanted: str) -> TraceError:
    return TraceError(
        f"{path} has the {what} {found!r} and {wanted!r} was expected: it is of another run."
    )


def _check_same(path: Path, header: Mapping[str, Any], done: Mapping[str, Any]) -> None:
    pairs = (
        ("nonce", header["nonce"], done["nonce"]),
        ("mode", header["mode"], done["mode"]),
        ("num_examples", header["facts"]["num_examples"], done["num_examples"]),
    )
    for what, in_header, in_done in pairs:
        if in_header != in_done:
            raise TraceError(
                f"{path}: {what} is {in_header!r} in header.json and {in_done!r} in done.json."
            )


def _check_files(path: Path, mode: str, files: Mapping[str, Mapping[str, Any]]) -> None:
    for name in files:
        if LISTED.fullmatch(name) is None:
            raise TraceError(
                f"{path / 'done.json'} lists {name!r}, which is no file of a trace (S-24)."
            )
    required = ["header.json", *(["steps.jsonl"] if mode == "train" else ())]
    for name in required:
        if name not in files:
            raise TraceError(f"{path / 'done.json'} does not list {name} (S-24).")
    if not any(name.startswith("tokens/") for name in files):
        raise TraceError(f"{path / 'done.json'} lists no file of tokens/ (S-24).")
    if (path / "steps.jsonl").exists() and "steps.jsonl" not in files:
        raise _unlisted(path / "steps.jsonl")
    for folder in ("tokens", "tensors"):
        for found in sorted((path / folder).glob("*")):
            if f"{folder}/{found.name}" not in files:
                raise _unlisted(found)
    for name, listed in files.items():
        _check_file(path / name, listed)


def _unlisted(path: Path) -> TraceError:
    return TraceError(f"{path} is not listed in done.json, so it is of another run.")


def _check_file(path: Path, listed: Mapping[str, Any]) -> None:
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise TraceError(
            f"{path} is listed in done.json and cannot be read ({error.strerror})."
        ) from None
    if size != listed["num_bytes"]:
        raise TraceError(
            f"{path} has {size} bytes and done.json lists {listed['num_bytes']}{_cut(path)}."
        )
    if digest != listed["sha256"]:
        raise TraceError(f"{path} has the hash {digest} and done.json lists {listed['sha256']}.")


def _cut(path: Path) -> str:
    """Say where a JSONL file was cut; nothing for a file that ends at a line's end."""
    content = path.read_bytes() if path.suffix == ".jsonl" else b""
    if not content or content.endswith(b"\n"):
        return ""
    line = content.count(b"\n") + 1
    return f"; its last line ({line}) was cut in the middle"


def _segments(path: Path, files: Mapping[str, object], folder: str) -> list[Path]:
    return [path / name for name in sorted(files) if name.startswith(f"{folder}/")]


def _check_tokens(path: Path, digests: pl.DataFrame, num_examples: Mapping[str, int]) -> None:
    size = pl.col("num_tokens")
    keys = digests.select(
        "split",
        "index",
        "id",
        unequal=size != pl.col("num_flags"),
        grown=size > pl.col("num_tokens_before_truncation"),
    )
    expected = pl.concat(
        [
            pl.select(split=pl.lit(s), index=pl.int_range(num_examples[s], dtype=pl.Int64))
            for s in SPLITS
        ]
    )
    if keys.height != expected.height:
        raise TraceError(
            f"{path}: tokens/ holds {keys.height} examples and done.json counts {expected.height}."
        )
    misplaced = (keys["split"] != expected["split"]) | (keys["index"] != expected["index"])
    if (row := misplaced.arg_max()) is not None and misplaced[row]:
        raise TraceError(
            f"{path}: row {row} of tokens/ is {keys['split'][row]} {keys['index'][row]} and should "
            f"be {expected['split'][row]} {expected['index'][row]} (order of S-24)."
        )
    for column, words in (
        ("unequal", "ids and mask of different lengths"),
        ("grown", "more ids than num_tokens_before_truncation"),
    ):
        if (row := keys[column].arg_max()) is not None and keys[column][row]:
            raise TraceError(f"{path}: row {row} of tokens/ has {words}.")
    if keys["id"].n_unique() != keys.height:
        row = keys["id"].is_first_distinct().arg_min()
        raise TraceError(f"{path}: row {row} of tokens/ repeats the id of an earlier example.")


def _check_tensors(path: Path, reach: pl.DataFrame) -> None:
    keys = reach.select("step", "kind", "name")
    twice = keys.is_duplicated()
    if twice.any():
        step, kind, name = keys.filter(twice).row(0)
        raise TraceError(f"{path}: tensors/ holds {kind} of {name} at step {step} more than once.")


def _check_steps(path: Path, steps: pl.DataFrame, num_steps: int) -> None:
    if steps.height and steps["step"][0] != 0:
        raise TraceError(
            f"{path / 'steps.jsonl'}:1: the first step is {steps['step'][0]} and should be 0: a "
            "trace holds every step of its run, those before a resume too."
        )
    gap = steps["step"].diff() != 1
    if (line := gap.arg_max()) is not None and gap[line]:
        raise TraceError(
            f"{path / 'steps.jsonl'}:{line + 1}: step {steps['step'][line]} follows step "
            f"{steps['step'][line - 1]}; steps are consecutive, a line each."
        )
    if steps.height != num_steps:
        raise TraceError(
            f"{path}: steps.jsonl holds {steps.height} steps and done.json counts {num_steps}."
        )
