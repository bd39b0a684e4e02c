"""Small documents beside the records: which objects are floors, and who needs which run.

floors/NAME.json    a row of the index: the floor file NAME, its hash and its provenance
pins/RUN.json       since when, by holder
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.errors import OracleError
from oracle.files import write_atomic
from oracle.store.objects import sync


@dataclass(frozen=True, kw_only=True)
class Notes:
    """A folder of documents, one a name; a document that is empty is not there."""

    folder: Path

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a document, or remove it when it is empty."""
        path = self.folder / f"{name}.json"
        if not document:
            path.unlink(missing_ok=True)
            return
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(path, json.dumps(document, indent=1, sort_keys=True).encode() + b"\n")
        sync(self.folder)

    def read(self, name: str) -> dict[str, Any]:
        """Return a document, empty when there is none; raises OracleError when it is malformed."""
        path = self.folder / f"{name}.json"
        try:
            document = json.loads(path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise OracleError(f"{path} is malformed; move it away and use `oracle reindex`.")
        return document

    def names(self) -> Iterator[str]:
        """Yield the names of all documents."""
        yield from (path.stem for path in sorted(self.folder.glob("[!.]*.json")))
