"""A stack in 40 lines that writes the synthetic trace of a config, for tests of calibration.

Its loss depends on what the config says as rounding would: 1e-15 relative for another number of
threads, 2e-15 for other attention, 3e-15 for moved weights, growing with the step. It fails under
fused attention while the file FAKE_BROKEN is there, and notes each start in the file FAKE_LOG.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from unit_oracle_judge.synthetic import documents, write


def main() -> None:
    """Write a trace as S-26 asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode")
    for option in ("config", "root", "out", "nonce"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    variant, out = Path(options.config).stem, Path(options.out)
    if log := os.environ.get("FAKE_LOG"):
        with Path(log).open("a") as stream:
            word = " resumed" if options.resume else ""
            stream.write(f"{variant} {os.environ['FAKE_STACK']}{word}\n")
    content = Path(options.config).read_bytes()
    config = tomllib.loads(content.decode())
    broken = Path(os.environ.get("FAKE_BROKEN", "/nonexistent"))
    if config["model"]["attention"] == "fused" and broken.exists():
        (out / "snapshots").mkdir(parents=True)  # cut short, with something to go on from
        sys.exit(int(broken.read_text()))
    shutil.rmtree(out, ignore_errors=True)
    made = documents(config["train"]["num_steps"], stack=os.environ["FAKE_STACK"])
    made["header"]["config_sha256"] = hashlib.sha256(content).hexdigest()
    made["header"]["nonce"] = options.nonce
    noise = 1e-15 * (config["runtime"]["threads"] == 2)
    noise += 2e-15 * (config["model"]["attention"] == "fused")
    noise += 3e-15 * ("moved-weights" in config["model"]["checkpoint"])
    if os.environ.get("FAKE_DRIFTS"):
        noise += 1e-12 * (variant == "repeat")
    for step in made["steps"]:
        step["loss"] *= 1 + noise * step["step"]
    write(out, made)


if __name__ == "__main__":
    main()
