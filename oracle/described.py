"""What a verdict says of a trace: its config, and the leg that wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oracle.config import load_config
from oracle.contract import LegRecord
from oracle.errors import OracleError
from oracle.files import sha256_file
from oracle.trace import Trace


def describe_config(trace: Trace) -> Mapping[str, Any]:
    """Return name, hash, precision and length of the run, as far as the trace tells."""
    return {
        "name": _name(trace),
        "sha256": trace.header["config_sha256"],
        "precision": precision_of(trace),
        "num_steps": trace.header["facts"].get("num_steps"),
    }


def _name(trace: Trace) -> str:
    """Return the name in the run config when it still is the one that was run, else its file's."""
    config = read_config(trace)
    return (
        Path(trace.header["provenance"]["config_path"]).stem if config is None else config["name"]
    )


def read_config(trace: Trace) -> dict[str, Any] | None:
    """Return the values of the run config when it still is the one that was run, else None."""
    try:
        config = load_config(Path(trace.header["provenance"]["config_path"]))
    except (OracleError, OSError):
        return None
    return dict(config.values) if config.sha256 == trace.header["config_sha256"] else None


def precision_of(trace: Trace) -> str | None:
    """Return the dtype of the parameters as the run config spells it; None when nothing trained."""
    dtypes = trace.header["facts"].get("dtypes")
    return None if dtypes is None else str(dtypes["param"]).rpartition(".")[2]


def describe_leg(
    trace: Trace | None, name: str, path: Path | str = "", error: str | None = None
) -> LegRecord:
    """Return the record of a leg; without a trace only where it was expected, and its error."""
    if trace is None:
        return LegRecord(
            name=name, stack=None, trace=str(path), code_sha256=None, versions={}, error=error
        )
    provenance = trace.header["provenance"]
    return LegRecord(
        name=name,
        stack=provenance["stack"],
        trace=str(trace.path),
        code_sha256=provenance["code_sha256"],
        versions=provenance["versions"],
        trace_sha256=sha256_file(trace.path / "done.json"),
        error=error,
    )
