"""A process that records runs over and over until it is killed: python -m … OUT SEED FIRST LAST."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from oracle.runs import open_run
from oracle.store import open_store
from tests.unit_oracle_store.made import run_name, verdict, write_verdict


def main(out: Path, seed: int, first: int, last: int) -> None:
    dice, store = random.Random(seed), open_store(out)
    own, shared = range(first, last), range(4)  # the shared ones are recorded by every process
    print("ready", flush=True)
    for turn in range(10_000):
        number = dice.choice([*own, *shared])
        path = out / run_name(number)
        if number in own and turn > len(own):  # judged again, by the only process that has it
            write_verdict(path, verdict(number, name=dice.choice(["AGREE", "DIVERGED"])))
        store.record(open_run(path))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
