"""The files that vectors point to."""

from pathlib import Path


def write_all(folder: Path) -> list[Path]:
    """Writes them below `folder`; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return []
