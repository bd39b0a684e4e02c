"""MkDocs hook: pages that live elsewhere in the repository, and links to files that are no pages.

The contract, the fault table and the figures are written where they are used; the site shows them
under the names below. A link from a page to any other file of the repository becomes its path, in
code, because the site holds no copy of it; one that leads nowhere stops the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "contract.md": ROOT / "configs" / "contract" / "SPEC.md",
    "faults.md": ROOT / "faults" / "TABLE.md",
    "figures.md": ROOT / "benchmarks" / "README.md",
}
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that live elsewhere."""
    for name, source in PAGES.items():
        files.append(File.generated(config, name, abs_src_path=str(source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links to files of the repository into links within the site, or into paths."""
    source = PAGES.get(page.file.src_uri, ROOT / "docs" / page.file.src_uri)
    return LINK.sub(lambda match: _link(match, source, files), markdown)


def _link(match: re.Match[str], source: Path, files: Files) -> str:
    text, target = match.groups()
    if re.match(r"[a-z]+:|#", target):
        return match[0]
    path, _, anchor = target.partition("#")
    wanted = (source.parent / path).resolve()
    for name, place in PAGES.items():
        if wanted == place:
            return f"[{text}]({name}{'#' + anchor if anchor else ''})"
    if wanted.is_relative_to(ROOT / "docs"):
        return match[0]  # MkDocs checks links between pages
    if not wanted.exists():
        raise PluginError(f"{source}: the link to {target} leads nowhere")
    shown = wanted.relative_to(ROOT).as_posix() + ("/" if wanted.is_dir() else "")
    return (
        f"`{shown}`"
        if text.strip("`") in (path, shown, path.split("/")[-1])
        else f"{text} (`{shown}`)"
    )
