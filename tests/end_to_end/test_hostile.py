"""What goes wrong around a run: legs that are killed, and text that must not leave the trace.

Legs are real; the oracle is started as a person starts it.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import tomli_w
from safetensors import safe_open

from faults.fault import ROOT, Fault, Patch, planted_root
from faults.range import STACKS, Range
from oracle.trace import read_trace

CANARY = "heliotrope-capybara-88"
SNAPSHOTS = {"train": {"num_steps": 7}, "snapshot": {"every_steps": 3}}
# The leg dies by SIGKILL while the second snapshot lies half written under its temporary name.
KILL = """
def kill_once(path, now):
    import os, signal
    from pathlib import Path
    mark = Path(os.environ["KILL_MARK"])
    if now and not mark.exists():
        mark.touch()
        os.truncate(path, 5000)
        os.kill(os.getpid(), signal.SIGKILL)
"""
WRITTEN = {
    "torch": ("    save_file(tensors, temporary, metadata=metadata)\n", "snapshot.step"),
    "jax": (
        "    write_tensors(temporary, tensors_of(snapshot), metadata)\n",
        "snapshot.num_updates",
    ),
}


def oracle(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    code = "from oracle.cli import main; main(prog_name='oracle')"
    argv = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)


def stacks_file(folder: Path, ground: Range, **roots: Path) -> Path:
    """A stacks file in which the named stacks are started from another root."""
    tables = {
        stack: {
            "argv": ["{python}", "-P", "-m", f"stacks.{stack}_stack"],
            "env": {
                **ground.environment,
                "PYTHONPATH": str(roots.get(stack, ROOT)),
                "KILL_MARK": str(folder / "mark"),
            },
        }
        for stack in STACKS
    }
    path = folder / "configs" / "stacks.toml"
    path.parent.mkdir(parents=True)
    path.write_text(tomli_w.dumps(tables), "utf-8")
    return path


def only_run(out: Path) -> Path:
    paths = [path for path in out.iterdir() if not path.is_symlink()]
    (found,) = [path for path in paths if (path / "run.json").exists()]
    return found


@pytest.mark.parametrize("victim", STACKS)
def test_a_run_killed_in_a_snapshot_resumes_to_the_same_bits(
    victim: str, ground: Range, tmp_path: Path
) -> None:
    config = ground.config(SNAPSHOTS)
    line, number = WRITTEN[victim]
    kill = Fault(
        id="kill",
        title="killed once",
        source="",
        stack=victim,
        expect=(),
        planted_by="stranger",
        patches=(
            Patch(
                file="snapshot.py",
                find=line,
                replace=f"{line}    kill_once(temporary, {number} == 6)\n",
            ),
        ),
        config={},
    )
    root = planted_root(kill, tmp_path / "code")
    with (root / "stacks" / f"{victim}_stack" / "snapshot.py").open("a") as module:
        module.write(KILL)
    options = ["--stacks-file", stacks_file(tmp_path, ground, **{victim: root})]
    options += ["--out", tmp_path / "runs", "--floor", "none", "--no-report"]
    broken = oracle("run", config, *options)
    assert broken.returncode == 2, broken.stderr
    assert "SIGKILL" in broken.stdout + broken.stderr
    run = only_run(tmp_path / "runs")
    assert not (run / victim / "done.json").exists()
    resumed = oracle("run", "--resume", run.name, *options)
    assert resumed.returncode == 3, resumed.stderr  # no floor: not judged to the end
    for stack in STACKS:
        assert_same(ground.clean(stack, config), run / stack)


def assert_same(unbroken: Path, resumed: Path) -> None:
    a, b = read_trace(unbroken), read_trace(resumed)
    assert a.done["final"] == b.done["final"]
    assert a.steps.drop("wall_seconds").equals(b.steps.drop("wall_seconds"))
    assert a.tokens.collect().equals(b.tokens.collect())
    order = ["step", "kind", "name"]
    assert sorted_by(a.tensors, order).equals(sorted_by(b.tensors, order))
    files = [sorted(p.name for p in (t / "snapshots").iterdir()) for t in (unbroken, resumed)]
    assert files[0] == files[1], "a temporary file of the killed leg stays"
    for name in ("checkpoint/model.safetensors", *(f"snapshots/{name}" for name in files[0])):
        assert content(unbroken / name) == content(resumed / name), name


def content(path: Path) -> tuple[dict[str, str], dict[str, bytes]]:
    """Metadata and tensors of a safetensors file; their order in the file is free."""
    with safe_open(path, framework="np") as file:
        tensors = {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118
        return file.metadata(), tensors


def sorted_by(table: pl.LazyFrame, columns: list[str]) -> pl.DataFrame:
    return table.sort(columns).collect()


def canary_config(ground: Range, folder: Path, template: str | None = None) -> Path:
    """A config whose conversations all hold the canary."""
    paths = {}
    for split in ("train", "eval", "edge"):
        lines = [
            json.dumps(
                {
                    "id": f"{split}-{i}",
                    "messages": [
                        {"role": "user", "content": f"{CANARY} question {i}"},
                        {"role": "assistant", "content": f"{CANARY} answer {i}"},
                    ],
                }
            )
            for i in range(4)
        ]
        paths[split] = folder / f"{split}.jsonl"
        paths[split].write_text("\n".join(lines), "utf-8")
    data: dict[str, object] = {split: [str(path)] for split, path in paths.items()}
    if template is not None:
        (folder / "template.jinja").write_text(template, "utf-8")
        data["template"] = str(folder / "template.jinja")
    steps = {"train": {"num_steps": 2}, "schedule": {"warmup_steps": 0}}
    return ground.config({"data": data, **steps, "snapshot": {"every_steps": 1}})


def holding_the_canary(folder: Path) -> set[str]:
    """Files that hold the canary, apart from those that may (S-26)."""
    words = [CANARY, CANARY.partition("-")[0], CANARY.split("-")[1]]
    files = [path for path in folder.rglob("*") if path.is_file()]
    may = {path for path in files if path.parent.name == "tokens" or path.name == "steps.jsonl"}
    # The store keeps the same bytes under the name of their hash.
    hashes = {hashlib.sha256(path.read_bytes()).hexdigest() for path in may}
    may |= {path for path in files if path.parent.name + path.name in hashes}
    return {
        str(path.relative_to(folder))
        for path in files
        if path not in may and any(word.encode() in path.read_bytes() for word in words)
    }


def assert_silent(ended: subprocess.CompletedProcess[str], runs: Path) -> None:
    for word in CANARY.split("-")[:2]:
        assert word not in ended.stdout
        assert word not in ended.stderr
    assert holding_the_canary(runs) == set()


def test_a_run_shows_no_text_outside_its_tokens(ground: Range, tmp_path: Path) -> None:
    config = canary_config(ground, tmp_path)
    options = ["--stacks-file", stacks_file(tmp_path, ground), "--out", tmp_path / "runs"]
    ended = oracle("run", config, *options)
    assert ended.returncode == 3, ended.stderr
    assert (only_run(tmp_path / "runs") / "report.html").exists()
    assert_silent(ended, tmp_path / "runs")


RAISING = (
    "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% if loop.last %}{{ raise_exception('refused: ' ~ m.content) }}{% endif %}{% endfor %}"
)
FAILING = RAISING.replace("raise_exception('refused: ' ~ m.content)", "nothing[m.content].x")


@pytest.mark.parametrize("template", [RAISING, FAILING], ids=["raises", "fails"])
def test_a_template_that_fails_shows_no_text(template: str, ground: Range, tmp_path: Path) -> None:
    config = canary_config(ground, tmp_path, template)
    options = ["--stacks-file", stacks_file(tmp_path, ground), "--out", tmp_path / "runs"]
    ended = oracle("render", config, *options)
    assert ended.returncode == 2
    assert "train.jsonl" in ended.stdout + ended.stderr
    assert_silent(ended, tmp_path / "runs")
