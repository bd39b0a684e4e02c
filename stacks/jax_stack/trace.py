"""The trace of a leg: header, step lines, Parquet tables, footer (S-24).

Files appear whole: what is not a line of `steps.jsonl` is written to a temporary name and renamed.
"""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from .errors import BadInput
from .prepare import Prepared

TOKEN_ROWS_PER_FILE = 8192
TENSOR_ROWS_PER_FILE = 4096
TRACED = ("header.json", "steps.jsonl", "tokens/*", "tensors/*", "anchors.jsonl")  # in done.json

TOKEN_SCHEMA = pa.schema(
    [
        ("split", pa.string()),
        ("index", pa.int64()),
        ("id", pa.string()),
        ("text", pa.string()),
        ("ids", pa.list_(pa.int32())),
        ("mask", pa.list_(pa.int8())),
        ("num_tokens_before_truncation", pa.int64()),
        ("typed_control_tokens", pa.int64()),
    ]
)
TENSOR_SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("kind", pa.string()),
        ("name", pa.string()),
        ("shape", pa.list_(pa.int64())),
        ("norm", pa.float64()),
        ("mean", pa.float64()),
        ("max_abs", pa.float64()),
        ("sketch", pa.list_(pa.float64())),
        ("sha256", pa.string()),
    ]
)
DEEP_SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("tap", pa.string()),
        ("shape", pa.list_(pa.int64())),
        ("norm", pa.float64()),
        ("mean", pa.float64()),
        ("max_abs", pa.float64()),
        ("sketch", pa.list_(pa.float64())),
    ]
)


