"""Ten thousand steps: one file under a megabyte in which no step is lost."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from tests.browser.conftest import values
from tests.unit_report.scenes import agree

COLUMNS = ("loss", "grad_norm", "lr", "clip_factor", "param_norm", "num_tokens", "num_targets")


def chaotic(scene):
    """Legs that part everywhere, in every bit: what compresses worst in a real run."""
    random = np.random.default_rng(0)
    names = ("loss", "grad_norm", "param_norm")
    steps = scene.b.steps.with_columns(
        **{n: scene.b.steps[n] * (1 + 1e-3 * random.standard_normal(10_000)) for n in names}
    ).with_columns(clip_factor=1 / (1 + 1e-6 + random.random(10_000)))
    return replace(scene, b=replace(scene.b, steps=steps))


def test_a_spike_of_one_step_among_ten_thousand_is_drawn(open_page):
    scene = agree(10_000)
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


def test_every_value_of_ten_thousand_chaotic_steps_is_on_the_page_in_every_bit(open_page, tmp_path):
    scene = chaotic(agree(10_000, tmp_path))
    opened = open_page(scene, query="?step=7777")
    assert opened.path.stat().st_size < 1_000_000
    assert opened.requests == [opened.path.as_uri() + "?step=7777"]
    for leg, trace in (("a", scene.a), ("b", scene.b)):
        for name in COLUMNS:
            held = opened.page.evaluate(f"Array.from(columns.get('{name}.{leg}'))")
            assert held == trace.steps[name].to_list()
    for step in (0, 1, 4_999, 7_777, 9_999):
        opened.page.evaluate(f"goToStep({step})")
        for name in ("loss", "grad_norm", "lr", "clip_factor", "param_norm"):
            shown = values(opened.page, name)
            assert shown == (repr(scene.a.steps[name][step]), repr(scene.b.steps[name][step]))
    assert opened.complaints == []


def test_a_zoom_into_ten_thousand_steps_draws_every_step_of_it(open_page):
    scene = agree(10_000)
    page = open_page(scene, query="?step=5005&view=5000-5020").page
    d = page.locator('.panel[data-field="loss"] .curve.b').get_attribute("d")
    assert d.count("M") + d.count("L") == 21
    heights = [float(place.split(" ")[1]) for place in d.replace("M", "L").split("L")[1:]]
    wanted = page.evaluate(
        "vs => vs.map((v) => charts[0].yValue(v))", scene.b.steps["loss"][5000:5021].to_list()
    )
    assert heights == pytest.approx(wanted, abs=0.06)


def test_whole_run_drawings_keep_the_extremes_of_every_pixel(open_page):
    scene = agree(10_000)
    page = open_page(scene).page
    d, width = page.evaluate(
        "[charts[0].svg.querySelector('.curve.a').getAttribute('d'), Math.ceil(charts[0].width)]"
    )
    drawn = [float(place.split(" ")[1]) for place in d.replace("M", "L").split("L")[1:]]
    assert len(drawn) <= 4 * width
    values_of = scene.a.steps["loss"].to_numpy()
    edges = [p * 10_000 // width for p in range(width + 1)]
    extremes = [one(values_of[lo:hi]) for lo, hi in pairwise(edges) for one in (min, max)]
    wanted = page.evaluate("vs => vs.map((v) => charts[0].yValue(v))", extremes)
    gaps = [np.min(np.abs(np.array(drawn) - y)) for y in wanted]
    assert max(gaps) < 0.06


def test_an_old_browser_is_told_why_there_are_no_curves_and_keeps_the_rest(open_page):
    opened = open_page(agree(), before="delete window.DecompressionStream;")
    page = opened.page
    assert "older than 2023" in page.locator("#said").inner_text()
    assert not page.locator(".panels").is_visible()
    assert not page.locator("#values").is_visible()
    page.locator('.strip a[data-phase="loss"]').click()
    assert page.locator("#about-loss").is_visible()
    page.locator('[data-table="echo"]').uncheck()
    assert page.locator("#echo-table tbody tr:visible").count() > 30
    assert opened.complaints == []
