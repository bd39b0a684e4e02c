"""A canary phrase in the training data is in no form of a report, whatever went wrong with it.

The traces go through `judge`; `--reveal-text` is what makes the phrase appear, on the page alone.
"""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from oracle.cli.reporting import FORMATS
from oracle.report import html, json, junit, markdown, sarif
from oracle.report.text import print_verdict
from oracle.verdict import judge
from tests.unit_oracle_judge.conftest import pair
from tests.unit_oracle_judge.synthetic import NAMES, read
from tests.unit_oracle_judge.test_privacy import CANARY, CANARY_ID, break_everything, plant

WHAT = ("nothing", "text", "generic", "ids", "mask", "lost")


def text(verdict, *traces, reveal):
    stream = io.StringIO()
    print_verdict(verdict, Console(file=stream, width=80))
    return stream.getvalue()


FORMS = {
    "text": text,
    "json": lambda verdict, a, b, reveal: json.dumps(verdict),
    "html": html.render,
    "markdown": lambda verdict, a, b, reveal: markdown.render(verdict),
    "junit": lambda verdict, a, b, reveal: junit.render(verdict),
    "sarif": lambda verdict, a, b, reveal: sarif.render(verdict, None),
}


@pytest.fixture
def judged(tmp_path):
    def make(what):
        legs = pair()
        for made in legs:
            plant(made)
        break_everything(legs[1], what)
        traces = [read(tmp_path / name, made) for name, made in zip(NAMES, legs, strict=True)]
        verdict = judge(
            *traces, purpose="cross", names=NAMES, tolerances=None, floor=None, run="run-83fe"
        )
        return verdict, *traces

    return make


def found(shown):
    words = [word for word in CANARY.lower().split() if word in shown.lower()]
    return words + re.findall(r"987\D{0,3}654|987655", shown)


def test_every_form_of_the_command_is_here():
    assert set(FORMS) == set(FORMATS)


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("form", FORMS)
def test_the_canary_is_in_no_form(form, what, judged):
    verdict, a, b = judged(what)
    assert verdict.verdict == ("INCONCLUSIVE" if what == "nothing" else "DIVERGED")
    assert found(FORMS[form](verdict, a, b, reveal=False)) == []


@pytest.mark.parametrize("what", ["text", "ids"])
def test_a_reveal_shows_it_so_the_test_can_fail(what, judged):
    verdict, a, b = judged(what)
    shown = found(html.render(verdict, a, b, reveal=True))
    assert str(CANARY_ID + 1) in shown if what == "ids" else "marigold" in shown
