"""The documentation builds without a warning, its commands exist, and nothing is fetched."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from oracle.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
TEXT = {page.name: page.read_text("utf-8") for page in PAGES}
COMMANDS = [
    (name, line.removeprefix("$ ").split("  #")[0].strip())
    for name, text in TEXT.items()
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("$ ")
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    mkdocs = Path(sys.executable).with_name("mkdocs")
    done = subprocess.run(
        [mkdocs, "build", "--strict", "--site-dir", out],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_of_the_menu_is_built(site: Path) -> None:
    menu = re.findall(r": (\S+)\.md$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert len(menu) > 10
    assert {page.stem for page in PAGES} <= set(menu)
    assert all((site / f"{name}.html").stat().st_size > 3000 for name in menu)


def test_the_contract_is_shown_clause_by_clause(site: Path) -> None:
    shown = (site / "contract.html").read_text("utf-8")
    clauses = re.findall(
        r"^## (S-\d\d)", (ROOT / "configs/contract/SPEC.md").read_text("utf-8"), re.M
    )
    assert len(clauses) >= 27
    assert all(f">{clause} " in shown for clause in clauses)


def test_every_command_is_in_the_reference(site: Path) -> None:
    shown = (site / "commands.html").read_text("utf-8")
    assert all(f"oracle {name}" in re.sub("<[^>]+>", "", shown) for name in main.commands)


def test_a_page_fetches_nothing(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        fetched = re.findall(r'<(?:script|img|iframe|source)[^>]+src="(https?:[^"]+)"', text)
        fetched += re.findall(
            r'<link[^>]+rel="(?:stylesheet|preload)"[^>]+href="(https?:[^"]+)"', text
        )
        assert fetched == [], page


def test_a_link_that_leads_nowhere_stops_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    from mkdocs.exceptions import PluginError

    from tools import docs_hook

    match = docs_hook.LINK.search("see [x](../configs/nowhere.toml)")
    assert match is not None
    with pytest.raises(PluginError, match="leads nowhere"):
        docs_hook._link(match, ROOT / "docs" / "index.md", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_a_command_of_the_documentation_is_one_that_the_tool_takes(page: str, line: str) -> None:
    program, *argv = shlex.split(line)
    if program == "make":
        done = subprocess.run(["make", *argv, "-n"], cwd=ROOT, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return
    if program != "oracle":
        assert program in {"git", "python", "pip", "bash"}, f"{page}: {line}"
        return
    command: click.Command = main
    context = click.Context(main, info_name="oracle")
    while isinstance(command, click.Group):
        name, command_found, argv = command.resolve_command(context, argv)
        assert command_found is not None, f"{page}: {line}"
        command, context = command_found, click.Context(command_found, info_name=name)
    command.parse_args(context, list(argv))  # an unknown option or a missing argument raises
    for word in argv:
        if word.startswith(("configs/", "data/")):
            assert (ROOT / word).exists(), f"{page}: {line}"


def test_the_documentation_has_commands() -> None:
    assert len(COMMANDS) >= 10
