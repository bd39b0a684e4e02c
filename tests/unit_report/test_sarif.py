"""SARIF as another program reads it (sarif-pydantic), at the right lines of the right files."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sarif_pydantic import Sarif

from oracle.contract import ROOT
from oracle.report.sarif import KEYS, render

from .scenes import CANARY, IDS, SCENES, agree, loss, mask, text

CONFIG = ROOT / "configs" / "runs" / "clinical-demo.toml"


def run_of(verdict, config=CONFIG):
    document = render(verdict, config)
    (run,) = Sarif.model_validate_json(document).runs
    return run, json.loads(document)["runs"][0]


def line_at(location):
    place = location["physicalLocation"]
    path = ROOT / place["artifactLocation"]["uri"]
    return path, path.read_text("utf-8").splitlines()[place["region"]["startLine"] - 1]


@pytest.mark.parametrize("name", SCENES)
def test_each_independent_divergence_is_a_result_of_the_rule_of_its_phase(name):
    verdict = SCENES[name]().verdict
    run, plain = run_of(verdict)
    rules = [rule.id for rule in run.tool.driver.rules]
    found = [(result.rule_id, rules[plain["results"][k]["ruleIndex"]])
             for k, result in enumerate(run.results or [])]  # fmt: skip
    assert found == [(item.phase, item.phase) for item in verdict.divergences]


def test_a_template_fault_is_shown_at_the_template_of_the_config_and_at_its_clause():
    verdict = text().verdict
    result = run_of(verdict)[1]["results"][0]
    path, line = line_at(result["locations"][0])
    assert path == CONFIG
    assert line.startswith("template = ")
    path, line = line_at(result["relatedLocations"][0])
    assert path.name == "SPEC.md"
    assert line.startswith(f"## {verdict.first.clause} ")


@pytest.mark.parametrize("phase", KEYS)
def test_every_phase_has_a_line_in_a_real_config(phase):
    first = replace(loss().verdict.first, phase=phase)
    result = run_of(replace(loss().verdict, first=first, divergences=(first,)))[1]["results"][0]
    _, line = line_at(result["locations"][0])
    assert line.split(" = ")[0] == KEYS[phase].rpartition(".")[2]


def test_a_fingerprint_is_of_the_divergence_and_not_of_its_numbers():
    verdict = loss().verdict
    first = verdict.first
    other = replace(first, a="2.5", b="2.6", step=99, relative=0.5, absolute=0.1)
    elsewhere = replace(first, field="steps.grad_norm")
    prints = [
        run_of(replace(verdict, first=one, divergences=(one,)))[1]["results"][0][
            "partialFingerprints"
        ]
        for one in (first, other, elsewhere)
    ]
    assert prints[0] == prints[1] != prints[2]


def test_agreement_has_no_result_and_what_was_not_judged_has_one():
    assert run_of(agree().verdict)[1]["results"] == []
    verdict = replace(agree().verdict, verdict="INCONCLUSIVE", reasons=("too few steps",))
    run, plain = run_of(verdict)
    assert [result.rule_id for result in run.results] == ["judged"]
    assert plain["results"][0]["message"]["text"] == "INCONCLUSIVE: too few steps"
    assert plain["invocations"] == [
        {"executionSuccessful": False, "exitCode": 3, "exitCodeDescription": "INCONCLUSIVE"}
    ]


def test_a_config_outside_the_repository_leaves_the_contract_as_the_place():
    result = run_of(mask().verdict, None)[1]["results"][0]
    path, _ = line_at(result["locations"][0])
    assert path.name == "SPEC.md"


@pytest.mark.parametrize("name", SCENES)
def test_no_text_and_no_ordinary_id_is_written(name):
    shown = render(SCENES[name]().verdict, CONFIG)
    assert CANARY not in shown
    assert not [i for i in IDS if i > 200 and str(i) in shown]


def test_every_rule_has_the_help_that_code_scanning_demands_with_the_title_of_its_clause():
    _, plain = run_of(agree().verdict)
    rules = {rule["id"]: rule["help"]["text"] for rule in plain["tool"]["driver"]["rules"]}
    assert "Clause S-06 Mask of configs/contract/SPEC.md decides" in rules["mask"]
    assert all(rules.values())
