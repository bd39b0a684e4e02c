"""A stack in 40 lines that writes the synthetic trace of a config, for tests of calibration.

Its loss depends on what the config says as rounding would: 1e-15 relative for another number of
threads, 2e-15 for other attention, 3e-15 for moved weights, growing with the step.
"""

from __future__ import annotations

import argparse
import hashlib
import os
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
    options = parser.parse_args()
    content = Path(options.config).read_bytes()
    config = tomllib.loads(content.decode())
    if os.environ.get("FAKE_FAILS") == config["model"]["attention"]:
        sys.exit(1)
    made = documents(config["train"]["num_steps"], stack=os.environ["FAKE_STACK"])
    made["header"]["config_sha256"] = hashlib.sha256(content).hexdigest()
    made["header"]["nonce"] = options.nonce
    noise = 1e-15 * (config["runtime"]["threads"] == 2)
    noise += 2e-15 * (config["model"]["attention"] == "fused")
    noise += 3e-15 * ("moved-weights" in config["model"]["checkpoint"])
    if os.environ.get("FAKE_DRIFTS"):
        noise += 1e-12 * (Path(options.config).stem == "repeat")
    for step in made["steps"]:
        step["loss"] *= 1 + noise * step["step"]
    write(Path(options.out), made)


if __name__ == "__main__":
    main()
