"""What a reviewer sees of verdicts that `judge` gave: traces from disk, one fault each."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from playwright.sync_api import expect

from oracle.report.html import render
from oracle.verdict import judge
from tests.browser.test_access import violations
from tests.unit_oracle_judge.conftest import floor_of, pair
from tests.unit_oracle_judge.synthetic import NAMES, read
from tests.unit_report.scenes import Scene

STEP = 2
TENSOR = "model.layers.2.mlp.up_proj.weight"


@dataclass(frozen=True)
class Fault:
    """What is planted in the second leg, and the words by which a reviewer meets it."""

    phase: str
    seen: tuple[str, ...]
    grey: tuple[str, ...] = ()


FAULTS = {
    "text": Fault("text", ("clause S-03", "characters"), ()),
    "ids": Fault("ids", ("clause S-05",), ()),
    "mask": Fault("mask", ("clause S-06", "target", "ignored"), ()),
    "loss": Fault("loss", (f"step {STEP}", "clause S-14", "10 x floor"), ("grad",)),
    "grad_norm": Fault("grad_norm", (f"step {STEP}", "clause S-15"), ("update",)),
    "order": Fault("order", (f"step {STEP}", "clause S-08"), ()),
    "lr": Fault("lr", (f"step {STEP}", "clause S-17"), ()),
}


def plant(made, what):
    """Change one leg as a fault of that phase would."""
    row = next(r for r in made["tokens"] if r["id"] == made["steps"][STEP]["examples"][0])
    step = made["steps"][STEP]
    if what == "text":
        row["text"] = row["text"].replace("why?", "why ?")
    elif what == "ids":
        row["ids"][3] += 1
    elif what == "mask":
        row["mask"][row["mask"].index(1)] = 0
    elif what == "order":
        step["examples"][0], step["examples"][1] = step["examples"][1], step["examples"][0]
    elif what == "lr":
        step["lr"] *= 1.5
    elif what == "grad":
        for row in made["tensors"]:
            if (row["kind"], row["step"], row["name"]) == ("grad", 4, TENSOR):
                row["sketch"] = [2 * bucket for bucket in row["sketch"]]
                row["norm"] *= 2
    elif what in ("loss", "grad_norm"):
        for later in made["steps"][STEP:]:
            later[what] *= 1.01


@pytest.fixture
def judged(tmp_path):
    """Judge a pair with something planted in the second leg."""

    def make(what=None):
        a, b = pair()
        plant(b, what)
        left, right = read(tmp_path / "a", a), read(tmp_path / "b", b)
        floor = floor_of(tmp_path, left, right, 1e-16)
        verdict = judge(
            left, right, purpose="cross", names=NAMES, tolerances=None, floor=floor, run="run-83fe"
        )
        return Scene(verdict=verdict, a=left, b=right)

    return make


def test_a_run_that_agrees_is_green_from_the_first_line_to_the_last(judged, open_page):
    opened = open_page(judged())
    page = opened.page
    assert page.locator(".badge").inner_text() == "AGREE"
    expect(page.locator("h1")).to_have_text(re.compile("^torch and jax agree on 8 steps"))
    assert page.locator(".strip .diverged, .strip .consequence, .strip .not_judged").count() == 0
    assert page.locator(".strip .agree").count() == 16  # all but forward
    assert page.locator("#map path.parted").count() == 0
    assert page.locator("#rows tr.over").count() == 0
    assert "all equal" in page.locator("#closest").inner_text()
    assert page.locator("#tokens").count() == 0
    assert opened.complaints == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_lit_and_shown_where_it_is(name, judged, open_page):
    fault = FAULTS[name]
    scene = judged(name)
    opened = open_page(scene)
    page = opened.page
    assert page.locator(".badge").inner_text() == "DIVERGED"
    assert page.locator("h1").inner_text().startswith(f"torch and jax part in {fault.phase} at ")
    header = page.locator("header").inner_text()
    assert [word for word in fault.seen if word not in header] == []
    assert f"--phase {fault.phase}" in header
    lit = page.locator(".strip .lit")
    assert lit.get_attribute("data-phase") == fault.phase
    before = lit.evaluate(
        "n => [...document.querySelectorAll('.strip a')].slice(0, [...document.querySelectorAll("
        "'.strip a')].indexOf(n)).filter(a => a.className.includes('diverged')).length"
    )
    assert before == 0
    for phase in fault.grey:
        cell = page.locator(f'.strip a[data-phase="{phase}"]')
        assert re.search("consequence|not_judged", cell.get_attribute("class"))
    assert page.locator("#at").inner_text() == str(scene.verdict.first.step)
    assert opened.requests == [opened.path.as_uri()]
    assert opened.complaints == []


@pytest.mark.parametrize("name", ["text", "ids", "mask"])
def test_a_fault_of_examples_shows_its_tokens_before_the_curves(name, judged, open_page):
    scene = judged(name)
    page = open_page(scene).page
    top = page.locator("#tokens").bounding_box()["y"]
    assert top < page.locator("#charts").bounding_box()["y"]
    first = page.locator(".example").first
    assert scene.verdict.first.example in first.inner_text()
    assert "current" in first.get_attribute("class")
    if name == "text":
        assert "only in jax" in first.inner_text()
    else:
        parted = first.locator("li.differs .position").all_inner_texts()
        assert parted == [str(scene.verdict.first.position)]


@pytest.mark.parametrize("name", ["loss", "grad_norm", "lr"])
def test_a_fault_of_numbers_shows_its_curve_and_its_row(name, judged, open_page):
    scene = judged(name)
    page = open_page(scene).page
    row = page.locator(f'#rows tr[data-field="{name}"]')
    assert row.get_attribute("class") == "over"
    for leg, trace in (("a", scene.a), ("b", scene.b)):
        assert row.locator(f".{leg}").inner_text() == repr(trace.steps[name][STEP])
    panel = page.locator(f'.panel[data-field="{name}"]')
    assert panel.locator("path.first").count() == 1
    assert panel.locator(".dots.over").count() == 1
    assert panel.locator(".readout .over").count() == 1


def test_a_fault_of_one_tensor_shows_it_among_the_others(judged, open_page):
    page = open_page(judged("grad")).page
    assert (
        page.locator("h1")
        .inner_text()
        .startswith(f"torch and jax part in grad at step 4, {TENSOR}")
    )
    section = page.locator("#tensors")
    assert section.locator("h2").inner_text() == "Tensors of grad at step 4: 1 of 6 part"
    assert section.bounding_box()["y"] < page.locator("#charts").bounding_box()["y"]
    rows = section.locator("tbody tr:visible")
    assert rows.count() == 1
    assert rows.locator("th").inner_text() == TENSOR
    assert rows.locator(".relative").inner_text().strip() == "0.5"  # |x - 2x| / |2x|
    section.locator("input").uncheck()
    names = rows.locator("th").all_inner_texts()
    assert names.index("model.layers.2.mlp.up_proj.weight") < names.index(
        "model.layers.10.mlp.up_proj.weight"
    )
    assert len(names) == 6
    assert violations(page) == []


def test_an_order_that_differs_is_red_in_the_map_at_its_step(judged, open_page):
    page = open_page(judged("order")).page
    assert page.locator("#map path.parted").count() >= 1
    row = page.locator('#rows tr[data-field="examples"]')
    assert row.locator(".a").inner_text() == "differs"


def test_a_leg_without_its_trace_is_told_and_leaves_a_page(judged, tmp_path, browser):
    from oracle.verdict import error_verdict

    scene = judged()
    sentence = "the leg jax was killed by SIGKILL."
    verdict = error_verdict(
        reasons=[sentence], names=NAMES, traces=(scene.a, None), errors=(None, sentence)
    )
    path = tmp_path / "report.html"
    path.write_text(render(verdict, scene.a, None, reveal=False), "utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready=true]")
    assert page.locator(".badge").inner_text() == "ERROR"
    assert page.locator("header").inner_text().count("SIGKILL") == 2  # headline and leg
    assert "What to do" in page.locator("header").inner_text()
    assert page.locator(".figures").count() == 0
    page.locator('.strip a[data-phase="loss"]').click()
    assert page.locator("#about-loss").is_visible()
    page.close()
