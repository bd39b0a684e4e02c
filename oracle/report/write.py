"""`oracle report`: a stored run in one of the forms, to a file or to standard output."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console

from oracle.contract import ROOT, Verdict
from oracle.files import write_atomic
from oracle.report import html, json, junit, markdown, sarif
from oracle.report.show import read_verdict
from oracle.report.text import print_verdict
from oracle.runs import Run
from oracle.store import find_run
from oracle.trace import Trace, read_trace

WIDTH = 100  # columns of a text report that goes to a file


def write_report(run: str, form: str, output: Path | None, out: Path, *, reveal: bool) -> None:
    """Write the verdict of a run; raises OracleError when there is none."""
    found = find_run(run, out)
    verdict = read_verdict(found.path)
    if output is None and form == "text":
        print_verdict(verdict, Console())
        return
    content = rendered(found, verdict, form, reveal=reveal)
    if output is None:
        sys.stdout.write(content)
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(output, content.encode("utf-8", "backslashreplace"))


def rendered(run: Run, verdict: Verdict, form: str, *, reveal: bool) -> str:
    """Return the verdict in a form of `oracle report`."""
    if form == "json":
        return json.dumps(verdict)
    if form == "html":
        return html.render(verdict, *_traces(run, verdict), reveal=reveal)
    if form == "markdown":
        return markdown.render(verdict)
    if form == "junit":
        return junit.render(verdict)
    if form == "sarif":
        config = Path(run.manifest.config_path)
        inside = config.is_file() and config.resolve().is_relative_to(ROOT)
        return sarif.render(verdict, config if inside else None)
    buffer = io.StringIO()
    print_verdict(verdict, Console(file=buffer, width=WIDTH))
    return buffer.getvalue()


def _traces(run: Run, verdict: Verdict) -> tuple[Trace | None, Trace | None]:
    a, b = (
        None
        if leg.error
        else read_trace(run.trace(leg.name), nonce=run.manifest.legs[leg.name].nonce)
        for leg in verdict.legs
    )
    return a, b
