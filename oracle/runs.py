"""A run directory: where one double run keeps its manifest, bundle, traces, logs and verdict.

runs/{name}-{UTC time}-{4 hex}/
    run.json            manifest, written whole or not at all
    bundle/run.toml     the config's bytes; bundle/bundle.json the hashes of all inputs
    {leg}/              traces
    logs/{leg}.stdout   and .stderr
    verdict.json, report.html
runs/latest             a link to the run that was begun last
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from oracle.contract import CONTRACT_VERSION, ROOT, Purpose
from oracle.errors import OracleError
from oracle.files import write_atomic
from oracle.leg import new_nonce
from oracle.revision import revision

if TYPE_CHECKING:  # to look at runs needs none of them, and they take half a second to import
    from oracle.bundle import Bundle
    from oracle.config import RunConfig
    from oracle.stacks import Stack

Status = Literal["running", "finished", "failed", "interrupted"]
Mode = Literal["train", "render"]
MANIFEST_VERSION = "1"
LATEST = "latest"


@dataclass(frozen=True, kw_only=True)
class LegEntry:
    """A leg in the manifest. `process_id` is that of the last start."""

    stack: str
    argv: tuple[str, ...]
    nonce: str
    process_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """`run.json`: all that is needed to know, judge and resume a run."""

    run: str
    created: str
    mode: Mode
    purpose: Purpose
    status: Status
    contract: str
    config_path: str
    config_sha256: str
    root: str
    stacks_file: str
    git_commit: str | None
    legs: Mapping[str, LegEntry]
    manifest_version: str = MANIFEST_VERSION


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run directory with its manifest."""

    path: Path
    manifest: Manifest

    @property
    def config(self) -> Path:
        """The config that the legs read."""
        return self.path / "bundle" / "run.toml"

    @property
    def logs(self) -> Path:
        """Folder of what the legs printed."""
        return self.path / "logs"

    def trace(self, leg: str) -> Path:
        """Trace directory of a leg."""
        return self.path / leg

    def updated(self, **changes: Any) -> Run:
        """Write the manifest with changed fields and return the run."""
        manifest = replace(self.manifest, **changes)
        content = json.dumps(asdict(manifest), indent=1, ensure_ascii=False).encode() + b"\n"
        write_atomic(self.path / "run.json", content)
        return Run(path=self.path, manifest=manifest)


def leg_names(stacks: tuple[Stack, Stack]) -> tuple[str, str]:
    """Return the names of the legs: those of the stacks, or `a` and `b` appended in a self run."""
    a, b = (stack.name for stack in stacks)
    return (f"{a}-a", f"{b}-b") if a == b else (a, b)


def create_run(
    out: Path,
    config: RunConfig,
    bundle: Bundle,
    stacks: tuple[Stack, Stack],
    stacks_file: Path,
    *,
    mode: Mode,
) -> Run:
    """Make a run directory; `run.json` comes last, so a directory without it is no run."""
    now = datetime.now(UTC)
    name = f"{config.name}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    path = out.resolve() / name
    (path / "bundle").mkdir(parents=True, mode=0o700)
    path.chmod(0o700)
    write_atomic(path / "bundle" / "run.toml", config.content)
    write_atomic(path / "bundle" / "bundle.json", bundle.to_json())
    manifest = Manifest(
        run=name,
        created=now.isoformat(timespec="seconds"),
        mode=mode,
        purpose="self" if stacks[0].name == stacks[1].name else "cross",
        status="running",
        contract=CONTRACT_VERSION,
        config_path=str(config.path),
        config_sha256=config.sha256,
        root=str(config.root),
        stacks_file=str(stacks_file.resolve()),
        # That of the code that the config belongs to; a config outside any repository has ours.
        git_commit=revision(config.path.parent) or revision(ROOT),
        legs={
            leg: LegEntry(stack=stack.name, argv=stack.argv, nonce=new_nonce())
            for leg, stack in zip(leg_names(stacks), stacks, strict=True)
        },
    )
    run = Run(path=path, manifest=manifest).updated()
    _point_latest(path)
    return run


def _point_latest(path: Path) -> None:
    """Let `latest` beside the run lead to it: a link, replaced in one go."""
    fresh = path.with_name(f".latest-{path.name}")
    fresh.symlink_to(path.name)
    fresh.replace(path.with_name(LATEST))


def open_run(path: Path) -> Run:
    """Read a run directory; raises OracleError when it is none."""
    try:
        document = json.loads((path / "run.json").read_text("utf-8"))
        legs = {
            name: LegEntry(**(entry | {"argv": tuple(entry["argv"])}))
            for name, entry in document["legs"].items()
        }
        manifest = Manifest(**(document | {"legs": legs}))
    except FileNotFoundError:
        raise OracleError(f"{path} has no run.json, so it is no run directory.") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise OracleError(f"{path / 'run.json'} is malformed; start a new run.") from None
    if manifest.manifest_version != MANIFEST_VERSION:
        raise OracleError(
            f"{path / 'run.json'} is of version {manifest.manifest_version!r} and this oracle "
            f"reads {MANIFEST_VERSION!r}."
        )
    return Run(path=path.resolve(), manifest=manifest)


def find_run(text: str, out: Path) -> Run:
    """Return the run of a path, an id, the end of an id (`83fe`), or `latest` below `out`."""
    for path in (Path(text), out / LATEST if text == LATEST else Path(text)):
        if (path / "run.json").exists():
            return open_run(path.resolve())
    found = sorted(
        path.parent
        for path in out.glob("*/run.json")
        if path.parent.name.endswith(text) and not path.parent.is_symlink()
    )
    if len(found) == 1:
        return open_run(found[0])
    if not found:
        raise OracleError(f"no run {text!r}: it is neither a run directory nor an id in {out}.")
    names = ", ".join(path.name for path in found[-3:])
    raise OracleError(
        f"{len(found)} runs in {out} end with {text!r} ({names}); give more of the id."
    )


def refuse_running(run: Run) -> None:
    """Refuse to resume a run whose leg still writes: two writers would ruin the trace."""
    for name, leg in run.manifest.legs.items():
        if leg.process_id is not None and _is_leg(leg.process_id, leg.nonce):
            raise OracleError(
                f"leg {name} of {run.path.name} still runs as process {leg.process_id}; "
                f"stop it first (kill {leg.process_id}), then resume."
            )


def _is_leg(process_id: int, nonce: str) -> bool:
    # The nonce is on the leg's command line, so a process that got the same id later is told apart.
    with contextlib.suppress(OSError):
        return nonce.encode() in Path(f"/proc/{process_id}/cmdline").read_bytes()
    return False
