"""What the process holds after each step: `resources.jsonl` (S-31).

Three small reads a step; where the system has no /proc nothing is written.
"""

import gc
import json
import os
from pathlib import Path
from typing import IO

_PROCESS = Path("/proc/self")
_NUM_THREADS, _RESIDENT_PAGES = 17, 21  # in /proc/self/stat, counted after the command's name


class ResourceLog:
    """Appends to `resources.jsonl`; lines of steps from `start` on are of a leg before."""

    def __init__(self, out: Path, start: int) -> None:
        self._file: IO[str] | None = None
        if not (_PROCESS / "stat").exists():
            return
        self._stat = os.open(_PROCESS / "stat", os.O_RDONLY)
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        path = out / "resources.jsonl"
        if path.exists():
            kept = path.read_text(encoding="utf-8").splitlines(keepends=True)[:start]
            path.write_text("".join(kept), encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")

    def write(self, step: int) -> None:
        """A line, after step `step`."""
        if self._file is None:
            return
        # A command's name may hold spaces and brackets: the last bracket ends it
        fields = os.pread(self._stat, 4096, 0).rpartition(b")")[2].split()
        line = {
            "step": step,
            "resident_bytes": int(fields[_RESIDENT_PAGES]) * self._page_bytes,
            "open_files": len(os.listdir(_PROCESS / "fd")) - 1,  # the listing has one of its own
            "threads": int(fields[_NUM_THREADS]),
            "collections": [one["collections"] for one in gc.get_stats()],
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        """No more lines."""
        if self._file is not None:
            self._file.close()
            self._file = None
            os.close(self._stat)
