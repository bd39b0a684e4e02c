"""The noise floor of a run: what its legs do to themselves, by field and step, with provenance.

A file `runs/floors/{config name}-{hash}.json` holds, for each stack and field, the running maximum
over steps of the relative differences between the base run and its variants, as the steps at which
it rises. A floor holds for the config, the code, the library versions and the machine it was
measured with; where one of these differs it is refused with the differing field.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.contract import Purpose
from oracle.errors import ConfigError
from oracle.files import write_atomic
from oracle.tolerance import Floats

VERSION = "1"
# What a leg's part of a floor depends on, in the order in which a difference is named.
LEG_FIELDS = ("code_sha256", "versions", "python", "machine", "device", "files")

Rises = Sequence[Sequence[float]]  # [step, value] where the running maximum rises


@dataclass(frozen=True, kw_only=True)
class Floor:
    """A floor file. `rises[stack][field]` is the running maximum of one stack."""

    file: str
    sha256: str
    provenance: Mapping[str, Any]
    num_steps: int
    rises: Mapping[str, Mapping[str, Rises]]

    def at(self, field: str, steps: npt.NDArray[np.int64]) -> Floats:
        """Return the floor of a field at each step, the maximum over stacks; nan where unmeasured.

        A field that no variant ever moved has the floor 0.
        """
        values = np.zeros(len(steps))
        for stack in self.rises.values():
            rises = stack.get(field)
            if rises is None:
                return np.full(len(steps), math.nan)
            at = np.searchsorted([rise[0] for rise in rises], steps, side="right")
            values = np.maximum(values, np.array([0.0, *(rise[1] for rise in rises)])[at])
        return np.where(steps < self.num_steps, values, math.nan)

    def of(self, stacks: Iterable[str]) -> Floor:
        """Return the floor measured on these stacks alone."""
        kept = {stack: self.rises[stack] for stack in stacks}
        return Floor(
            file=self.file,
            sha256=self.sha256,
            provenance=self.provenance,
            num_steps=self.num_steps,
            rises=kept,
        )


def rising(steps: npt.NDArray[np.int64], relative: Floats) -> list[list[float]]:
    """Return `[step, value]` where the running maximum of `relative` rises; nan counts as infinite.

    Steps may repeat (several tensors, several variants) and come in any order.
    """
    order = np.argsort(steps, kind="stable")
    values = np.nan_to_num(relative[order], nan=math.inf)
    running = np.maximum.accumulate(values) if len(values) else values
    rises: list[list[float]] = []
    last = 0.0
    for step, value in zip(steps[order].tolist(), running.tolist(), strict=True):
        if value > last:
            if rises and rises[-1][0] == step:
                rises[-1][1] = value
            else:
                rises.append([step, value])
            last = value
    return rises


def write_floor(
    folder: Path,
    *,
    name: str,
    provenance: Mapping[str, Any],
    num_steps: int,
    rises: Mapping[str, Mapping[str, Rises]],
    contributions: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> Path:
    """Write a floor file, named by its content, and return its path.

    `contributions[stack][variant][field]` is the largest difference of one variant.
    """
    document = {
        "floor_version": VERSION,
        "provenance": provenance,
        "num_steps": num_steps,
        "stacks": rises,
        "contributions": contributions,
    }
    text = json.dumps(_finite(document), indent=1, sort_keys=True, allow_nan=False) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    write_atomic(path, text.encode(), mode=0o644)
    return path


def read_floor(path: Path) -> Floor:
    """Read a floor file; raises ConfigError when it cannot be used or was edited."""
    try:
        raw = path.read_bytes()
        document = json.loads(raw)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as a floor: {error}.") from None
    keys = {"floor_version", "provenance", "num_steps", "stacks", "contributions"}
    if not isinstance(document, dict) or document.keys() != keys:
        raise ConfigError(f"{path} is not a floor file: it should hold {', '.join(sorted(keys))}.")
    if document["floor_version"] != VERSION:
        raise ConfigError(
            f"{path} is of floor version {document['floor_version']!r}, not {VERSION}."
        )
    sha256 = hashlib.sha256(raw).hexdigest()
    if not path.stem.endswith(f"-{sha256[:16]}"):
        raise ConfigError(f"{path} was edited: its name ends in another hash than its content has.")
    rises = {
        stack: {f: [[s, math.inf if v is None else v] for s, v in r] for f, r in by_field.items()}
        for stack, by_field in document["stacks"].items()
    }
    return Floor(
        file=str(path),
        sha256=sha256,
        provenance=document["provenance"],
        num_steps=document["num_steps"],
        rises=rises,
    )


def leg_provenance(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a leg's floor depends on, from the header of its trace."""
    fields = {field: header["provenance"][field] for field in LEG_FIELDS if field != "files"}
    return fields | {"files": header["facts"]["files"]}


