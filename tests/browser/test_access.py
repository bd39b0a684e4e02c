"""For everybody: screen readers, contrast, dark mode, a phone; axe-core is the outside judge."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.unit_report.scenes import SCENES, mask, text


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


def violations(page):
    """What axe-core finds: rule, and the elements that break it."""
    found = Axe().run(page).response["violations"]
    return [(one["id"], [node["html"][:90] for node in one["nodes"]]) for one in found]


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
@pytest.mark.parametrize("name", ["agree", "mask", "loss"])
def test_axe_finds_nothing(name, width, dark, open_page):
    page = open_page(SCENES[name](), width=width, dark=dark).page
    assert violations(page) == []


def test_axe_finds_nothing_in_revealed_text_and_in_the_list_of_keys(open_page):
    page = open_page(text(), reveal=True).page
    assert violations(page) == []
    page.keyboard.press("?")
    assert violations(page) == []


def test_the_test_with_axe_can_fail(open_page):
    page = open_page(mask()).page
    page.locator("#next").evaluate(
        "b => { b.removeAttribute('aria-label'); b.textContent = ''; b.title = ''; }"
    )
    assert [rule for rule, _ in violations(page)] == ["button-name"]


def test_the_page_can_be_used_with_the_keyboard_alone(open_page):
    """Tab reaches every control and each shows where the focus is."""
    page = open_page(mask()).page
    wanted = {"step", "previous", "next", "out", "in", "all", "help"}
    for _ in range(120):
        page.keyboard.press("Tab")
        place = page.evaluate(
            """() => { const n = document.activeElement; const s = getComputedStyle(n);
            return [n.id, n.matches(':focus-visible'), s.outlineStyle]; }"""
        )
        if place[0] in wanted:
            assert place[1:] == [True, "solid"] or place[0] == "step"
            wanted.discard(place[0])
        if not wanted:
            break
    assert wanted == set()
