"""`header.json`: facts that are read back from what is used, and provenance (S-25)."""

import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .config import LoadedConfig
from .prepare import LoadedInputs
from .splits import Splits

PACKAGE = Path(__file__).resolve().parent
LIBRARIES = ("jax", "jaxlib", "flax", "optax", "minijinja", "regex", "numpy", "pyarrow")


def make_header(
    config: LoadedConfig,
    nonce: str,
    mode: str,
    facts: Mapping[str, Any],
    runtime: Mapping[str, Any],
    trajectory: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The document; `runtime` holds the provenance that depends on the start: device, compile,
    host. `trajectory` is that of an anchored run (S-30).
    """
    return {
        **({"trajectory": dict(trajectory)} if trajectory else {}),
        "trace_version": "1",
        "contract": "1",
        "mode": mode,
        "nonce": nonce,
        "config_sha256": config.sha256,
        "facts": dict(facts),
        "provenance": {
            "stack": "jax_stack",
            "code_sha256": code_sha256(PACKAGE),
            "code_path": str(PACKAGE),
            "config_path": str(config.path),
            "python": platform.python_version(),
            "versions": {name: importlib.metadata.version(name) for name in LIBRARIES},
            "machine": {
                "system": platform.platform(),
                "processor": _processor(),
                "cores": os.cpu_count() or 1,
            },
            "threads": config.run.runtime.threads,
            "attention": config.run.model.attention,
            "started": datetime.now(UTC).isoformat(),
            "process_id": os.getpid(),
            **runtime,
        },
    }


def data_facts(config: LoadedConfig, inputs: LoadedInputs, splits: Splits) -> dict[str, Any]:
    """The facts that both modes have: what was read, and the ids that have a meaning."""
    return {
        "seed": config.run.seed,
        "files": {
            **splits.hashes,
            "template": inputs.template_sha256,
            "tokenizer": inputs.tokenizer.sha256,
        },
        "num_examples": splits.num_examples,
        "special_ids": dict(inputs.tokenizer.added),
        "pad_id": inputs.pad_id,
    }


def code_sha256(package: Path) -> str:
    """Hash of the package's code: path, 0x00, bytes, 0x00 of each module by ascending path."""
    digest = hashlib.sha256()
    for path in sorted(
        package.rglob("*.py"), key=lambda path: path.relative_to(package).as_posix()
    ):
        digest.update(
            path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0"
        )
    return digest.hexdigest()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
