"""JUnit XML as another program reads it (junitparser): a case a phase, red where it should be."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped

from oracle.report.junit import render

from .scenes import CANARY, IDS, SCENES, agree, mask


def cases(verdict):
    (suite,) = JUnitXml.fromstring(render(verdict).encode())
    return {case.name: case for case in suite}, suite


@pytest.mark.parametrize("name", SCENES)
def test_the_first_phase_alone_fails_and_consequences_are_skipped(name):
    verdict = SCENES[name]().verdict
    found, suite = cases(verdict)
    failed = {
        case.removeprefix("phase ")
        for case, entry in found.items()
        if any(isinstance(result, Failure) for result in entry.result)
    }
    assert failed == {item.phase for item in verdict.divergences}
    assert suite.failures == len(failed)
    assert suite.errors == 0
    assert suite.tests == len(found) == 1 + 2 + len(verdict.phases)
    for item in verdict.consequences:
        (result,) = found[f"phase {item.phase}"].result
        assert isinstance(result, Skipped)
        assert "consequence" in result.message


def test_a_failure_says_both_values_rule_clause_and_hint():
    verdict = mask().verdict
    (failure,) = cases(verdict)[0]["phase mask"].result
    first = verdict.first
    assert failure.type == first.clause
    for part in (first.a, first.b, first.rule, first.hint):
        assert part in failure.text


@pytest.mark.parametrize("name", ["ERROR", "INCONCLUSIVE"])
def test_what_was_not_judged_is_never_green(name):
    verdict = replace(agree().verdict, verdict=name, reasons=("too few steps",))
    found, suite = cases(verdict)
    (result,) = found["the run was judged"].result
    assert isinstance(result, Error)
    assert result.text == "too few steps"
    assert (suite.errors, suite.failures) == (1, 0)


def test_a_leg_that_failed_is_an_error_of_its_own():
    verdict = agree().verdict
    legs = (replace(verdict.legs[0], error="was killed by SIGKILL after step 3"), verdict.legs[1])
    found, _ = cases(replace(verdict, legs=legs))
    (result,) = found[f"leg {legs[0].name} ended well"].result
    assert result.message == "was killed by SIGKILL after step 3"


def test_characters_that_xml_cannot_hold_do_not_break_it():
    verdict = mask().verdict
    first = replace(verdict.first, hint="nul \0, escape \x1b, lone \ud800, ]]> & <b>")
    shown = render(replace(verdict, first=first, divergences=(first,)))
    text = ElementTree.fromstring(shown).find(".//failure").text  # type: ignore[union-attr]
    assert "]]> & <b>" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("name", SCENES)
def test_no_text_and_no_ordinary_id_is_written(name):
    shown = render(SCENES[name]().verdict)
    assert CANARY not in shown
    assert not [i for i in IDS if i > 200 and str(i) in shown]


# What the schema of Jenkins' xUnit plug-in (junit-10.xsd, public) lets each element have; the
# plug-in refuses a report with anything else.
ALLOWED = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "time", "skipped", "timestamp"},
        {"properties", "testcase"},
    ),
    "properties": (set(), {"property"}),
    "property": ({"name", "value"}, set()),
    "testcase": ({"name", "time", "classname"}, {"skipped", "error", "failure", "system-out"}),
    "skipped": ({"type", "message"}, set()),
    "error": ({"type", "message"}, set()),
    "failure": ({"type", "message"}, set()),
    "system-out": (set(), set()),
}


@pytest.mark.parametrize("verdict", ["AGREE", "DIVERGED", "ERROR", "INCONCLUSIVE"])
def test_jenkins_finds_nothing_that_it_does_not_know(verdict):
    scene = mask() if verdict == "DIVERGED" else agree()
    root = ElementTree.fromstring(render(replace(scene.verdict, verdict=verdict, reasons=("no",))))
    for element in root.iter():
        attributes, children = ALLOWED[element.tag]
        assert set(element.attrib) <= attributes
        assert {child.tag for child in element} <= children
