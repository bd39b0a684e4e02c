"""The page as a person meets it, in runs that agree and that part in text, ids, mask, numbers."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from tests.browser.conftest import chromium
from tests.unit_report.scenes import CANARY, CANARY_ID, EXAMPLE, SCENES, agree, loss, mask, text

DIVERGED = [name for name in SCENES if name != "agree"]


def values(page, field):
    """Both legs' cells of a field in the table at the step."""
    row = page.locator(f"#rows tr[data-field={field}]")
    return row.locator(".a").inner_text(), row.locator(".b").inner_text()


def announced(page):
    return page.locator("#said").inner_text()


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
    shown = page.locator("#first").inner_text()
    for part in ("target", "ignored", "token 37", "mask is exact", "S-06", "shifted by three"):
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


def test_arrow_keys_move_one_cursor_in_all_charts_and_the_address_follows(open_page):
    scene = mask()
    page = open_page(scene).page
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert page.locator("#at").inner_text() == "23"
    assert page.url.endswith("?step=23&phase=mask")
    now = page.locator(".plot").evaluate_all("ps => ps.map(p => p.getAttribute('aria-valuenow'))")
    assert now == ["23", "23", "23"]
    lines = page.locator(".cursor path").evaluate_all("ps => ps.map(p => p.getBBox().x)")
    assert len(lines) == 3
    assert lines[1] == lines[2]
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    assert values(page, "loss")[1] == repr(scene.b.steps["loss"][119])
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#at").inner_text() == "0"


def test_keys_in_the_step_box_type_and_do_not_jump(open_page):
    page = open_page(mask()).page
    page.locator("#step").fill("77")
    page.keyboard.press("n")
    assert page.locator("#at").inner_text() == "77"
    assert page.url.endswith("?step=77&phase=mask")


def test_the_pointer_moves_the_cursor_to_the_step_under_it(open_page):
    page = open_page(agree()).page
    plot = page.locator('.panel[data-field="lr"] .plot')
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    left, right = box["x"] + 62, box["x"] + box["width"] - 12
    page.mouse.move(left + (right - left) * 60 / 119, box["y"] + 40)
    assert page.locator("#at").inner_text() == "60"
    page.mouse.move(right, box["y"] + 40)
    assert page.locator("#at").inner_text() == "119"


def test_a_deep_link_opens_its_step_and_phase(open_page):
    page = open_page(mask(), query="?step=40&phase=lr").page
    assert page.locator("#at").inner_text() == "40"
    assert page.locator("[aria-current]").get_attribute("data-phase") == "lr"
    assert page.locator("li.current").get_attribute("data-divergence") == "d9"
    assert page.url.endswith("?step=40&phase=lr")


@pytest.mark.parametrize("query", ["?step=99999&phase=nonsense", "?step=-1", "?step=<b>&phase=%22"])
def test_a_bad_deep_link_is_met_with_a_step_that_exists(query, open_page):
    opened = open_page(mask(), query=query)
    assert opened.complaints == []
    assert opened.page.locator("#at").inner_text() in ("12", "119")
    assert opened.page.locator("[aria-current]").get_attribute("data-phase") == "mask"


def test_n_and_p_jump_between_divergences(open_page):
    page = open_page(mask()).page
    page.keyboard.press("n")
    assert page.url.endswith("?step=40&phase=lr")
    assert announced(page) == "Divergence 2 of 2, lr: step 40"
    page.keyboard.press("n")
    assert announced(page).startswith("Divergence 2 of 2")
    page.keyboard.press("p")
    assert page.url.endswith("?step=12&phase=mask")
    assert announced(page).startswith("Divergence 1 of 2, mask: step 12 · example ex0041")
    page.locator("#next").click()
    assert page.locator("#at").inner_text() == "40"


def test_a_mouse_that_rests_on_a_chart_does_not_undo_a_key(open_page):
    page = open_page(mask()).page
    plot = page.locator('.panel[data-field="loss"] .plot')
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 500, box["y"] + 60)
    page.keyboard.press("n")
    assert page.locator("#at").inner_text() == "40"
    page.mouse.move(box["x"] + 500, box["y"] + 90)
    assert page.locator("#at").inner_text() == "40"


def test_a_phase_of_the_strip_is_a_link_that_chooses_it(open_page):
    page = open_page(mask()).page
    page.locator('.strip a[data-phase="lr"]').click()
    assert page.url.endswith("?step=40&phase=lr")
    assert page.locator("#about-lr").is_visible()
    assert not page.locator("#about-mask").is_visible()


def test_zoom_keeps_the_cursor_in_view_and_every_point_is_traced(open_page):
    scene = mask()
    page = open_page(scene).page
    for _ in range(3):
        page.keyboard.press("+")
    ticks = page.locator('.panel[data-field="loss"] .tick.middle').all_text_contents()
    assert max(int(t) for t in ticks) < 40
    assert page.locator('.panel[data-field="loss"] .cursor path').count() == 1
    page.keyboard.press("End")
    assert page.locator('.panel[data-field="loss"] .cursor path').count() == 1
    page.keyboard.press("0")
    ticks = page.locator('.panel[data-field="loss"] .tick.middle').all_text_contents()
    assert ticks == ["0", "20", "40", "60", "80", "100"]


