"""The summary for a pull request, as a Markdown processor (markdown-it) shows it."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest
from markdown_it import MarkdownIt

from oracle.report.markdown import render
from oracle.report.words import place, visible

from .scenes import CANARY, IDS, SCENES, agree, mask

HOSTILE = "x | y\n# h `c` **b** [l](http://evil) <img src=x> @team ~s~ $m$ ![i](http://evil/p.png)"


def page(verdict):
    return MarkdownIt("gfm-like", {"linkify": False}).enable("table").render(render(verdict))


def words(html):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


@pytest.mark.parametrize("name", SCENES)
def test_the_status_line_comes_first_and_names_the_verdict(name):
    verdict = SCENES[name]().verdict
    first_line = render(verdict).splitlines()[0]
    assert f" {verdict.verdict} · " in first_line
    assert page(verdict).startswith("<h3>")


@pytest.mark.parametrize("name", [name for name in SCENES if name != "agree"])
def test_a_divergence_is_told_with_place_values_rule_clause_and_consequences(name):
    verdict = SCENES[name]().verdict
    shown, first = words(page(verdict)), verdict.first
    parts = [first.phase, place(first), visible(first.rule), first.clause]
    parts += ["consequences"] if verdict.consequences else []
    for part in parts:
        assert " ".join(part.split()) in shown
    for value in (first.a, first.b):
        assert " ".join(visible(value).split())[:200] in shown


def test_phases_are_a_table_of_one_column_each():
    verdict = mask().verdict
    html = page(verdict)
    compared = [result for result in verdict.phases if result.status != "not_compared"]
    table = next(t for t in re.findall(r"<table>.*?</table>", html, re.DOTALL) if "✗ mask" in t)
    assert table.count("<th ") == table.count("<td ") == len(compared)


@pytest.mark.parametrize("field", ["a", "b", "hint", "example", "rule"])
def test_nothing_of_an_id_or_value_becomes_markup(field):
    verdict = mask().verdict
    first = replace(verdict.first, **{field: HOSTILE})
    clean = page(verdict)
    html = page(replace(verdict, first=first, divergences=(first,)))
    for tag in ("<img", "<a ", "<em", "<strong", "<code", "<h1", "<del", "<tr", "<td", "<s>"):
        assert html.count(tag) == clean.count(tag), tag
    assert "@team" not in render(replace(verdict, first=first, divergences=(first,)))


def test_the_longest_summary_fits_a_comment():
    verdict = agree().verdict
    many = tuple(f"reason {k} " + "x" * 5_000 for k in range(100))
    shown = render(replace(verdict, verdict="INCONCLUSIVE", reasons=many))
    assert len(shown) < 60_000
    assert "more in the JSON verdict" in shown


@pytest.mark.parametrize("name", SCENES)
def test_no_text_and_no_ordinary_id_is_written(name):
    shown = render(SCENES[name]().verdict)
    assert CANARY not in shown
    assert not [i for i in IDS if i > 200 and str(i) in shown]
