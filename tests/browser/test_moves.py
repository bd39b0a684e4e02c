"""Keys, pointer, wheel and address: every way to move in a run, and that none undoes another."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import values
from tests.unit_report.scenes import agree, loss, mask

LOSS = '.panel[data-field="loss"]'


def ending(query):
    """The address follows a little after the last move, so that browsers accept it."""
    return re.compile(re.escape(query) + "$")


def announced(page):
    return page.locator("#said").inner_text()


def shown_steps(page):
    """First and last step of the view."""
    return page.evaluate("[stepOf(state.from), stepOf(state.to)]")


def until(page, expression):
    """Wait for what a wheel event does later; the page's policy forbids Playwright's own way."""
    for _ in range(500):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(20)
    pytest.fail(f"never came true: {expression}")


def dots(page, kind):
    """Pixels of the dots that the loss chart draws."""
    d = page.locator(f"{LOSS} .dots.{kind}").get_attribute("d")
    return [tuple(map(float, place.split(" "))) for place in re.findall(r"M([\d. ]+)h0", d)]


def plot_of(page, field="loss"):
    """The box of a chart, and where its first and last step lie."""
    plot = page.locator(f'.panel[data-field="{field}"] .plot')
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    return box, box["x"] + 62, box["x"] + box["width"] - 12


def test_arrow_keys_move_one_cursor_in_all_charts_and_the_address_follows(open_page):
    scene = mask()
    page = open_page(scene).page
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert page.locator("#at").inner_text() == "23"
    expect(page).to_have_url(ending("?step=23&phase=mask"))
    now = page.locator(".panel .plot").evaluate_all(
        "ps => ps.map(p => p.getAttribute('aria-valuenow'))"
    )
    assert now == ["23", "23", "23"]
    lines = page.locator(".panel .cursor path").evaluate_all("ps => ps.map(p => p.getBBox().x)")
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
    expect(page).to_have_url(ending("?step=77&phase=mask"))


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
    expect(page).to_have_url(ending("?step=40&phase=lr"))


@pytest.mark.parametrize("query", ["?step=99999&phase=nonsense", "?step=-1", "?step=<b>&phase=%22"])
def test_a_bad_deep_link_is_met_with_a_step_that_exists(query, open_page):
    opened = open_page(mask(), query=query)
    assert opened.complaints == []
    assert opened.page.locator("#at").inner_text() in ("12", "119")
    assert opened.page.locator("[aria-current]").get_attribute("data-phase") == "mask"


def test_n_and_p_jump_between_divergences(open_page):
    page = open_page(mask()).page
    page.keyboard.press("n")
    expect(page).to_have_url(ending("?step=40&phase=lr"))
    assert announced(page) == "Divergence 2 of 2, lr: step 40"
    page.keyboard.press("n")
    assert announced(page).startswith("Divergence 2 of 2")
    page.keyboard.press("p")
    expect(page).to_have_url(ending("?step=12&phase=mask"))
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
    expect(page).to_have_url(ending("?step=40&phase=lr"))
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


def test_zoom_goes_down_to_single_steps_and_draws_each_of_them(open_page):
    scene = loss()
    page = open_page(scene, query="?step=60").page
    for _ in range(12):
        page.keyboard.press("+")
    assert shown_steps(page) == [59, 61]
    for leg, trace in (("a", scene.a), ("b", scene.b)):
        places = dots(page, leg)
        assert len(places) == 3
        heights = [page.evaluate(f"charts[0].yValue({v!r})") for v in trace.steps["loss"][59:62]]
        assert [y for _, y in places] == pytest.approx(heights, abs=0.06)
    ticks = page.locator(f"{LOSS} .tick.middle").all_text_contents()
    assert ticks == ["59", "60", "61"]
    page.keyboard.press("-")
    low, high = shown_steps(page)
    assert high - low > 2


def test_a_drag_zooms_to_what_was_dragged_over_and_a_double_click_shows_all(open_page):
    page = open_page(mask()).page
    box, left, right = plot_of(page)
    width = right - left
    page.mouse.move(left + width * 30 / 119, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(left + width * 50 / 119, box["y"] + 60, steps=4)
    assert page.locator(f"{LOSS} .selection rect").count() == 1
    page.mouse.move(left + width * 70 / 119, box["y"] + 60, steps=4)
    page.mouse.up()
    assert shown_steps(page) == [30, 70]
    assert page.locator(f"{LOSS} .selection rect").count() == 0
    assert page.locator("#map .window").count() == 1
    page.mouse.dblclick(left + width / 2, box["y"] + 50)
    assert shown_steps(page) == [0, 119]
    assert page.locator("#map .window").count() == 0


def test_a_click_without_a_drag_does_not_zoom(open_page):
    page = open_page(mask()).page
    box, left, right = plot_of(page)
    page.mouse.click(left + (right - left) * 90 / 119, box["y"] + 50)
    assert page.locator("#at").inner_text() == "90"
    assert shown_steps(page) == [0, 119]


def test_the_wheel_zooms_at_the_pointer_with_ctrl_and_moves_with_shift(open_page):
    page = open_page(agree()).page
    box, left, right = plot_of(page)
    page.mouse.move(left + (right - left) * 90 / 119, box["y"] + 50)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    until(page, "state.to - state.from < 119")
    low, high = shown_steps(page)
    assert (90 - low) / (high - low) == pytest.approx(90 / 119, abs=0.03)
    assert page.locator("#at").inner_text() == "90"
    page.keyboard.down("Shift")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Shift")
    until(page, f"state.from < {low}")
    moved = shown_steps(page)
    assert moved[1] - moved[0] == high - low


def test_a_wheel_alone_scrolls_the_page(open_page):
    page = open_page(agree()).page
    box, left, _ = plot_of(page)
    before = page.evaluate("scrollY")
    page.mouse.move(left + 300, box["y"] + 50)
    page.mouse.wheel(0, 200)
    until(page, f"scrollY > {before}")
    assert shown_steps(page) == [0, 119]


def test_the_address_carries_the_zoom_and_leads_back_to_it(open_page):
    page = open_page(mask(), query="?step=33&phase=mask&view=20-40").page
    assert shown_steps(page) == [20, 40]
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(ending("?step=34&phase=mask&view=20-40"))
    page.keyboard.press("0")
    expect(page).to_have_url(ending("?step=34&phase=mask"))


@pytest.mark.parametrize("view", ["view=40-20", "view=0-99999", "view=x", "view=5-5", "view="])
def test_a_bad_zoom_in_the_address_is_met_with_one_that_exists(view, open_page):
    opened = open_page(mask(), query=f"?step=30&{view}")
    low, high = shown_steps(opened.page)
    assert 0 <= low <= high <= 119
    assert opened.complaints == []


def test_many_moves_change_the_address_once_they_rest(open_page):
    opened = open_page(
        mask(),
        before="""
        window.changes = 0;
        const replace = history.replaceState.bind(history);
        history.replaceState = (...args) => { window.changes += 1; replace(...args); };""",
    )
    for _ in range(60):
        opened.page.evaluate("goTo(state.index + 1)")
    expect(opened.page).to_have_url(ending("?step=72&phase=mask"))
    assert opened.page.evaluate("changes") < 60  # browsers throw at 100 in half a minute
    assert opened.complaints == []


def test_a_question_mark_lists_the_keys_and_stops_them_meanwhile(open_page):
    page = open_page(mask()).page
    assert not page.get_by_role("dialog").is_visible()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys and gestures")
    assert dialog.is_visible()
    page.keyboard.press("n")
    page.keyboard.press("ArrowRight")
    assert page.locator("#at").inner_text() == "12"
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    page.get_by_role("button", name="Keys and gestures").click()
    page.get_by_role("button", name="close").click()
    assert not dialog.is_visible()
    page.keyboard.press("n")
    assert page.locator("#at").inner_text() == "40"


def red(page, row):
    """Where a row of the map is red, as steps: its runs of pixels turned back."""
    d = page.locator("#map path.parted").nth(row).get_attribute("d")
    left, width = page.evaluate("[map.left, map.width]")
    return [
        tuple(round((at - left) / width * 119, 1) for at in (float(x), float(x) + float(h)))
        for x, h in re.findall(r"M([\d.]+) [\d.]+h([\d.]+)v", d)
    ]


def test_the_map_shows_where_each_phase_parts_and_a_click_goes_there(open_page, tmp_path):
    page = open_page(loss(tmp_path)).page
    names = page.locator("#map .tick").all_text_contents()
    assert names == ["order", "batch", "loss", "grad_norm", "clip", "lr", "params"]
    assert page.locator("#map path.parted").count() == 2  # loss and grad_norm, from step 12 on
    for row in (0, 1):
        assert red(page, row) == [(pytest.approx(11.5, abs=0.2), pytest.approx(119, abs=0.2))]
    box = page.locator("#map .plot").bounding_box()
    left, right = box["x"] + 62, box["x"] + box["width"] - 12
    page.mouse.click(left + (right - left) * 100 / 119, box["y"] + 20)
    assert page.locator("#at").inner_text() == "100"
