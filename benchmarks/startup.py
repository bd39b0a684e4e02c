"""Start-up: `oracle --help` (goal: under 0.15 s) beside `python -c pass`, and `make demo` after
installation (under 3 minutes).

python -m benchmarks.startup
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks import legs


def seconds_of(argv: list[str]) -> float:
    """Return the seconds of a command; raises CalledProcessError when it fails."""
    began = time.perf_counter()
    subprocess.run(argv, cwd=legs.ROOT, check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    """Measure and write the result."""
    oracle = str(Path(sys.executable).with_name("oracle"))
    help_seconds = [seconds_of([oracle, "--help"]) for _ in range(21)]
    bare = [seconds_of([sys.executable, "-c", "pass"]) for _ in range(21)]
    legs.write_result(
        "startup",
        {
            "what": "oracle --help; make demo after installation",
            "goal": "help < 0.15 s, demo < 180 s",
            "help_seconds": legs.summary(help_seconds),
            "bare_python_seconds": legs.summary(bare),
            "demo_seconds": seconds_of(["make", "demo"]),
        },
    )


if __name__ == "__main__":
    main()
