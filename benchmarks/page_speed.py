"""The page of a 10,000-step run: bytes, seconds to write it, seconds until Chromium shows it.

    python -m benchmarks.page_speed [--steps 10000]

Two runs: one that agrees, and one whose legs part in every bit of every step, which compresses
worst. Goal: under 1 MB.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright

from oracle.report.html import render

REPEATS = 5
TIMES = """async () => {
  const ready = performance.now();
  const paint = performance.getEntriesByName("first-contentful-paint")[0].startTime;
  const time = (work) => { const t = performance.now(); work(); return performance.now() - t; };
  return { paint, ready, draw: time(draw), move: time(() => goTo(state.index - 100)) };
}"""


def chaotic(scene: Any, num_steps: int) -> Any:
    """Return a scene whose second leg parts from the first everywhere."""
    random = np.random.default_rng(0)
    noise = {
        name: scene.b.steps[name] * (1 + 1e-3 * random.standard_normal(num_steps))
        for name in ("loss", "grad_norm", "clip_factor", "param_norm")
    }
    return replace(scene, b=replace(scene.b, steps=scene.b.steps.with_columns(**noise)))


def measure(page: Page, path: Path, scene: Any) -> dict[str, float]:
    """Return the medians of one scene: bytes, and milliseconds of each stage."""
    rounds: list[dict[str, float]] = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        text = render(scene.verdict, scene.a, scene.b, reveal=False)
        seconds = time.perf_counter() - began
        path.write_text(text, "utf-8")
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=true]")
        rounds.append({"write": 1000 * seconds, **page.evaluate(TIMES)})
    found = {key: statistics.median(row[key] for row in rounds) for key in rounds[0]}
    return {"bytes": path.stat().st_size, **found}


def main() -> None:
    """Measure both scenes and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    num_steps = parser.parse_args().steps
    scenes = importlib.import_module("tests.unit_report.scenes")
    browsers = importlib.import_module("tests.browser.conftest")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        agreeing = scenes.agree(num_steps, Path(folder))
        browser = playwright.chromium.launch(
            executable_path=browsers.chromium(), args=list(browsers.FLAGS)
        )
        page = browser.new_page(viewport={"width": 1280, "height": 844})
        for name, scene in (("agrees", agreeing), ("chaotic", chaotic(agreeing, num_steps))):
            found = measure(page, Path(folder) / "report.html", scene)
            print(
                f"{name}: {found['bytes']:,.0f} bytes; written in {found['write']:.0f} ms, first "
                f"paint {found['paint']:.0f} ms, ready {found['ready']:.0f} ms; whole drawing "
                f"{found['draw']:.0f} ms, a move of the cursor {found['move']:.1f} ms"
            )
        browser.close()


if __name__ == "__main__":
    main()
