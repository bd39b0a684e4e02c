"""Try planted faults and print what the oracle says: `python -m faults [ID ...] [--write]`.

`--range DIR` keeps what was run, so that a second try starts no leg that is there already.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from faults.fault import all_faults
from faults.range import Range, Tried
from faults.record import write_records

TABLE = Path(__file__).parent / "TABLE.md"
HEAD = """# Planted faults, and what the oracle said

Made by `python -m faults --write`. Each fault is planted in one stack; the other is clean.

| id | fault | planted in | must show in | shown first in | at | verdict | hint |
|---|---|---|---|---|---|---|---|
"""


def row(tried: Tried) -> str:
    """Return the fault's line of the table."""
    fault, first = tried.fault, tried.verdict.first
    where = (
        ""
        if first is None
        else ", ".join(
            part
            for part in (
                "before the run" if first.step is None else f"step {first.step}",
                first.example or "",
                first.tensor or "",
            )
            if part
        )
    )
    hint = (first.hint or "") if first else ""
    cells = [fault.id, fault.title, fault.stack, " or ".join(fault.expect)]
    cells += [tried.phase or "nowhere", where, tried.verdict.verdict, hint]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> int:
    """Try the named faults, or all; exit 1 when one is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", help="faults to try (default: all)")
    parser.add_argument("--write", action="store_true", help="write faults/TABLE.md and table.json")
    parser.add_argument("--range", type=Path, help="folder of legs to keep (default: a temporary)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="legs at a time")
    options = parser.parse_args()
    chosen = [fault for fault in all_faults() if not options.ids or fault.id in options.ids]
    missed, rows = 0, []
    tries: list[Tried] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        for tried in pool.map(Range(options.range or Path(folder)).try_fault, chosen):
            missed += not tried.caught
            tries.append(tried)
            rows.append(row(tried))
            print("caught" if tried.caught else "MISSED", rows[-1], flush=True)
    summary = f"{len(rows) - missed} of {len(rows)} caught in the phase that was expected"
    print(summary)
    if options.write:
        TABLE.write_text(HEAD + "\n".join(rows) + f"\n\n{summary}.\n", "utf-8")
        write_records(tries)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
