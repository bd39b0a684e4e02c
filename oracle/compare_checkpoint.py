"""The deliverable: `checkpoint/` of a finished leg holds the final parameters (S-13, S-22), and a
`config.json` that describes the model that was trained.

`done.json` hashes the parameters that were trained; what a person will load is a file that was
written beside it. A leg is held against itself here, so nothing else explains a difference.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from oracle.checkpoint import (
    HEAD,
    described_model,
    read_model_config,
    stored_tensors,
)
from oracle.contract import Divergence
from oracle.errors import DataError
from oracle.files import sha256_file
from oracle.outcome import divergence
from oracle.safetensors_header import StoredTensor, read_values
from oracle.trace import Trace

COPIES = {"tokenizer.json": "tokenizer", "chat_template.jinja": "template"}  # file -> fact (S-13)


def has_checkpoint(trace: Trace) -> bool:
    """Whether a trace still has its final checkpoint; a copied one may have left it behind."""
    return (trace.path / "checkpoint").is_dir()


def compare_checkpoints(
    a: Trace, b: Trace, *, names: tuple[str, str], parted_facts: Collection[str] = ()
) -> list[Divergence]:
    """Hold each leg's checkpoint against its own footer and facts, and the two configs together.

    A fact of the model that parts the legs is told by `echo` and not told again here.
    """
    checks: dict[str, Callable[[Trace], str | None]] = {
        "checkpoint": _weights_fault,
        "checkpoint/config.json": functools.partial(_config_fault, parted_facts),
    }
    for file in COPIES:
        checks[f"checkpoint/{file}"] = functools.partial(_copy_fault, file)
    found = []
    for field, check in checks.items():
        faults = [check(trace) if has_checkpoint(trace) else None for trace in (a, b)]
        legs = [(name, fault) for name, fault in zip(names, faults, strict=True) if fault]
        if not legs:
            continue
        shown = [
            ("not what was trained" if fault else "as it should be")
            if has_checkpoint(trace)
            else "absent"
            for trace, fault in zip((a, b), faults, strict=True)
        ]
        made = divergence(
            "params",
            field=field,
            a=shown[0],
            b=shown[1],
            step=max(a.done["num_steps"], b.done["num_steps"]) - 1,
            rule="checkpoint/ holds the final parameters, their config, tokenizer and template",
            hint="; ".join(f"{name}: {fault}" for name, fault in legs),
        )
        found.append(replace(made, clause="S-13"))
    if all(map(has_checkpoint, (a, b))) and not found:
        found += _configs_apart(a, b)
    return found


def _configs_apart(a: Trace, b: Trace) -> Iterator[Divergence]:
    """Both legs copy one config.json and may change its dtype alone (S-13)."""
    paths = [trace.path / "checkpoint" / "config.json" for trace in (a, b)]
    configs = [read_model_config(path) if path.exists() else {} for path in paths]
    shown = [{key: json.dumps(value) for key, value in config.items()} for config in configs]
    for key in sorted((shown[0].keys() | shown[1].keys()) - {"dtype", "torch_dtype"}):
        values = [config.get(key, "absent") for config in shown]
        if values[0] != values[1]:
            made = divergence(
                "params",
                field=f"checkpoint/config.json:{key}",
                a=values[0][:80],
                b=values[1][:80],
                step=max(a.done["num_steps"], b.done["num_steps"]) - 1,
                rule="checkpoint/config.json is a copy of the one that was read but for its dtype",
            )
            yield replace(made, clause="S-13")


def tensors_sha256(tensors: Mapping[str, StoredTensor]) -> str:
    """Return the hash of a set of stored tensors (S-22)."""
    digest = hashlib.sha256()
    for name in sorted(tensors, key=str.encode):
        digest.update(name.encode() + b"\0")
        digest.update(read_values(tensors[name]).astype("<f8").tobytes())
    return digest.hexdigest()


def _weights_fault(trace: Trace) -> str | None:
    if trace.done["final"] is None:
        return None  # `health` says that the hash to compare with is missing
    facts = trace.header["facts"]
    try:
        stored = stored_tensors(trace.path / "checkpoint")
    except DataError as error:
        return str(error).rstrip(".")
    if facts["model"]["tied"] and HEAD not in facts["parameters"]:
        stored.pop(HEAD, None)
    if stored.keys() != facts["parameters"].keys():
        name = min(stored.keys() ^ facts["parameters"].keys())
        return f"checkpoint/ {'has an unknown tensor' if name in stored else 'lacks'} {name}"
    found, stated = tensors_sha256(stored), trace.done["final"]["params_sha256"]
    if found == stated:
        return None
    return f"checkpoint/ has the hash {found[:12]} and done.json states {stated[:12]}"


def _config_fault(parted_facts: Collection[str], trace: Trace) -> str | None:
    """Hold config.json against the facts of the live model: what a loader will build of it."""
    path = trace.path / "checkpoint" / "config.json"
    if not path.exists():
        return None  # a model that S-12 does not describe has none; `_configs_apart` sees one alone
    try:
        config = read_model_config(path)
    except DataError as error:
        return str(error).rstrip(".")
    facts = trace.header["facts"]
    for fact, value in described_model(config).items():
        if facts["model"][fact] != value and f"model.{fact}" not in parted_facts:
            return (
                f"checkpoint/config.json says {fact} {value} and the model that was trained has "
                f"{facts['model'][fact]}"
            )
    return None


def _copy_fault(file: str, trace: Trace) -> str | None:
    path, stated = trace.path / "checkpoint" / file, trace.header["facts"]["files"][COPIES[file]]
    if not path.is_file():
        return f"checkpoint/ lacks {file}"
    found = sha256_file(path)
    if found == stated:
        return None
    return f"checkpoint/{file} has the hash {found[:12]} and the leg read {stated[:12]}"
