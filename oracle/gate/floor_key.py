"""The key of a noise floor: a hash of all that a floor depends on, known after a render alone.

A leg that renders states its code, versions, machine and the files that it read, as a leg that
trains does; weights it does not read, so the config's files are hashed as they are now.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from oracle.bundle import make_bundle
from oracle.config import load_config
from oracle.floor import LEG_FIELDS, leg_provenance, read_floor
from oracle.inputs import check_inputs
from oracle.runs import Run, find_run
from oracle.trace import read_trace


def floor_key(text: str, out: Path) -> str:
    """Return the key of a run, as a file name can hold it: config name and 16 hex digits."""
    run = find_run(text, out)
    basis = {
        "config": run.manifest.config_sha256,
        "files": sorted(_files(run).values()),
        "legs": {stack: _without_files(leg) for stack, leg in sorted(_legs(run).items())},
    }
    digest = hashlib.sha256(json.dumps(basis, sort_keys=True).encode()).hexdigest()
    return f"{run.path.name.rsplit('-', 2)[0]}-{digest[:16]}"


def stored(text: str, out: Path) -> bool:
    """Whether `out/floors` has a floor that holds for every leg of the run, as far as one can say.

    Files that a render does not read are held against those that lie there now.
    """
    run = find_run(text, out)
    legs, hashes = _legs(run), set(_files(run).values())
    for path in sorted((out / "floors").glob("*.json")):
        provenance = read_floor(path).provenance
        if provenance["config_sha256"] != run.manifest.config_sha256:
            continue
        if all(
            stack in provenance["legs"] and _same(provenance["legs"][stack], leg, hashes)
            for stack, leg in legs.items()
        ):
            return True
    return False


def _same(then: dict[str, Any], now: dict[str, Any], hashes: set[str]) -> bool:
    fields = [field for field in LEG_FIELDS if field != "files"]
    read = now["files"]
    unread = [value for name, value in then["files"].items() if name not in read]
    weights = [
        h for value in unread for h in (value.values() if isinstance(value, dict) else [value])
    ]
    return (
        all(then.get(field) == now[field] for field in fields)
        and all(then["files"].get(name) == read[name] for name in read)
        and set(weights) <= hashes
    )


def _legs(run: Run) -> dict[str, dict[str, Any]]:
    traces = [read_trace(run.trace(name)) for name in run.manifest.legs]
    return {t.header["provenance"]["stack"]: leg_provenance(t.header) for t in traces}


def _without_files(leg: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in leg.items() if field != "files"}


def _files(run: Run) -> dict[str, str]:
    """Return the hashes of the config's files, weights included, by path."""
    config = load_config(run.config, root=Path(run.manifest.root))
    return dict(make_bundle(check_inputs(config)).files)
