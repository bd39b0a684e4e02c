"""What a planted fault did to the verdict, as plain values: `table.json` beside `TABLE.md`.

`oracle gate --explain` asks of each row whether a policy would have let it through.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from faults.range import Tried
from oracle.report.json import encode

TABLE = Path(__file__).parent / "table.json"
PHASE_FIELDS = ("phase", "status", "num_compared", "num_agreeing", "agreement", "reason")


def record(tried: Tried) -> dict[str, Any]:
    """Return a row: fault, verdict, first divergence, phases, summary; no text and no ids."""
    verdict, first = tried.verdict, tried.verdict.first
    return {
        "id": tried.fault.id,
        "title": tried.fault.title,
        "stack": tried.fault.stack,
        "verdict": verdict.verdict,
        "mode": verdict.mode,
        "first": None if first is None else {"phase": first.phase, "step": first.step},
        "reasons": list(verdict.reasons),
        "phases": [
            {field: value for field, value in asdict(result).items() if field in PHASE_FIELDS}
            for result in verdict.phases
        ],
        "summary": encode(dict(verdict.summary)),
    }


def write_records(rows: Iterable[Tried], path: Path = TABLE) -> None:
    """Write the rows in order, a line each."""
    lines = [json.dumps(record(tried), allow_nan=False, ensure_ascii=False) for tried in rows]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")
