"""Files: read with one sentence on failure, hashed in blocks, written whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from oracle.errors import DataError, OracleError


def read_bytes(path: Path, what: str, error: type[OracleError] = DataError) -> bytes:
    """Return the content of a non-empty file; raises `error` with `what` it is and the reason."""
    if path.is_dir():
        raise error(f"{what} {path} is a directory; a file is needed.")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise error(f"{what} {path} does not exist{_nearest_folder(path)}.") from None
    except OSError as cause:
        raise error(f"{what} {path} cannot be read ({cause.strerror}).") from None
    except ValueError:
        raise error(f"{what} {path} cannot be read: its name holds a zero byte.") from None
    if not content:
        raise error(f"{what} {path} is empty (0 bytes).")
    return content


def read_text(path: Path, what: str, error: type[OracleError] = DataError) -> str:
    """Return the content of a non-empty UTF-8 file."""
    content = read_bytes(path, what, error)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as cause:
        line = content.count(b"\n", 0, cause.start) + 1
        raise error(f"{what} {path}:{line} is not UTF-8 (byte {cause.start}).") from None


def _nearest_folder(path: Path) -> str:
    """Say which folder of a missing path is the last that exists: a typo is found there."""
    folder = path.parent
    if folder.is_dir():
        return ""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return f" (nothing below {folder})"


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file in lower-case hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_atomic(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file so that it is there whole or not at all: temporary name, sync, rename.

    Raises OSError with the path that was asked for (a full disk names no file by itself).
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with naming(path):
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an OSError of the block name `path`: a full disk names no file by itself."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
