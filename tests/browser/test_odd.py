"""Runs that no chart was made for: each is drawn, each value can be read, nothing complains."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from tests.browser.conftest import values
from tests.unit_report.scenes import agree

NUMBERS = ("loss", "grad_norm", "lr", "clip_factor", "param_norm")


def with_steps(change_a, change_b=None):
    """An agreeing scene whose legs' steps are changed."""
    scene = agree()
    a = replace(scene.a, steps=change_a(scene.a.steps))
    b = replace(scene.b, steps=(change_b or change_a)(scene.b.steps))
    return replace(scene, a=a, b=b)


def every(value):
    return lambda steps: steps.with_columns(pl.lit(value).alias(name) for name in NUMBERS)


ODD = {
    "one step": with_steps(lambda steps: steps.head(1)),
    "two steps": with_steps(lambda steps: steps.head(2)),
    "no step in common": with_steps(lambda steps: steps.head(3), lambda steps: steps.tail(3)),
    "one leg stopped at once": with_steps(lambda steps: steps, lambda steps: steps.head(1)),
    "steps with gaps, far from 0": with_steps(
        lambda steps: steps.with_columns(step=pl.col("step") * 977 + 2**31)
    ),
    "nothing but NaN": with_steps(every(float("nan"))),
    "infinite in one leg": with_steps(every(float("inf")), every(1.0)),
    "nothing but 0": with_steps(every(0.0)),
    "negative": with_steps(every(-3.5), every(-3.25)),
    "at the ends of float64": with_steps(every(1.7e308), every(5e-324)),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_run_is_drawn_and_can_be_moved_in(name, open_page):
    scene = ODD[name]
    opened = open_page(scene)
    page = opened.page
    for key in ("Home", "End", "+", "ArrowLeft", "+", "-", "0", "Home"):
        page.keyboard.press(key)
    for field in NUMBERS:
        for leg, shown in zip((scene.a, scene.b), values(page, field), strict=True):
            first = page.locator("#at").inner_text()
            rows = leg.steps.filter(pl.col("step") == int(first))[field].to_list()
            assert shown == (repr(rows[0]) if rows else "absent").replace("nan", "NaN").replace(
                "inf", "Infinity"
            )
    drawn = page.evaluate("[...document.querySelectorAll('svg [d]')].map(n => n.getAttribute('d'))")
    assert [d for d in drawn if "NaN" in d or "Infinity" in d or "undefined" in d] == []
    ticks = page.locator("svg text.tick").all_text_contents()
    assert [tick for tick in ticks if "NaN" in tick or "undefined" in tick] == []
    assert opened.complaints == []


def test_long_names_fit_a_phone(open_page):
    scene = agree()
    names = ("PyTorch-with-a-name-of-many-words-" * 3, "日本語の名前" * 12)
    legs = tuple(
        replace(leg, name=name) for leg, name in zip(scene.verdict.legs, names, strict=True)
    )
    opened = open_page(replace(scene, verdict=replace(scene.verdict, legs=legs)), width=390)
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 390
    assert opened.complaints == []


def test_a_finger_moves_the_cursor_and_does_not_select(browser, open_page):
    path = open_page(agree()).path
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready=true]")
    plot = page.locator('.panel[data-field="loss"] .plot')
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    left, right = box["x"] + 62, box["x"] + box["width"] - 12
    page.touchscreen.tap(left + (right - left) * 40 / 119, box["y"] + 60)
    assert page.locator("#at").inner_text() == "40"
    assert page.evaluate("state.to - state.from") == 119
    context.close()
