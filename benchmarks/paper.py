"""Paper scale (`make paper`): one epoch over 207,413 conversations, both stacks, in float64.

    python -m benchmarks.paper              everything; goes on where it was stopped or killed
    python -m benchmarks.paper --run RUN    only write the results of a run that was judged

Four legs of 10,354 steps: both stacks, then each from weights moved by one unit in the last place,
held against the first two, which gives the floor. Goals: token streams identical; relative loss
difference 1e-10 on average and 1e-8 at most; gradient norms within ten times their floor.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import legs
from benchmarks.paper_plot import Series, draw
from oracle.config import load_config
from oracle.floor import choose_floor, holding, leg_provenance, read_floor
from oracle.revision import revision
from oracle.runs import Run, find_run, open_run
from oracle.tolerance import allowed, default_file, load_tolerances

CONFIG = legs.ROOT / "configs" / "runs" / "clinical-epoch.toml"
OUT = legs.ROOT / "runs"
JUDGED = (0, 1, 3)  # exit codes of AGREE, DIVERGED and INCONCLUSIVE
STALL_SECONDS = "1800"  # two cores may be shared with others
GOALS = {"mean_loss": 1e-10, "max_loss": 1e-8, "share_of_floor": 10.0}


def oracle(*arguments: str) -> int:
    """Run an oracle command with its progress shown; returns its exit code."""
    command = str(Path(sys.executable).with_name("oracle"))
    return subprocess.run([command, *arguments], cwd=legs.ROOT, check=False).returncode


def step(what: str, *arguments: str, good: tuple[int, ...] = (0,)) -> None:
    """Run one step; ends the program when it fails or is stopped: the next call goes on there."""
    print(f"paper: {what}", flush=True)
    code = oracle(*arguments)
    if code not in good:
        sys.exit(f"paper: stopped at this step (exit code {code}); `make paper` goes on from here.")


def prepare(path: Path) -> None:
    """Make the data when it is missing (25 s)."""
    config = load_config(path)
    if any(not config.file(name).exists() for _, name in config.data_files()):
        print("paper: prepare the data", flush=True)
        script = legs.ROOT / "data" / "clinical" / "prepare.py"
        subprocess.run([sys.executable, str(script)], cwd=legs.ROOT, check=True)


def begun(path: Path) -> Run | None:
    """Return the newest run of this config by this code."""
    config, commit = load_config(path), revision(path.parent) or revision(legs.ROOT)
    for manifest in sorted(OUT.glob(f"{config.name}-*/run.json"), reverse=True):
        run = open_run(manifest.parent)
        if run.manifest.config_sha256 == config.sha256 and run.manifest.git_commit == commit:
            return run
    return None


def trained(path: Path) -> Run:
    """Return a run whose legs are both done: the one that was begun, or a new one."""
    run = begun(path)
    if run is None or not all((run.trace(leg) / "done.json").exists() for leg in run.manifest.legs):
        which = [str(path)] if run is None else ["--resume", str(run.path)]
        step(
            "train in both stacks",
            *("run", *which, "--floor", "none", "--no-report", "--stall-seconds", STALL_SECONDS),
            good=JUDGED,
        )
    run = begun(path)
    if run is None:
        sys.exit("paper: the commit changed while the legs ran; commit first, then `make paper`.")
    return run


def calibrated(path: Path, run: Run) -> None:
    """Measure the floor of the run unless there is one that holds for both legs."""
    headers = [document(run.trace(leg) / "header.json") for leg in run.manifest.legs]
    file, _ = choose_floor("auto", OUT / "floors", headers, purpose="cross")
    if file is not None:
        found, _ = holding(
            read_floor(file),
            config_sha256=[run.manifest.config_sha256],
            legs=[(h["provenance"]["stack"], leg_provenance(h)) for h in headers],
        )
        if found is not None and len(found.rises) == len(headers):
            return
    arguments = ["calibrate", str(path), "--variants", "base,ulp", "--base", str(run.path)]
    step("measure the floor", *arguments, "--stall-seconds", STALL_SECONDS)


def document(path: Path) -> Any:
    """Return a JSON document."""
    return json.loads(path.read_text("utf-8"))


def result_of(run: Run) -> tuple[dict[str, Any], list[Series]]:
    """Return the figures of a judged run, and the series that are drawn."""
    verdict = document(run.path / "verdict.json")
    rows = [legs.steps(run.trace(leg)) for leg in run.manifest.legs]
    floor = read_floor(_floor_file(run, verdict))
    rules = load_tolerances(default_file("float64"))
    at = np.arange(len(rows[0]))
    series = []
    for field in ("loss", "grad_norm"):
        a, b = (np.asarray([row[field] for row in leg]) for leg in rows)
        scale = np.maximum(np.abs(a), np.abs(b))
        noise = floor.at(f"steps.{field}", at)
        rule = rules.rules[f"steps.{field}"]
        limit = allowed(
            rule, steps=at, scale=scale, floor=noise, precision="float64", trajectory=True
        )
        series.append(
            Series(
                field=field, a=a, b=b, difference=np.abs(a - b) / scale, floor=noise, limit=limit
            )
        )
    result = {
        "what": "one epoch of the clinical set in float64: two stacks against the measured floor",
        "goal": (
            "token streams identical; losses 1e-10 mean, 1e-8 at most; gradient norms within "
            "10 x floor"
        ),
        "config": _settings(run),
        "commit": run.manifest.git_commit,
        "verdict": verdict["verdict"],
        "conversations": len({name for row in rows[0] for name in row["examples"]}),
        "steps": len(rows[0]),
        "tokens": sum(row["num_tokens"] for row in rows[0]),
        "targets": sum(row["num_targets"] for row in rows[0]),
        **{entry.field: _figures(entry) for entry in series},
        "floor": {
            "variants": floor.provenance["variants"],
            "stacks": sorted(floor.rises),
            "base": "the two legs of the run",
        },
        "phases": {
            phase["phase"]: {key: phase[key] for key in ("status", "num_compared", "agreement")}
            for phase in verdict["phases"]
        },
        "leg_hours": {
            leg: round(float(found[-1]["wall_seconds"]) / 3600, 2)
            for leg, found in zip(run.manifest.legs, rows, strict=True)
        },
    }
    return result | {"met": _met(result)}, series


def _settings(run: Run) -> dict[str, Any]:
    """Return the settings that a reader asks for first."""
    values = load_config(run.config, root=Path(run.manifest.root)).values
    return {
        "name": values["name"],
        "sha256": run.manifest.config_sha256,
        "precision": values["train"]["precision"],
        "learning_rate": values["optimizer"]["learning_rate"],
        "rows_per_step": values["train"]["micro_batch_size"]
        * values["train"]["accumulation_steps"],
        "max_length": values["data"]["max_length"],
        "packing": values["data"]["packing"],
    }


def _floor_file(run: Run, verdict: Mapping[str, Any]) -> Path:
    if verdict["floor"] is None:
        raise SystemExit(f"paper: {run.path.name} was judged without a floor; run `make paper`.")
    return run.path.parent / "floors" / Path(verdict["floor"]["file"]).name


def _figures(series: Series) -> dict[str, float]:
    least = 8 * float(np.finfo(np.float64).eps)  # a floor is never under 8 units in the last place
    return {
        "mean_relative_difference": float(series.difference.mean()),
        "max_relative_difference": float(series.difference.max()),
        "step_of_max": int(series.difference.argmax()),
        "floor_at_the_end": float(series.floor[-1]),
        "largest_share_of_floor": float(
            (series.difference / np.maximum(series.floor, least)).max()
        ),
        "largest_share_of_limit": float((series.difference / series.limit).max()),
    }


def _met(result: Mapping[str, Any]) -> dict[str, bool]:
    exact = ("order", "text", "ids", "mask", "batch")
    loss, norm = result["loss"], result["grad_norm"]
    return {
        "token_streams_identical": all(result["phases"][p]["agreement"] == 1.0 for p in exact),
        "mean_loss": loss["mean_relative_difference"] <= GOALS["mean_loss"],
        "max_loss": loss["max_relative_difference"] <= GOALS["max_loss"],
        "grad_norm": norm["largest_share_of_floor"] <= GOALS["share_of_floor"],
        "conversations": result["conversations"] >= 170_000,
        "steps": result["steps"] >= 10_000,
    }


def main() -> None:
    """Do what is still to be done, then write figures, plots and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", help="a judged run directory; nothing is trained")
    parser.add_argument("--config", type=Path, default=CONFIG, help="a smaller one, to rehearse")
    options = parser.parse_args()
    if options.run is None:
        prepare(options.config)
        run = trained(options.config)
        calibrated(options.config, run)
        step("judge against the floor", "run", "--resume", str(run.path), good=JUDGED)
    else:
        run = find_run(options.run, OUT)
    result, series = result_of(run)
    name = "paper" if options.config == CONFIG else "rehearsal"  # the latter is not committed
    legs.write_result(name, result)
    draw(series, legs.RESULTS / f"{name}.png")


if __name__ == "__main__":
    main()