def test_a_spike_of_one_step_among_ten_thousand_is_drawn(open_page):
    scene = agree(10_000)
    import polars as pl

    spike = pl.when(pl.col("step") == 6_543).then(50.0).otherwise(pl.col("loss"))
    scene = replace(
        scene, b=replace(scene.b, steps=scene.b.steps.with_columns(spike.alias("loss")))
    )
    opened = open_page(scene, query="?step=6543")
    assert opened.path.stat().st_size < 1_000_000
    top = opened.page.evaluate(
        """() => { const c = charts[0]; const d = c.svg.querySelector('.curve.b').getAttribute('d');
        const ys = d.match(/[ML][\\d.]+ [\\d.]+/g).map(p => Number(p.split(' ')[1]));
        return [Math.min(...ys), c.yValue(50)]; }"""
    )
    assert top[0] == pytest.approx(top[1], abs=0.06)
    assert values(opened.page, "loss")[1] == "50.0"


def test_the_tolerance_band_is_drawn_and_read_out_when_a_floor_gives_one(open_page, tmp_path):
    page = open_page(agree(folder=tmp_path)).page
    loss_panel = page.locator('.panel[data-field="loss"]')
    assert loss_panel.locator("path.allowed").get_attribute("d").count("L") > 100
    assert loss_panel.locator(".readout .allowed b").inner_text() == "5.25e-14"
    assert page.locator(".dot.over").count() == 0
    page = open_page(loss(tmp_path)).page
    assert page.locator('.panel[data-field="loss"] .dot.over').count() >= 108


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", SCENES)
def test_a_phone_has_no_sideways_scroll(name, dark, open_page):
    opened = open_page(SCENES[name](), width=390, dark=dark)
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 390
    assert opened.complaints == []


CONTRAST = """() => {
  const parse = (c) => c.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
  const behind = (node) => {
    for (let n = node; n; n = n.parentElement) {
      const color = parse(getComputedStyle(n).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const worst = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim();
    if (!text || !node.checkVisibility() || node.closest("script, .heard")) continue;
    const style = getComputedStyle(node);
    const ink = node.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const [a, b] = [light(parse(ink)), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) worst.push(`${ratio.toFixed(2)} ${text.slice(0, 30)}`);
  }
  return worst;
}"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["agree", "mask", "loss"])
def test_every_text_has_contrast_in_both_schemes(name, dark, open_page):
    page = open_page(SCENES[name](), dark=dark).page
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(20, 23, 26)") == dark
    assert page.evaluate(CONTRAST) == []


def test_the_contrast_test_can_fail(open_page):
    page = open_page(mask()).page
    page.locator("h1").evaluate("node => { node.style.color = '#dddddd'; }")
    assert len(page.evaluate(CONTRAST)) == 1


def test_landmarks_headings_and_names_for_screen_readers(open_page):
    page = open_page(mask()).page
    for landmark in ("banner", "main", "contentinfo"):
        assert page.get_by_role(landmark).count() == 1
    assert page.get_by_role("heading", level=1).count() == 1
    for name in ("Phases of a step, in causal order", "Curves", "Provenance"):
        assert page.get_by_role("region", name=name).count() >= 1
    assert page.get_by_role("slider", name="Loss: step cursor").count() == 1
    assert page.get_by_role("spinbutton", name="step").count() == 1
    assert page.get_by_role("button", name="next divergence").count() == 1
    assert page.get_by_role("checkbox", name="differences only").count() == 2
    link = page.get_by_role(
        "link", name="mask: diverged, first to part, 1,035 of 1,038 examples agree"
    )
    assert link.count() == 1
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('button, a, input, [role=slider], [tabindex]')]
        .filter((n) => !(n.innerText?.trim() || n.ariaLabel || n.labels?.length
          || n.getAttribute('aria-labelledby'))).map((n) => n.outerHTML)"""
    )
    assert unnamed == []
    assert page.locator("html").get_attribute("lang") == "en"


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
    assert names == {"•", "<|im_start|>", "<|im_end|>"}
    assert EXAMPLE in page.locator(".example h3").inner_text()


def test_a_reveal_shows_ids_and_visible_white_space(open_page):
    page = open_page(text(), reveal=True).page
    assert page.locator(".text pre.b mark").first.inner_text() == "⏎→"
    assert "It·is·rare." in page.locator(".text pre.a").inner_text()
    assert str(CANARY_ID + 98) in page.locator(".tokens").inner_text()
    assert page.locator("b", has_text="alert").count() == 0


def test_values_that_are_not_finite_are_named_and_break_the_curve(open_page):
    import polars as pl

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


def test_without_chromium_the_tests_fail_with_the_remedy(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(pytest.fail.Exception, match="apt-get install -y chromium"):
        chromium()