@dataclass(kw_only=True)
class Trace:
    """A trace directory that is being written.

    Attributes:
        is_recording: False for `--no-trace`: no tokens, steps or tensors are written.
        has_steps: False for a render leg, which has tokens alone.
        has_tokens: False for a replay, whose steps may need no example.
        line_files: those with a line a step.
    """

    out: Path
    is_recording: bool
    has_steps: bool
    has_tokens: bool = True
    line_files: tuple[str, ...] = ("steps.jsonl", "resources.jsonl")
    _tokens: list[tuple[Any, ...]] = field(default_factory=list)
    _num_token_files: int = 0
    _tensors: list[dict[str, Any]] = field(default_factory=list)
    _lines: dict[str, IO[str]] = field(default_factory=dict)

    def begin(self, num_updates: int) -> None:
        """Clears what was written beyond `num_updates` updates, and all of `tokens/` (S-23).

        Raises:
            BadInput: `steps.jsonl` has fewer whole lines than the snapshot has updates.
        """
        has_steps = self.is_recording and self.has_steps
        kept = self._kept_lines(num_updates) if has_steps else {}
        for name in ("done.json", "error.json", "header.json", *self.line_files):
            (self.out / name).unlink(missing_ok=True)
        for name in ("tokens", "checkpoint", *(() if num_updates else ("snapshots",))):
            shutil.rmtree(self.out / name, ignore_errors=True)
        for path in (self.out / "tensors").glob("*"):
            is_segment = path.stem.isdigit() and path.suffix == ".parquet"
            if not (has_steps and is_segment and int(path.stem) < num_updates):
                path.unlink()
        if self.is_recording and self.has_tokens:
            (self.out / "tokens").mkdir(mode=0o700)
        if has_steps:
            (self.out / "tensors").mkdir(mode=0o700, exist_ok=True)
            for name in self.line_files:
                write_whole(self.out / name, b"".join(kept[name]))
                self._lines[name] = (self.out / name).open("a", encoding="utf-8")

    def _kept_lines(self, num_updates: int) -> dict[str, list[bytes]]:
        """File -> its lines of the steps before `num_updates`: line k is of step k."""
        kept = {name: whole_lines(self.out / name)[:num_updates] for name in self.line_files}
        if len(kept["steps.jsonl"]) < num_updates:
            raise BadInput(
                f"{self.out / 'steps.jsonl'}: the snapshot has {num_updates} updates, the trace "
                f"{len(kept['steps.jsonl'])} steps (S-23); resume a leg with a trace as it began, "
                "or start in an empty directory"
            )
        return kept

    def add_tokens(self, split: str, index: int, example: Prepared) -> None:
        """Records one example (kind token_row of the schema)."""
        if not self.is_recording:
            return
        self._tokens.append(
            (
                split,
                index,
                example.id,
                example.text,
                example.ids,
                example.mask,
                example.num_tokens_before_truncation,
                example.typed_control_tokens,
            )
        )
        if len(self._tokens) >= TOKEN_ROWS_PER_FILE:
            self.close_tokens()

    def close_tokens(self) -> None:
        """Writes the examples that are waiting."""
        if self._tokens:
            columns = [
                pa.array(column, type=f.type)
                for column, f in zip(zip(*self._tokens, strict=True), TOKEN_SCHEMA, strict=True)
            ]
            table = pa.Table.from_arrays(columns, schema=TOKEN_SCHEMA)
            _write_table(self.out / "tokens" / f"{self._num_token_files:05d}.parquet", table)
            self._num_token_files += 1
            self._tokens.clear()

    def add_step(self, line: Mapping[str, Any]) -> None:
        """Appends and flushes the line of a step that is done."""
        self._add_line("steps.jsonl", line)

    def add_resources(self, line: Mapping[str, Any]) -> None:
        """Appends and flushes what the process holds after a step (S-31)."""
        self._add_line("resources.jsonl", line)

    def _add_line(self, name: str, line: Mapping[str, Any]) -> None:
        if name in self._lines:
            self._lines[name].write(to_json(line) + "\n")
            self._lines[name].flush()

    def add_tensors(self, rows: Sequence[dict[str, Any]]) -> None:
        """Records statistics of one step (kind tensor_row of the schema).

        A segment ends between two steps only, for it is named after its first.
        """
        if self.is_recording and rows:
            is_new_step = bool(self._tensors) and self._tensors[-1]["step"] != rows[0]["step"]
            if is_new_step and len(self._tensors) >= TENSOR_ROWS_PER_FILE:
                self._close_tensors()
            self._tensors.extend(rows)

    def _close_tensors(self) -> None:
        if self._tensors:
            table = pa.Table.from_pylist(self._tensors, schema=TENSOR_SCHEMA)
            _write_table(self.out / "tensors" / f"{self._tensors[0]['step']:08d}.parquet", table)
            self._tensors.clear()

    def write_deep(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes the table `deep` of one step (kind deep_row of the schema, S-28)."""
        (self.out / "deep").mkdir(mode=0o700)
        table = pa.Table.from_pylist([{"step": step, **row} for row in rows], schema=DEEP_SCHEMA)
        _write_table(self.out / "deep" / f"{step:08d}.parquet", table)

    def sync(self) -> None:
        """Makes every row so far durable and begins a new segment of `tensors/`."""
        for file in self._lines.values():
            os.fsync(file.fileno())
        self._close_tensors()

    def write_header(self, header: Mapping[str, Any]) -> None:
        """Writes `header.json`."""
        write_whole(self.out / "header.json", (to_json(header, indent=1) + "\n").encode())

    def close(self) -> None:
        """Makes every row durable and closes the files."""
        self.sync()
        for file in self._lines.values():
            file.close()
        self._lines.clear()

    def finish(self, done: Mapping[str, Any], traced: Sequence[str] = TRACED) -> None:
        """Writes `done.json`, with size and hash of every traced file: the last act of a leg."""
        self.close()
        found = {path for pattern in traced for path in self.out.glob(pattern) if path.is_file()}
        files = {
            path.relative_to(self.out).as_posix(): _size_and_hash(path) for path in sorted(found)
        }
        write_whole(
            self.out / "done.json", (to_json({**done, "files": files}, indent=1) + "\n").encode()
        )


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file with their LF, none if it is missing; a torn last one is left out."""
    data = path.read_bytes() if path.exists() else b""
    return [line + b"\n" for line in data.split(b"\n")[:-1]]


def write_error(out: Path, nonce: str, kind: str, message: str) -> None:
    """Writes `error.json`."""
    error = {"nonce": nonce, "kind": kind, "message": message}
    write_whole(out / "error.json", (json.dumps(error, indent=1) + "\n").encode())


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON in which what is not finite is a string, and floats round-trip (S-24)."""
    return json.dumps(_finite(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _write_table(path: Path, table: pa.Table) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    pq.write_table(table, temporary)
    _publish(temporary, path)


def write_whole(path: Path, data: bytes) -> None:
    """Writes a private file that is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    _publish(temporary, path)


def _publish(temporary: Path, path: Path) -> None:
    """Syncs a file, makes it private and gives it its name."""
    os.chmod(temporary, 0o600)
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.rename(path)


def _size_and_hash(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"num_bytes": path.stat().st_size, "sha256": digest}
