"""The input bundle: the bytes that both legs are given, by hash, so that a change is seen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.config import SPLITS, RunConfig
from oracle.errors import DataError
from oracle.files import sha256_file
from oracle.inputs import Inputs


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """Hashes of a run's files by the path that they were read from, config first."""

    config_sha256: str
    files: Mapping[str, str]

    def to_json(self) -> bytes:
        """Return the document `bundle/bundle.json`."""
        document = {"config_sha256": self.config_sha256, "files": dict(self.files)}
        return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


def make_bundle(inputs: Inputs) -> Bundle:
    """Hash every file that the config names."""
    return Bundle(
        config_sha256=inputs.config.sha256,
        files={str(path): sha256_file(path) for path in _paths(inputs)},
    )


def read_bundle(path: Path) -> Bundle:
    """Read `bundle/bundle.json` of a run directory; raises DataError."""
    try:
        document: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return Bundle(config_sha256=document["config_sha256"], files=document["files"])
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(f"{path} is missing or malformed; start a new run.") from None


def check_unchanged(before: Bundle, now: Bundle, config: RunConfig) -> None:
    """Refuse a resume on other bytes than those that the run began with."""
    if before.config_sha256 != now.config_sha256:
        raise DataError(
            f"config {config.path} has the hash {now.config_sha256} and the run began with "
            f"{before.config_sha256}; start a new run, or put the old config back."
        )
    for path, digest in now.files.items():
        if before.files.get(path) != digest:
            raise DataError(
                f"{path} has the hash {digest} and the run began with {before.files.get(path)}; "
                "start a new run, or put the old file back."
            )


def read_by_leg(bundle: Bundle, config: RunConfig, files: Mapping[str, Any]) -> str | None:
    """Return which input a leg read in another state than the run began with, or None.

    `files` are the facts of S-25: hashes of the bytes that the leg itself read.
    """
    data = config.values["data"]
    read = [*zip(config.data_files(), (h for s in SPLITS for h in files[s]), strict=False)]
    pairs = [(name, digest) for (_, name), digest in read]
    pairs += [(data[key], files[key]) for key in ("template", "tokenizer")]
    for name, digest in pairs:
        before = bundle.files.get(str(config.file(name)))
        if before is not None and before != digest:
            return (
                f"{name} had the hash {before} when the run began and a leg read {digest}: "
                "it was changed while the run was going on."
            )
    return None


def _paths(inputs: Inputs) -> list[Path]:
    data = inputs.config.values["data"]
    return [
        *(path for files in inputs.splits.values() for path, _ in files),
        inputs.config.file(data["template"]),
        inputs.config.file(data["tokenizer"]),
        *inputs.checkpoint.files,
    ]
