"""The files that vectors point to: tiny tokenizers, checkpoints and runs."""

from pathlib import Path

from tests.reference.cases import checkpoints, runs, tokenizers


def contents() -> dict[str, bytes]:
    """Path below the vectors' folder -> bytes."""
    texts = tokenizers.files() | runs.files()
    return {path: text.encode() for path, text in texts.items()} | checkpoints.files()


def write_all(folder: Path) -> list[Path]:
    """Writes them below `folder`; their paths."""
    written = []
    for name, data in contents().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        written.append(path)
    return written
