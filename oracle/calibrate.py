"""Self runs -> noise floor: each stack against itself, repeated and in variants that mean the same.

The floor of a field at step t is the running maximum up to t, over both legs and all variants, of
the relative difference to the base run. A calibration that was stopped goes on where it stood.
"""

from __future__ import annotations

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
from oracle.errors import ConfigError, LegError
from oracle.floor import leg_provenance, rising, write_floor
from oracle.leg import Limits
from oracle.perturb import VARIANTS, write_variants
from oracle.scratch import scratch_folder
from oracle.stacks import Stack
from oracle.tolerance import default_file, load_tolerances
from oracle.trace import Trace
from oracle.variant import View, finished, no_view, run_variant, variant_legs

NO_FLOOR = ("steps.lr", "steps.eval_targets")  # judged without one

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What one stack does to itself: cells of each variant by name, and the header of its base.

    `repeats_exactly` is None when it was not repeated.
    """

    header: Mapping[str, Any]
    num_steps: int
    cells: Mapping[str, Sequence[Cells]]
    repeats_exactly: bool | None


def calibrate(
    config_path: Path,
    *,
    stacks: Sequence[Stack],
    out: Path,
    on_progress: Progress,
    variants: Sequence[str] = VARIANTS,
    bases: Mapping[str, Trace] | None = None,
    limits: Limits | None = None,
    view: View = no_view,
) -> Path:
    """Measure the floor of a config and write it into `out/floors`; returns the file.

    Each stack is held against itself in `variants` beside the base run: fewer give a smaller floor.
    `bases` are traces of the base run that are there already, by the name of their stack.
    What finished before a stop is kept and goes on with the next call. Raises LegError when a leg
    fails. `on_progress` gets a line when a variant begins and ends.
    """
    config = load_config(config_path)
    if bases is not None:
        _check_bases(bases, config, stacks)
    rules = load_tolerances(default_file(config.precision))
    if not rules.trajectory:
        on_progress(f"the floor of a {config.precision} run is for step 0 alone: {rules.file}")
    floors = out / "floors"
    with scratch_folder(config, stacks, floors) as scratch:
        noise = _measure(
            config,
            stacks,
            scratch,
            rules.guard,
            variants,
            on_progress,
            bases=bases,
            limits=limits,
            view=view,
        )
        path = write_floor(
            floors,
            name=config.name,
            provenance={
                "config_sha256": config.sha256,
                "config_name": config.name,
                "precision": config.precision,
                "guard": rules.guard,
                "variants": list(variants),
                "repeats_exactly": {
                    stack: found.repeats_exactly
                    for stack, found in noise.items()
                    if found.repeats_exactly is not None
                },
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


def chosen(names: str) -> tuple[str, ...]:
    """Return the variants that a text like "base,ulp" names; base goes without saying.

    Raises ConfigError at an unknown name, and when there is nothing to hold against the base run.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in ("base", *VARIANTS):
            raise ConfigError(
                f"unknown variant {name!r}; known are base, {', '.join(VARIANTS)} (--variants)."
            )
    kept = tuple(name for name in VARIANTS if name in wanted)
    if not kept:
        raise ConfigError(
            f"--variants {names} holds nothing against the base run; name one or more of "
            f"{', '.join(VARIANTS)}."
        )
    return kept


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
    variants: Sequence[str],
    on_progress: Progress,
    *,
    bases: Mapping[str, Trace] | None,
    limits: Limits | None,
    view: View,
) -> Mapping[str, Noise]:
    configs = dict(write_variants(config, scratch, variants))
    if bases is None:
        bases = {}
    else:
        bases = {trace.header["provenance"]["stack"]: trace for trace in bases.values()}
        del configs["base"]
    cells: dict[str, dict[str, Sequence[Cells]]] = {}
    exact: dict[str, bool] = {}
    for place, variant in enumerate(configs, start=1):
        legs = variant_legs(variant, stacks, scratch)
        kept = all(finished(leg) is not None for leg in legs)
        on_progress(f"calibrate {place}/{len(configs)}: {variant}{' (kept)' if kept else ''}")
        traces = run_variant(variant, legs, limits=limits, view=view)
        if variant == "base":
            bases = traces
            continue
        for stack, trace in traces.items():
            _check_same_program(variant, bases[stack], trace, scratch)
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
            repeats_exactly=exact.get(stack),
        )
        for stack, base in bases.items()
    }


def _check_bases(bases: Mapping[str, Trace], config: RunConfig, stacks: Sequence[Stack]) -> None:
    """Refuse a run of another config, or one that a stack of this calibration has no part in."""
    for trace in bases.values():
        if (found := trace.header["config_sha256"]) != config.sha256:
            raise ConfigError(
                f"{trace.path} is of a config with the hash {found[:12]} and {config.path} has "
                f"{config.sha256[:12]}; give a run of this config as the base (--base)."
            )
    if missing := sorted({stack.name for stack in stacks} - bases.keys()):
        raise ConfigError(
            f"the base run has the stacks {', '.join(sorted(bases))} and not "
            f"{', '.join(missing)} (--base)."
        )


def _check_same_program(variant: str, base: Trace, other: Trace, scratch: Path) -> None:
    """Refuse a variant that was run by another program than the base, in an earlier call."""
    for field, then in leg_provenance(base.header).items():
        now = leg_provenance(other.header)[field]
        if field != "files" and then != now:
            stack = base.header["provenance"]["stack"]
            raise LegError(
                f"calibration, variant {variant}: {field} of {stack} changed since its base run; "
                f"remove {scratch} and calibrate again."
            )


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
