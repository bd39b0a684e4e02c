"""What `oracle impact` does and prints: plan, progress, ranked table or JSON."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from oracle.config import load_config
from oracle.contract import ROOT
from oracle.errors import ConfigError
from oracle.impact import Impact, ranked, weight

if TYPE_CHECKING:
    from faults.fault import Fault

RENDERED = ("text", "ids", "mask")
NUMERIC = ("forward", "loss", "grad", "grad_norm", "clip", "lr", "moments", "update", "params")


def impact(
    names: Sequence[str], config: Path, seeds: str, num_steps: int, out: Path, *, as_json: bool
) -> int:
    """`oracle impact`: returns 0 when every fault was measured, else 2."""
    _find_faults()
    from faults.impact import Plan, measure

    chosen, numbers = _faults(names), _seeds(seeds)
    code = hashlib.sha256(f"{load_config(config).sha256}:{num_steps}".encode()).hexdigest()[:12]
    folder = out.resolve() / "impact" / code
    folder.mkdir(parents=True, exist_ok=True)
    plan = Plan(config=config, folder=folder, seeds=numbers, num_steps=num_steps)
    errors = Console(stderr=True)
    found = ranked(
        list(measure(plan, chosen, lambda line: errors.print(line, markup=False, highlight=False)))
    )
    if as_json:
        print(json.dumps(document(found, numbers, num_steps), indent=1))
    else:
        print_table(found, Console())
    return 0 if len(found) == len(chosen) else 2


def document(found: Sequence[Impact], seeds: Sequence[int], num_steps: int) -> dict[str, object]:
    """Return the measurement as plain values, in nats per target token."""
    return {
        "seeds": list(seeds),
        "num_steps": num_steps,
        "impacts": [asdict(one) for one in found],
        "rendered_against_numeric": weight(*groups(found)),
    }


def groups(found: Sequence[Impact]) -> tuple[list[Impact], list[Impact]]:
    """Return the faults of rendering (text, ids, mask) and those of arithmetic."""
    return (
        [one for one in found if one.phase in RENDERED],
        [one for one in found if one.phase in NUMERIC],
    )


def print_table(found: Sequence[Impact], console: Console) -> None:
    """Print the ranked table and how the two groups compare."""
    table = Table(box=None, pad_edge=False)
    for head in ("fault", "phase", "held-out loss", "training loss", "what"):
        table.add_column(head, justify="left")
    for one in found:
        sure = "" if one.held_out.excludes_zero else " (within its interval)"
        table.add_row(one.fault, one.phase, f"{one.held_out}{sure}", str(one.final), one.title)
    console.print(table, highlight=False)
    console.print(
        "held-out loss: of the delivered weights in the clean stack, against the clean run of the "
        "same seed; mean ± 95 % Student interval, nats per target token.",
        highlight=False,
    )
    if (times := weight(*groups(found))) is not None:
        console.print(
            f"The faults of rendering (text, ids, mask) weigh {times:.3g} times those of "
            "arithmetic, on average.",
            highlight=False,
        )


def _find_faults() -> None:
    """Make the planted faults importable: they lie in the repository and are not installed."""
    if not (ROOT / "faults" / "planted").is_dir():
        raise ConfigError(
            f"the planted faults lie in the repository and {ROOT} has no folder faults; run "
            "`oracle impact` from a clone of it."
        )
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))


def _faults(names: Sequence[str]) -> list[Fault]:
    from faults.fault import all_faults

    known = {fault.id: fault for fault in all_faults()}
    wanted = [name for entry in names for name in entry.replace(",", " ").split()]
    for name in wanted:
        if name not in known:
            raise ConfigError(f"no planted fault {name!r}; faults/TABLE.md lists {len(known)}.")
    return [known[name] for name in dict.fromkeys(wanted)]


def _seeds(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"--seeds is {text!r} and should be integers, for instance 17,18,19."
        ) from None
    if len(set(seeds)) != len(seeds) or len(seeds) < 3 or min(seeds) < 0:
        raise ConfigError(
            f"--seeds is {text!r}; three or more different ones from 0 on are needed."
        )
    return seeds
