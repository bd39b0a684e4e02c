"""The page as a person meets it, in runs that agree and that part in text, ids, mask, numbers."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from tests.browser.conftest import chromium, values
from tests.unit_report.scenes import CANARY, CANARY_ID, EXAMPLE, SCENES, agree, loss, mask, text

DIVERGED = [name for name in SCENES if name != "agree"]


@pytest.mark.parametrize("name", SCENES)
def test_the_page_is_quiet_alone_and_fits(name, open_page):
    opened = open_page(SCENES[name]())
    assert opened.requests == [opened.path.as_uri()]
    assert opened.complaints == []
    page = opened.page
    assert page.locator("h1").inner_text() == SCENES[name]().verdict.headline
    assert page.evaluate("document.documentElement.scrollWidth") == 1280
    assert CANARY not in page.content()
    assert str(CANARY_ID)[:4] not in page.locator("body").inner_text()


@pytest.mark.parametrize("name", DIVERGED)
def test_the_first_phase_to_part_is_lit_and_chosen(name, open_page):
    page = open_page(SCENES[name]()).page
    lit = page.locator(".strip .lit")
    assert lit.count() == 1
    assert lit.get_attribute("data-phase") == name
    assert lit.get_attribute("aria-current") == "true"
    assert "first to part" in lit.get_attribute("aria-label")
    assert page.locator(f"#about-{name}").is_visible()
    after = page.locator('.strip a[data-phase="update"]')
    grey = "consequence" if name in ("text", "ids", "mask") else "not_judged"
    assert grey in after.get_attribute("class")
    hatched = after.evaluate("node => getComputedStyle(node).backgroundImage")
    assert ("repeating-linear-gradient" in hatched) == (grey == "not_judged")


def test_an_agreement_has_nothing_lit_and_its_figures(open_page):
    page = open_page(agree()).page
    assert page.locator(".lit").count() == 0
    assert page.locator(".badge").inner_text() == "AGREE"
    assert "1,038" in page.locator(".figures").inner_text()
    assert page.locator("#divergences").count() == 0


def test_a_divergence_says_both_values_rule_clause_hint_and_next_command(open_page):
    page = open_page(mask()).page
    shown = page.locator("header").inner_text()
    for part in ("target", "ignored", "token 37", "mask is exact", "S-06 Mask", "shifted by three"):
        assert part in shown
    assert "oracle show 83fe --step 12 --phase mask" in shown
    assert "<script>alert(1)</script>" in shown


@pytest.mark.parametrize("step", [0, 12, 57, 119])
def test_the_values_at_the_cursor_are_those_of_the_trace_to_the_last_bit(step, open_page):
    scene = loss()
    page = open_page(scene, query=f"?step={step}").page
    for field in ("loss", "grad_norm", "lr", "clip_factor", "param_norm"):
        a, b = values(page, field)
        assert (a, b) == (repr(scene.a.steps[field][step]), repr(scene.b.steps[field][step]))
    assert values(page, "num_targets")[0] == str(scene.a.steps["num_targets"][step])
    panel = page.locator('.panel[data-field="loss"]')
    assert panel.locator(".readout .a b").inner_text() == repr(scene.a.steps["loss"][step])
    spoken = panel.locator(".plot").get_attribute("aria-valuetext")
    assert spoken.startswith(f"step {step}: torch {scene.a.steps['loss'][step]!r}, jax ")


def test_a_divergence_opens_at_its_step_with_the_broken_rule_in_the_table(open_page):
    page = open_page(loss()).page
    assert page.locator("#at").inner_text() == "12"
    row = page.locator("#rows tr[data-field=loss]")
    assert row.get_attribute("class") == "over"
    assert "10 x floor" in row.locator(".rule").inner_text()
    assert row.locator(".relative").inner_text() == "0.0099"


def test_the_tolerance_band_is_drawn_and_read_out_when_a_floor_gives_one(open_page, tmp_path):
    page = open_page(agree(folder=tmp_path)).page
    loss_panel = page.locator('.panel[data-field="loss"]')
    assert loss_panel.locator("path.allowed").get_attribute("d").count("L") > 100
    assert loss_panel.locator(".readout .allowed b").inner_text() == "5.25e-14"
    assert page.locator(".dots.over").count() == 0
    page = open_page(loss(tmp_path)).page
    over = page.locator('.panel[data-field="loss"] .dots.over').get_attribute("d")
    assert over.count("M") == 108


def test_differences_only_hides_and_shows_equal_facts(open_page):
    scene = mask()
    scene.b.header["facts"]["seed"] = 18
    page = open_page(scene).page
    visible = page.locator("#echo-table tbody tr:visible")
    assert [row.split() for row in visible.all_inner_texts()] == [["seed", "differs", "17", "18"]]
    assert "1 differ" in page.locator("#echo-title").inner_text()
    page.locator('[data-table="echo"]').uncheck()
    assert visible.count() > 30


def test_masked_tokens_show_positions_and_control_names_alone(open_page):
    page = open_page(mask()).page
    parted = page.locator(".tokens li.differs")
    assert parted.count() == 3
    assert parted.locator(".position").all_inner_texts() == ["37", "38", "39"]
    names = set(page.locator(".tokens .what").all_inner_texts())
    assert names == {"", "<|im_start|>", "<|im_end|>"}
    assert EXAMPLE in page.locator(".example h3").inner_text()


def test_a_reveal_shows_ids_and_visible_white_space(open_page):
    page = open_page(text(), reveal=True).page
    assert page.locator(".text pre.b mark").first.inner_text() == "⏎→"
    assert "It·is·rare." in page.locator(".text pre.a").inner_text()
    assert str(CANARY_ID + 98) in page.locator(".tokens").inner_text()
    assert page.locator("b", has_text="alert").count() == 0


def test_values_that_are_not_finite_are_named_and_break_the_curve(open_page):
    scene = agree()
    late = pl.when(pl.col("step") > 60).then(float("nan")).otherwise(pl.col("loss")).alias("loss")
    scene = replace(scene, b=replace(scene.b, steps=scene.b.steps.with_columns(late)))
    opened = open_page(scene, query="?step=61")
    assert values(opened.page, "loss")[1] == "NaN"
    assert opened.page.locator('.panel[data-field="loss"] .broken.b').text_content() == "NaN"
    assert opened.complaints == []


def test_a_leg_that_stopped_early_is_absent_from_there_on(open_page):
    scene = agree()
    scene = replace(scene, b=replace(scene.b, steps=scene.b.steps.head(100)))
    opened = open_page(scene, query="?step=110")
    assert values(opened.page, "loss")[1] == "absent"
    assert values(opened.page, "num_tokens")[1] == "absent"
    assert opened.complaints == []


def test_curves_that_part_in_the_last_place_alone_have_an_axis(open_page):
    scene = agree()
    flat = scene.a.steps.with_columns(lr=pl.lit(3e-4))
    a = replace(scene.a, steps=flat)
    b = replace(scene.b, steps=flat.with_columns(lr=pl.lit(float(np.nextafter(3e-4, 1)))))
    opened = open_page(replace(scene, a=a, b=b), query="?view=7-7")
    ticks = opened.page.locator('.panel[data-field="lr"] .tick.end').all_text_contents()
    assert {"2.9998e-4", "3.0000e-4", "3.0002e-4"} <= set(ticks)
    assert len(set(ticks)) == len(ticks)
    assert opened.complaints == []


def test_injected_script_is_not_run(open_page):
    """The policy is what stops it: the page itself never builds markup from strings."""
    opened = open_page(mask())
    opened.page.evaluate(
        """() => { const s = document.createElement('script'); s.textContent = 'window.bad = 1';
        document.body.append(s); }"""
    )
    assert opened.page.evaluate("window.bad") is None
    assert any("Content Security Policy" in text for text in opened.complaints)


def test_a_network_request_is_seen_and_refused(open_page):
    opened = open_page(mask())
    failed = opened.page.evaluate("fetch('https://example.org/').then(() => false, () => true)")
    assert failed
    assert any("Content Security Policy" in text for text in opened.complaints)


def test_the_value_closest_to_its_limit_leads_to_its_step(open_page, tmp_path):
    scene = agree(folder=tmp_path)
    page = open_page(scene).page
    shown = page.locator("#closest").inner_text()
    page.locator("#closest a").click()
    step = int(page.locator("#at").inner_text())
    assert f"step {step}" in shown
    # Worked out anew from the two columns and the rule: 10 times the floor of `scenes.floor_of`.
    rooms = []
    for field, size in (("loss", 6e-15), ("grad_norm", 9e-15), ("param_norm", 8e-15)):
        a, b = (t.steps[field].to_numpy() for t in (scene.a, scene.b))
        places = np.unique(np.geomspace(1, 119, 25).astype(int))
        latest = places[np.searchsorted(places, np.arange(1, 120), side="right") - 1]
        allowed = 10 * np.maximum(
            4e-16 + size * latest / 120, 8 * np.spacing(np.maximum(a, b))[1:] / np.maximum(a, b)[1:]
        )
        rooms.append(np.min(allowed / np.maximum(np.abs(a - b) / np.maximum(a, b), 1e-300)[1:]))
    assert float(shown.split("\n")[-1].split(" ×")[0]) == pytest.approx(min(rooms), abs=0.1)


def test_without_chromium_the_tests_fail_with_the_remedy(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(pytest.fail.Exception, match="apt-get install -y chromium"):
        chromium()
