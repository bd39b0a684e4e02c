"""Where an unfinished calibration stands: one folder for a config, its files, code and machine.

out/floors/.calibrate-{config hash}-{hash of the rest}/
    lock                    held while a calibration works here
    {variant}.toml          config of a variant; moved-weights/ are the weights of one
    {variant}/{stack}/      traces, with logs/ and nonces.json beside them
The folder outlives a calibration that was stopped or killed, so that the next call goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from oracle.config import RunConfig
from oracle.errors import ConfigError, DataError, OracleError
from oracle.files import sha256_file
from oracle.stacks import Stack

MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
DIGITS = 12  # of each hash in the name


@contextlib.contextmanager
def scratch_folder(config: RunConfig, stacks: Sequence[Stack], floors: Path) -> Iterator[Path]:
    """Give the folder in which `config` is calibrated; it goes when the block ends well.

    Input that a leg refuses stays refused, so then it goes too. What an older state of the config's
    files or of the code left is taken away. Raises OracleError when a calibration is going on here.
    """
    prefix = f".calibrate-{config.sha256[:DIGITS]}-"
    folder = floors.resolve() / f"{prefix}{_basis(config, stacks)[:DIGITS]}"
    for old in floors.glob(f"{prefix}*"):
        if old.name != folder.name:
            with contextlib.suppress(OracleError), _held(old):
                shutil.rmtree(old)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _held(folder):
        try:
            yield folder
        except (ConfigError, DataError):
            shutil.rmtree(folder)
            raise
        shutil.rmtree(folder)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the system lets go of it when the process ends, however it ends."""
    handle = os.open(folder / "lock", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OracleError(
            f"a calibration of this config is going on in {folder}; wait for it, or stop it first."
        ) from None
    else:
        yield
    finally:
        os.close(handle)


def _basis(config: RunConfig, stacks: Sequence[Stack]) -> str:
    """Hash what the traces of a calibration depend on beside the config's bytes."""
    whole = hashlib.sha256("\0".join([platform.node(), platform.python_version()]).encode())
    for path in _inputs(config):
        whole.update(f"\0{path}\0{sha256_file(path)}".encode())
    for stack in sorted(stacks, key=lambda stack: stack.name):
        words = [stack.name, *stack.argv, *(f"{k}={v}" for k, v in sorted(stack.env.items()))]
        whole.update("\0".join(["", *words]).encode())
        for path in _program(stack):
            whole.update(f"\0{path}\0{sha256_file(path)}".encode())
    return whole.hexdigest()


def _inputs(config: RunConfig) -> list[Path]:
    data, model = config.values["data"], config.values["model"]
    named = [name for _, name in config.data_files()] + [data["template"], data["tokenizer"]]
    checkpoint = config.file(model["checkpoint"])
    found = [*map(config.file, named), *sorted(checkpoint.glob("*"))]
    return [path for path in found if path.is_file()]


def _program(stack: Stack) -> Iterator[Path]:
    """Yield the files of a stack as far as its argv tells: programs, scripts, `-m` packages."""
    places = [stack.root, *map(Path, filter(None, stack.env.get("PYTHONPATH", "").split(":")))]
    for before, argument in zip(("", *stack.argv), stack.argv, strict=False):
        if Path(argument).is_file():
            yield Path(argument)
        if before == "-m" and MODULE.fullmatch(argument):
            folders = (place / argument.replace(".", "/") for place in places)
            package = next((folder for folder in folders if folder.is_dir()), None)
            yield from sorted(package.rglob("*.py")) if package is not None else ()
