"""Conditions of the process that change no bit, and what a process holds (S-31)."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from stacks.torch_stack.host import CONDITIONS, run_step
from stacks.torch_stack.resources import ResourceLog

from .conftest import ROOT, Main, Run, leg_arguments, run_leg
from .test_leg import conforms, document, make_run, same_run, start, wait_for_step

HAS_PROC = Path("/proc/self/stat").exists()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config of a run whose plain leg is in `out`."""
    config = make_run(tmp_path_factory.mktemp("host"))
    text = config.read_text().replace("threads = 1", "threads = 2")
    config.write_text(text)
    assert run_leg(*leg_arguments(config, config.parent / "out")).returncode == 0
    return config


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_changes_no_bit(plain: Path, tmp_path: Path, condition: str) -> None:
    out = tmp_path / "out"
    result = run_leg(*leg_arguments(plain, out), "--host", condition)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    same_run(plain.parent / "out", out)
    header = document(out, "header")
    conforms("header", header)
    assert header["provenance"]["host"] == condition
    assert "host" not in document(plain.parent / "out", "header")["provenance"]


@pytest.mark.skipif(not HAS_PROC, reason="there is no /proc")
def test_resources_are_written_after_each_step(plain: Path) -> None:
    out = plain.parent / "out"
    lines = [json.loads(one) for one in (out / "resources.jsonl").read_text().splitlines()]
    assert [one["step"] for one in lines] == list(range(7))
    for one in lines:
        conforms("resource", one)
        assert one["resident_bytes"] > 10**8  # PyTorch alone is more
        assert one["open_files"] >= 3
        assert len(one["collections"]) == 3
    assert "resources.jsonl" not in document(out, "done")["files"]


@pytest.mark.skipif(not HAS_PROC, reason="there is no /proc")
def test_resources_are_those_of_the_process(tmp_path: Path) -> None:
    def line() -> dict[str, Any]:
        text = (tmp_path / "resources.jsonl").read_text().splitlines()[-1]
        loaded: dict[str, Any] = json.loads(text)
        return loaded

    log = ResourceLog(tmp_path, 0)
    log.write(0)
    before = line()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    file = (tmp_path / "x").open("w")
    block = bytearray(os.urandom(1 << 20) * 64)
    gc.collect()
    log.write(1)
    after = line()
    stop.set()
    thread.join()
    file.close()
    assert after["threads"] == before["threads"] + 1
    assert after["open_files"] == before["open_files"] + 1
    assert after["resident_bytes"] > before["resident_bytes"] + len(block) // 2
    assert after["collections"][2] == before["collections"][2] + 1
    log.close()
    ResourceLog(tmp_path, 1).close()  # a leg that resumes at step 1
    assert line() == before


def test_steps_run_where_the_condition_says() -> None:
    seen: list[tuple[int, int]] = []

    def step() -> None:
        seen.append((threading.get_ident(), gc.get_stats()[2]["collections"]))

    for condition in (None, "gc-every-step", "fresh-thread"):
        run_step(condition, step)
    assert seen[0][0] == seen[1][0] == threading.get_ident() != seen[2][0]
    assert seen[1][1] == seen[0][1] + 1

    def fail() -> None:
        raise ValueError("of the step")

    with pytest.raises(ValueError, match="of the step"):
        run_step("fresh-thread", fail)


@pytest.mark.parametrize("condition", ["fork", "spawn", "fresh-thread"])
def test_a_signal_reaches_the_leg_and_its_code_comes_back(
    plain: Path, tmp_path: Path, in_process: Main, condition: str
) -> None:
    config = tmp_path / "long.toml"
    config.write_text(plain.read_text().replace("num_steps = 7", "num_steps = 5000"))
    out = tmp_path / "out"
    arguments = [*leg_arguments(config, out), "--host", condition]
    arguments[arguments.index("--root") + 1] = str(plain.parent)
    leg = subprocess.Popen(
        [sys.executable, "-m", "stacks.torch_stack", *arguments],
        cwd=ROOT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for_step(out, 2)
    leg.send_signal(signal.SIGTERM)
    _, errors = leg.communicate()
    assert leg.returncode == 130
    assert document(out, "error")["message"] == errors.splitlines()[-1]
    process = document(out, "header")["provenance"]["process_id"]
    assert (process != leg.pid) == (condition != "fresh-thread")


def test_a_bad_input_of_a_child_is_the_legs(small_run: Run, tmp_path: Path) -> None:
    config = small_run(train__num_steps=2)  # warm-up is as long
    result = run_leg(*leg_arguments(config, tmp_path / "out"), "--host", "fork")
    assert result.returncode == 2
    assert document(tmp_path / "out", "error")["kind"] == "bad_input"
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is of Linux")
def test_a_killed_leg_leaves_no_child(plain: Path, tmp_path: Path) -> None:
    config = tmp_path / "long.toml"
    config.write_text(plain.read_text().replace("num_steps = 7", "num_steps = 100000"))
    out = tmp_path / "out"
    for name in ("train.jsonl", "eval.jsonl", "edge.jsonl", "chat.jinja", "tokenizer.json"):
        (tmp_path / name).write_bytes((plain.parent / name).read_bytes())
    (tmp_path / "checkpoint").symlink_to(plain.parent / "checkpoint")
    leg = start(config, out, "--host", "fork")
    wait_for_step(out, 1)
    child = document(out, "header")["provenance"]["process_id"]
    leg.kill()
    leg.communicate()  # returns when the child has let go of stderr
    limit = time.monotonic() + 60
    while is_alive(child) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not is_alive(child)


def is_alive(process: int) -> bool:
    """Not gone, and no zombie that waits for an init to collect it."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"
