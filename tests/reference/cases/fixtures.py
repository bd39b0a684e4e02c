"""The files that vectors point to: tiny tokenizers, checkpoints and runs."""

from pathlib import Path

from tests.reference.cases import tokenizers


def write_all(folder: Path) -> list[Path]:
    """Writes them below `folder`; their paths."""
    written = []
    for name, text in tokenizers.files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        written.append(path)
    return written
