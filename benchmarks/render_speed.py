"""`oracle render` over the whole clinical set, both stacks and the comparison: seconds by part.

    python -m benchmarks.render_speed [--repeats 3]

Goal: under 90 s on two cores for 170,000 conversations; the set has 220,221.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import legs

CONFIG = legs.ROOT / "configs" / "runs" / "clinical-epoch.toml"


def main() -> None:
    """Render and write what each part took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    load = os.getloadavg()[0]
    rounds = [_round() for _ in range(repeats)]
    counts = rounds[0]["conversations"]
    legs.write_result(
        "render_speed",
        {
            "what": f"oracle render of {counts:,} conversations: both stacks and the comparison",
            "goal": "< 90 s on 2 cores",
            "load_before": load,
            "verdict": rounds[0]["verdict"],
            "conversations": counts,
            **{
                part: legs.summary([found[part] for found in rounds])
                for part in ("seconds", "torch_seconds", "jax_seconds", "oracle_seconds")
            },
        },
    )


def _round() -> dict[str, Any]:
    """Render once; `oracle_seconds` follow the slower leg: reading, comparing, the page."""
    oracle = str(Path(sys.executable).with_name("oracle"))
    with tempfile.TemporaryDirectory() as folder:
        began = time.time()
        argv = [oracle, "render", str(CONFIG), "--out", folder]
        subprocess.run(argv, cwd=legs.ROOT, check=True, capture_output=True)
        ended = time.time()
        run = Path(folder) / "latest"
        done = {leg: (run / leg / "done.json").stat().st_mtime for leg in ("torch", "jax")}
        verdict = json.loads((run / "verdict.json").read_text("utf-8"))
    return {
        "seconds": ended - began,
        "torch_seconds": done["torch"] - began,
        "jax_seconds": done["jax"] - began,
        "oracle_seconds": ended - max(done.values()),
        "verdict": verdict["verdict"],
        "conversations": verdict["summary"]["num_examples"],
    }


if __name__ == "__main__":
    main()
