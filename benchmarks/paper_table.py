"""The paper run in Markdown: what was asked, what was measured, and the plots; for the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXACT = ("order", "text", "ids", "mask", "batch")


def section(result: Mapping[str, Any]) -> str:
    """Return the section of one result of `benchmarks.paper`."""
    config, floor = result["config"], result["floor"]
    lines = [
        "",
        "## Paper scale",
        "",
        f"One epoch over {result['conversations']:,} conversations: {result['steps']:,} steps of "
        f"{config['rows_per_step']} packed rows of {config['max_length']} tokens, "
        f"{result['tokens']:,} tokens, {config['precision']}, learning rate "
        f"{config['learning_rate']:g}. `make paper` makes it, and goes on where it was stopped. "
        f"The floor is what each stack does to itself when its initial weights move by one unit in "
        f"the last place ({', '.join(floor['variants'])}).",
        "",
        "| | goal | measured |",
        "|---|---|---|",
    ]
    for what, goal, found in _rows(result):
        lines.append(f"| {what} | {goal} | {found} |")
    lines += ["", "![Losses and residuals of the paper run](results/paper.png)", ""]
    return "\n".join(lines)


def cell(result: Mapping[str, Any]) -> str:
    """Return the figures of the run in one cell."""
    loss, norm = result["loss"], result["grad_norm"]
    return (
        f"{result['verdict']}; losses {loss['mean_relative_difference']:.1e} mean, "
        f"{loss['max_relative_difference']:.1e} at most; norms "
        f"{norm['largest_share_of_floor']:.1f} x floor at most"
    )


def _rows(result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    loss, norm, phases = result["loss"], result["grad_norm"], result["phases"]
    parted = [name for name in EXACT if phases[name]["agreement"] != 1.0]
    compared = phases["ids"]["num_compared"]
    streams = f"differ in {', '.join(parted)}" if parted else f"identical, {compared:,} examples"
    return [
        ("verdict", "AGREE", result["verdict"]),
        ("text, ids, masks, order, batches", "identical", streams),
        (
            "relative loss difference, mean (the case study: 2e-3)",
            "<= 1e-10",
            f"{loss['mean_relative_difference']:.1e}",
        ),
        (
            "relative loss difference, largest",
            "<= 1e-8",
            f"{loss['max_relative_difference']:.1e} at step {loss['step_of_max']:,}",
        ),
        ("floor of the loss at the end", "< 1e-10", f"{loss['floor_at_the_end']:.1e}"),
        (
            "gradient norm, largest share of its floor",
            "<= 10",
            f"{norm['largest_share_of_floor']:.2f} ({norm['max_relative_difference']:.1e} at most)",
        ),
    ]