def holding(
    floor: Floor, *, config_sha256: Sequence[str], legs: Sequence[tuple[str, Mapping[str, Any]]]
) -> tuple[Floor | None, list[str]]:
    """Return the part of a floor that holds for these legs, and a sentence for each refusal.

    A leg is its stack (as its trace names it) and `leg_provenance`. One whose code, versions,
    machine or inputs changed is left out: the other's floor still is noise of this config, and a
    smaller floor lets nothing more pass. Under another config, or with no leg left, there is none.
    """
    measured = floor.provenance["config_sha256"]
    if measured not in config_sha256:
        return None, [_refused(floor, "config_sha256", measured, config_sha256[0])]
    kept, sentences = [], []
    for stack, now in legs:
        if stack not in floor.rises:
            sentences.append(f"the floor {Path(floor.file).name} was not measured on {stack}")
            continue
        then = floor.provenance["legs"][stack]
        other = next((field for field in LEG_FIELDS if then.get(field) != now[field]), None)
        if other is None:
            kept.append(stack)
        else:
            sentences.append(_refused(floor, other, then.get(other), now[other], of=f" of {stack}"))
    return (floor.of(dict.fromkeys(kept)) if kept else None), list(dict.fromkeys(sentences))


def find_floor(
    folder: Path, *, config_sha256: str, legs: Mapping[str, Mapping[str, Any]]
) -> tuple[Path | None, str | None]:
    """Return the floor of `folder` that holds for most of the legs, or None and why none does.

    Among equals the newest. `legs[stack]` is `leg_provenance` of a header of that stack.
    """
    reason = f"no floor of this config in {folder}; measure one with `oracle calibrate CONFIG`"
    found = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
    best: tuple[int, Path] | None = None
    for path in found:
        floor = read_floor(path)
        if floor.provenance["config_sha256"] != config_sha256:
            continue
        kept, sentences = holding(floor, config_sha256=[config_sha256], legs=list(legs.items()))
        reason = sentences[0] if sentences else reason
        if kept is not None and (best is None or len(kept.rises) >= best[0]):
            best = len(kept.rises), path
    return (best[1], None) if best is not None else (None, reason)


def choose_floor(
    choice: str, folder: Path, headers: Sequence[Mapping[str, Any]], *, purpose: Purpose
) -> tuple[Path | None, str | None]:
    """Return the floor file that `--floor` means for two traces and, when none holds, why.

    A file is taken as it is; `auto` looks in `folder`; `none` means none. A render has no numeric
    phase, and a self comparison without a floor must be bit-identical, so `auto` gives them none.
    """
    if choice not in ("auto", "none"):
        return Path(choice), None
    if choice == "none" or purpose == "self" or headers[0]["mode"] == "render":
        return None, None
    legs = {header["provenance"]["stack"]: leg_provenance(header) for header in headers}
    path, why = find_floor(folder, config_sha256=headers[0]["config_sha256"], legs=legs)
    # That there is none at all, the verdict says itself; that one was refused, it cannot know.
    return path, None if why is None or why.startswith("no floor") else why


def _refused(floor: Floor, field: str, measured: Any, now: Any, of: str = "") -> str:
    if isinstance(measured, Mapping) and isinstance(now, Mapping):
        keys = sorted(measured.keys() | now.keys())
        key = next(k for k in keys if measured.get(k) != now.get(k))
        field, measured, now = f"{field}.{key}", measured.get(key), now.get(key)
    a, b = (str(v)[:12] if len(str(v)) == 64 else str(v) for v in (measured, now))
    return (
        f"the floor {Path(floor.file).name} does not hold: {field}{of} was {a} when it was "
        f"measured and is {b} now; measure it again with `oracle calibrate CONFIG`"
    )


def _finite(value: Any) -> Any:
    """Return a document with null for infinity: a variant that parted without bound."""
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
