"""Writes benchmarks/README.md from benchmarks/results: `python -m benchmarks.table`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import legs, paper_table

HEAD = """# Measured figures

Made by `make bench`, one command a row; `results/` has every figure with its spread. Ratios are
taken within one run, the contestants alternating, because these machines are shared: {machine}.

| what | goal | measured | command |
|---|---|---|---|
"""


def measured(result: dict[str, Any]) -> str:
    """Return the figures of a result in a cell."""
    match result["benchmark"]:
        case "torch_leg" | "jax_leg" | "double_run":
            return f"{result['ratio']:.2f}"
        case "trace_overhead":
            return "; ".join(
                f"{stack} {result[stack]['ratio']:.3f}, "
                + ("same bits" if result[stack]["bit_identical"] else "OTHER BITS")
                for stack in ("torch", "jax")
            )
        case "startup":
            return (
                f"help {result['help_seconds']['median']:.3f} s (bare Python "
                f"{result['bare_python_seconds']['median']:.3f} s), demo "
                f"{result['demo_seconds']:.0f} s"
            )
        case "store_list":
            return (
                f"{result['all_seconds']['median']:.2f} s (help "
                f"{result['help_seconds']['median']:.3f} s)"
            )
        case "long_float64":
            loss, norm = result["loss"], result["grad_norm"]
            return (
                f"{result['verdict']}; losses {loss['mean_relative_difference']:.1e} mean, "
                f"{loss['max_relative_difference']:.1e} at most, floor {loss['floor']:.1e}; norm "
                f"{norm['max_relative_difference']:.1e} at most, floor {norm['floor']:.1e}"
            )
        case "paper":
            return paper_table.cell(result)
        case "compare_speed":
            return compare_speed(result)
        case "render_speed":
            return (
                f"{result['seconds']['median']:.0f} s ({result['verdict']}; comparison and report "
                f"{result['oracle_seconds']['median']:.1f} s)"
            )
        case other:
            raise ValueError(f"{other} has no cell; add one to {Path(__file__).name}")


def compare_speed(result: dict[str, Any]) -> str:
    """Return the figures of each size in a cell."""
    return "; ".join(
        f"{size['num_steps']:,} steps: {size['seconds']['median']:.2f} s, "
        f"{size['ratio_to_reading']:.2f} x reading, {size['peak_mb']['median']:.0f} MB"
        for size in result["sizes"]
    )


def main() -> None:
    """Write the table."""
    results = [json.loads(path.read_text("utf-8")) for path in sorted(legs.RESULTS.glob("*.json"))]
    machine = results[0]["machine"]
    text = HEAD.format(machine=f"{machine['cores']} cores, Python {machine['python']}")
    for result in results:
        name = result["benchmark"]
        cells = [result["what"], result["goal"], measured(result), f"`python -m benchmarks.{name}`"]
        text += "| " + " | ".join(cells) + " |\n"
    text += "".join(paper_table.section(r) for r in results if r["benchmark"] == "paper")
    (legs.RESULTS.parent / "README.md").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
