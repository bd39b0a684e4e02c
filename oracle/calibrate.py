"""Self runs -> noise floor: each stack against itself, repeated and in variants that mean the same.

The floor of a field at step t is the running maximum up to t, over both legs and all variants, of
the relative difference to the base run. Legs of a variant run at the same time, two at most.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from oracle.align import align_steps
from oracle.compare_numbers import Cells, scalar_cells
from oracle.compare_tensors import tensor_cells
from oracle.config import RunConfig, load_config
from oracle.errors import LegError
from oracle.floor import leg_provenance, rising, write_floor
from oracle.launch import run_legs
from oracle.leg import Leg, new_nonce
from oracle.perturb import VARIANTS, write_variants
from oracle.stacks import Stack
from oracle.tolerance import default_file, load_tolerances
from oracle.trace import Trace, read_trace

NO_FLOOR = ("steps.lr", "steps.eval_targets")  # judged without one

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What one stack does to itself: cells of each variant by name, and the header of its base."""

    header: Mapping[str, Any]
    num_steps: int
    cells: Mapping[str, Sequence[Cells]]
    repeats_exactly: bool


def calibrate(
    config_path: Path, *, stacks: Sequence[Stack], out: Path, on_progress: Progress
) -> Path:
    """Measure the floor of a config and write it into `out/floors`; returns the file.

    Raises LegError when a leg fails. `on_progress` gets a line when a variant begins and ends.
    """
    config = load_config(config_path)
    guard = load_tolerances(default_file(config.precision)).guard
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".calibrate-", dir=out) as scratch:
        noise = _measure(config, stacks, Path(scratch).resolve(), guard, on_progress)
    path = write_floor(
        out / "floors",
        name=config.name,
        provenance={
            "config_sha256": config.sha256,
            "config_name": config.name,
            "precision": config.precision,
            "guard": guard,
            "variants": list(VARIANTS),
            "repeats_exactly": {stack: found.repeats_exactly for stack, found in noise.items()},
            "threads": config.values["runtime"]["threads"],
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "legs": {stack: leg_provenance(found.header) for stack, found in noise.items()},
        },
        num_steps=min(found.num_steps for found in noise.values()),
        rises={stack: _rises(found) for stack, found in noise.items()},
        contributions={
            stack: {variant: _worst(cells) for variant, cells in found.cells.items()}
            for stack, found in noise.items()
        },
    )
    loss = max((w.get("steps.loss", 0.0) for w in map(_worst_of, noise.values())), default=0.0)
    on_progress(f"floor of the loss at the last step: {loss:.3g} (relative); written to {path}")
    return path


def differences(base: Trace, other: Trace, *, guard: float) -> Iterator[Cells]:
    """Yield the cells of every field that has a floor, of a run and its variant."""
    for found in scalar_cells(align_steps(base, other)):
        if found.field not in NO_FLOOR:
            yield found
    yield from tensor_cells(base, other, guard=guard)


def _measure(
    config: RunConfig,
    stacks: Sequence[Stack],
    scratch: Path,
    guard: float,
    on_progress: Progress,
) -> Mapping[str, Noise]:
    configs = write_variants(config, scratch)
    bases: Mapping[str, Trace] = {}
    cells: dict[str, dict[str, Sequence[Cells]]] = {}
    exact: dict[str, bool] = {}
    for place, (variant, path) in enumerate(configs.items(), start=1):
        on_progress(f"calibrate {place}/{len(configs)}: {variant}")
        traces = _run(variant, path, stacks, scratch)
        if variant == "base":
            bases = traces
            continue
        for stack, trace in traces.items():
            found = list(differences(bases[stack], trace, guard=guard))
            cells.setdefault(stack, {})[variant] = found
            loss = _worst(found).get("steps.loss", 0.0)
            on_progress(f"  {stack}: loss parts by {loss:.3g} at most")
            if variant == "repeat":
                exact[stack] = _same(bases[stack], trace, found)
                if not exact[stack]:
                    on_progress(
                        f"  warning: {stack} does not repeat bit for bit on this machine (S-19); "
                        "its noise is in the floor"
                    )
    return {
        stack: Noise(
            header=base.header,
            num_steps=base.steps.height,
            cells=cells[stack],
            repeats_exactly=exact[stack],
        )
        for stack, base in bases.items()
    }


def _run(variant: str, config: Path, stacks: Sequence[Stack], scratch: Path) -> dict[str, Trace]:
    """Run one variant in every stack, two legs at a time, and read the traces."""
    unique = list({stack.name: stack for stack in stacks}.values())
    legs = [
        Leg(
            name=stack.name,
            stack=stack,
            mode="train",
            config=config,
            root=scratch,
            out=scratch / variant / stack.name,
            logs=scratch / variant / "logs",
            nonce=new_nonce(),
        )
        for stack in unique
    ]
    for start in range(0, len(legs), 2):
        for end in run_legs(legs[start : start + 2]):
            if end.error is not None:
                raise LegError(f"calibration, variant {variant}: {end.name}: {end.error}")
    # Under the name that a trace gives its stack: a floor is looked up by it.
    traces = [read_trace(leg.out, nonce=leg.nonce) for leg in legs]
    return {trace.header["provenance"]["stack"]: trace for trace in traces}


def _same(base: Trace, repeat: Trace, cells: Sequence[Cells]) -> bool:
    equal = all(bool((found.relative == 0).all()) for found in cells)
    return equal and base.done["final"] == repeat.done["final"]


def _rises(noise: Noise) -> dict[str, list[list[float]]]:
    """Return the running maximum of each field over all variants."""
    fields: dict[str, list[Cells]] = {}
    for found in noise.cells.values():
        for entry in found:
            fields.setdefault(entry.field, []).append(entry)
    return {
        field: rising(
            np.concatenate([entry.steps for entry in found]),
            np.concatenate([entry.relative for entry in found]),
        )
        for field, found in fields.items()
    }


def _worst(cells: Sequence[Cells]) -> dict[str, float]:
    """Return the largest difference of each field; what is not finite counts as infinite."""
    return {
        entry.field: float(np.nan_to_num(entry.relative, nan=np.inf).max(initial=0.0))
        for entry in cells
    }


def _worst_of(noise: Noise) -> dict[str, float]:
    worst: dict[str, float] = {}
    for found in noise.cells.values():
        for field, value in _worst(found).items():
            worst[field] = max(value, worst.get(field, 0.0))
    return worst
