"""The trace directory: what a leg writes while it runs (S-24).

Files are made in the order header (after `tokens/`), steps, tensors, done; `done.json` last, by
rename. Nothing here reads the model or changes it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stacks.torch_stack.documents import jsonable, sync
from stacks.torch_stack.numerics import Statistics
from stacks.torch_stack.taps import TapRow
from stacks.torch_stack.tokens import TokenRow

_TOKENS = pa.schema(
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
_TENSORS = pa.schema(
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
_DEEP = pa.schema(
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
LISTED = ("header.json", "steps.jsonl", "tokens/", "tensors/", "anchors.jsonl")
_SEGMENT_EXAMPLES = 20_000  # of tokens/
_SEGMENT_TENSOR_ROWS = 20_000  # of tensors/


class TokenTable:
    """Writes `tokens/{k:05d}.parquet`, a batch of one split at a time."""

    def __init__(self, out: Path) -> None:
        self._folder = out / "tokens"
        self._folder.mkdir(exist_ok=True)
        for old in self._folder.iterdir():  # of the leg that is resumed
            old.unlink()
        self._file: pq.ParquetWriter | None = None
        self._num_files = self._num_in_file = 0

    def write(self, split: str, first_index: int, rows: list[TokenRow]) -> None:
        """Append examples; `first_index` is the position of the first in its split."""
        if self._file is None or self._num_in_file >= _SEGMENT_EXAMPLES:
            self.close()
            path = self._folder / f"{self._num_files:05d}.parquet"
            self._file = pq.ParquetWriter(path, _TOKENS)
            self._num_files, self._num_in_file = self._num_files + 1, 0
        columns = [
            pa.array([split] * len(rows)),
            pa.array(range(first_index, first_index + len(rows)), pa.int64()),
            pa.array([row.tokens.id for row in rows], pa.string()),
            pa.array([row.text for row in rows], pa.string()),
            _lists([row.tokens.ids for row in rows]),
            _lists([row.tokens.mask for row in rows]),
            pa.array([row.num_tokens_before_truncation for row in rows], pa.int64()),
            pa.array([row.typed_control_tokens for row in rows], pa.int64()),
        ]
        self._file.write_table(pa.Table.from_arrays(columns, schema=_TOKENS))
        self._num_in_file += len(rows)

    def close(self) -> None:
        """Finish the open file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _lists(arrays: list[Any]) -> pa.ListArray:
    ends = np.cumsum([0, *(len(one) for one in arrays)], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(np.concatenate(arrays)))


class StepLog:
    """Appends to `steps.jsonl`; a line is flushed when its step is done."""

    def __init__(self, out: Path) -> None:
        self._file: IO[str] = (out / "steps.jsonl").open("a", encoding="utf-8")

    def write(self, fields: Mapping[str, object]) -> None:
        """One line."""
        self._file.write(json.dumps(jsonable(fields), allow_nan=False) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """Write the lines to the disk."""
        sync(Path(self._file.name))

    def close(self) -> None:
        """No more lines."""
        self.sync()
        self._file.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorRow:
    """A row of `tensors/`: one tensor at one step (S-21)."""

    step: int
    kind: str
    name: str
    shape: tuple[int, ...]
    statistics: Statistics
    sha256: str | None


class TensorTable:
    """Collects rows of `tensors/` and writes them a segment at a time."""

    def __init__(self, out: Path) -> None:
        self._folder = out / "tensors"
        self._folder.mkdir(exist_ok=True)
        self._rows: list[TensorRow] = []

    def add(self, row: TensorRow) -> None:
        """One row; its step is not before that of the last."""
        self._rows.append(row)

    def is_full(self) -> bool:
        """Whether there is enough for a segment."""
        return len(self._rows) >= _SEGMENT_TENSOR_ROWS

    def close_segment(self) -> None:
        """Write what was collected, named after its first step."""
        rows, self._rows = self._rows, []
        if not rows:
            return
        columns = [
            pa.array([row.step for row in rows], pa.int64()),
            pa.array([row.kind for row in rows], pa.string()),
            pa.array([row.name for row in rows], pa.string()),
            pa.array([row.shape for row in rows], pa.list_(pa.int64())),
            pa.array([row.statistics.norm for row in rows], pa.float64()),
            pa.array([row.statistics.mean for row in rows], pa.float64()),
            pa.array([row.statistics.max_abs for row in rows], pa.float64()),
            _lists([row.statistics.sketch for row in rows]),
            pa.array([row.sha256 for row in rows], pa.string()),
        ]
        path = self._folder / f"{rows[0].step:08d}.parquet"
        _write_table(path, pa.Table.from_arrays(columns, schema=_TENSORS))


def write_deep(out: Path, rows: list[TapRow]) -> None:
    """`deep/{step:08d}.parquet`: the taps of one step (S-28)."""
    folder = out / "deep"
    folder.mkdir()
    columns = [
        pa.array([row.step for row in rows], pa.int64()),
        pa.array([row.tap for row in rows], pa.string()),
        pa.array([row.shape for row in rows], pa.list_(pa.int64())),
        pa.array([row.statistics.norm for row in rows], pa.float64()),
        pa.array([row.statistics.mean for row in rows], pa.float64()),
        pa.array([row.statistics.max_abs for row in rows], pa.float64()),
        _lists([row.statistics.sketch for row in rows]),
    ]
    path = folder / f"{rows[0].step:08d}.parquet"
    _write_table(path, pa.Table.from_arrays(columns, schema=_DEEP))


def _write_table(path: Path, table: pa.Table) -> None:
    temporary = path.with_suffix(".tmp")
    pq.write_table(table, temporary)
    sync(temporary)
    temporary.rename(path)


def num_steps_written(out: Path) -> int:
    """Whole lines of `steps.jsonl` that follow one another from step 0."""
    return sum(1 for _ in _whole_lines(out / "steps.jsonl"))


def cut(out: Path, n: int) -> None:
    """Remove every row of steps >= n (S-23)."""
    steps = out / "steps.jsonl"
    if steps.exists():
        temporary = steps.with_suffix(".tmp")
        with temporary.open("w", encoding="utf-8") as file:
            for number, line in enumerate(_whole_lines(steps)):
                if number < n:
                    file.write(line)
        sync(temporary)
        temporary.rename(steps)
    for path in sorted((out / "tensors").glob("*")):
        if path.suffix != ".parquet" or int(path.stem) >= n:
            path.unlink()
            continue
        table = pq.read_table(path)
        kept = table.filter(pa.compute.less(table["step"], n))
        if len(kept) < len(table):
            _write_table(path, kept)


def _whole_lines(path: Path) -> Iterator[str]:
    if not path.exists():
        return
    with path.open(encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file):
            try:
                step = json.loads(line)["step"]
            except (ValueError, KeyError, TypeError):
                return
            if step != number or not line.endswith("\n"):
                return
            yield line


def files_of(out: Path, listed_names: tuple[str, ...] = LISTED) -> dict[str, dict[str, object]]:
    """Every file that `done.json` lists: its size and hash, by its POSIX path in the trace."""
    listed: dict[str, dict[str, object]] = {}
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out).as_posix()
        if path.is_file() and name.startswith(listed_names):
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            listed[name] = {"sha256": digest, "num_bytes": path.stat().st_size}
    return listed
