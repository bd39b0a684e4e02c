"""A real browser for the page of a verdict: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from oracle.report.html import render
from tests.unit_report.scenes import Scene

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)

expect.set_options(timeout=30_000)  # a loaded machine is slow and not wrong


def chromium() -> str:
    """Path of Chromium; a machine without it fails the tests, because a skip would hide them."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.fail(
            "Chromium is not installed, so the page cannot be looked at; install it with "
            "`apt-get update && apt-get install -y chromium`.",
            pytrace=False,
        )
    return found


def values(page: Page, field: str) -> tuple[str, str]:
    """Both legs' cells of a field in the table at the step."""
    row = page.locator(f"#rows tr[data-field={field}]")
    return row.locator(".a").inner_text(), row.locator(".b").inner_text()


@dataclass(kw_only=True)
class Opened:
    """A page that is open, with everything that it asked for or complained about."""

    page: Page
    path: Path
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


Open = Callable[..., Opened]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Render a scene into a file and open it: `open_page(scene, query="?step=3", dark=True)`."""
    contexts = []

    def opener(
        scene: Scene,
        *,
        query: str = "",
        width: int = 1280,
        dark: bool = False,
        reveal: bool = False,
        before: str | None = None,
    ) -> Opened:
        path = tmp_path / "report.html"
        path.write_text(render(scene.verdict, scene.a, scene.b, reveal=reveal), "utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 844},
            color_scheme="dark" if dark else "light",
        )
        contexts.append(context)
        if before is not None:
            context.add_init_script(before)
        opened = Opened(page=context.new_page(), path=path)
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.on("console", lambda message: opened.complaints.append(message.text))
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.goto(path.as_uri() + query)
        opened.page.wait_for_selector("html[data-ready=true]", timeout=30_000)
        return opened

    yield opener
    for context in contexts:
        context.close()
