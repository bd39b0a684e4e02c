"""Anchored runs: what the leader writes, the follower measures and goes on from (S-30)."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from stacks.torch_stack.anchors import compare
from stacks.torch_stack.config import load_config
from stacks.torch_stack.documents import jsonable

from .conftest import ROOT, Main, Run, leg_arguments
from .test_leg import conforms, document, same_run, steps, table
from .test_train import build

ANCHORED = {"trajectory__mode": "anchored", "trajectory__anchor_every": 2}


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "anchors.jsonl").read_text().splitlines()]


@pytest.fixture
def led(small_run: Run, in_process: Main) -> Path:
    """The config of an anchored run of 7 steps whose leader is done, in `leader`."""
    config = small_run(**ANCHORED, trace__tensors_every=1)
    assert in_process(leg_arguments(config, config.parent / "leader")) == 0
    return config


def follow(config: Path, name: str, *more: str) -> list[str]:
    folder = str(config.parent / "leader/anchors")
    return [*leg_arguments(config, config.parent / name), "--anchors", folder, *more]


def disturb(folder: Path) -> None:
    """Move the anchors as another stack's rounding would, and a good deal more."""
    for path in folder.iterdir():
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
        tensors = {
            name: one * (1 + 1e-3 * torch.rand_like(one)) for name, one in load_file(path).items()
        }
        save_file(tensors, path, metadata=metadata)


def test_distances_are_those_of_numpy() -> None:
    generator = np.random.default_rng(0)
    names = ["v/b", "param/b", "param/a", "m/b", "param/B"]
    own, anchor = ({name: generator.normal(size=(3, 5)) for name in names} for _ in range(2))
    digest = hashlib.sha256()
    for name in ("m/b", "param/B", "param/a", "param/b", "v/b"):
        digest.update(name.encode() + b"\0" + anchor[name].tobytes())
    found = compare(*({k: torch.from_numpy(v) for k, v in x.items()} for x in (own, anchor)))
    assert found["sha256"] == digest.hexdigest()
    rows: Any = found["tensors"]
    assert [f"{one['kind']}/{one['name']}" for one in rows] == sorted(names)
    for one in rows:
        x, y = (named[f"{one['kind']}/{one['name']}"] for named in (own, anchor))
        assert one["distance"] == pytest.approx(np.linalg.norm(x - y), rel=1e-14)
        assert one["norm"] == pytest.approx(np.linalg.norm(y), rel=1e-14)
        assert one["max_abs"] == np.abs(x - y).max()


def test_distances_of_what_is_not_finite_or_empty_are_written() -> None:
    own = {"m/a": torch.tensor([1.0, torch.nan]), "v/e": torch.zeros(0)}
    anchor = {"m/a": torch.tensor([1.0, torch.inf]), "v/e": torch.zeros(0)}
    first, second = jsonable(compare(own, anchor)["tensors"])
    assert (first["distance"], first["norm"], first["max_abs"]) == ("NaN", "Infinity", "NaN")
    assert (second["distance"], second["norm"], second["max_abs"]) == (0.0, 0.0, 0.0)


def test_a_leader_writes_snapshots_as_anchors_and_is_otherwise_a_free_run(
    led: Path, small_run: Run, in_process: Main
) -> None:
    leader = led.parent / "leader"
    names = [f"{n:08d}.safetensors" for n in (2, 4, 6, 7)]
    assert sorted(x.name for x in (leader / "anchors").iterdir()) == names
    for name in names[2:]:
        with (
            safe_open(leader / "snapshots" / name, "pt") as snapshot,
            safe_open(leader / "anchors" / name, "pt") as anchor,
        ):
            assert snapshot.metadata() == anchor.metadata()
            assert snapshot.keys() == anchor.keys()
            for key in snapshot.keys():  # noqa: SIM118 - it is no mapping
                assert torch.equal(snapshot.get_tensor(key), anchor.get_tensor(key))
    header = document(leader, "header")
    conforms("header", header)
    assert header["trajectory"] == {"mode": "anchored", "anchor_every": 2, "role": "leader"}
    assert not any(name.startswith("anchors") for name in document(leader, "done")["files"])
    free = led.parent / "free"
    assert in_process(leg_arguments(small_run(trace__tensors_every=1), free)) == 0
    assert "trajectory" not in document(free, "header")
    same_run(leader, free)


def test_a_follower_of_the_same_code_is_at_no_distance(led: Path, in_process: Main) -> None:
    assert in_process(follow(led, "follower")) == 0
    out = led.parent / "follower"
    same_run(led.parent / "leader", out)
    assert document(out, "header")["trajectory"]["role"] == "follower"
    found = lines(out)
    assert [one["step"] for one in found] == [2, 4, 6, 7]
    for one in found:
        conforms("anchor", one)
        anchor = load_file(led.parent / f"leader/anchors/{one['step']:08d}.safetensors")
        assert [f"{x['kind']}/{x['name']}" for x in one["tensors"]] == sorted(anchor)
        assert {(x["distance"], x["max_abs"]) for x in one["tensors"]} == {(0.0, 0.0)}
    listed = document(out, "done")["files"]["anchors.jsonl"]
    data = (out / "anchors.jsonl").read_bytes()
    assert listed == {"num_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert not (out / "anchors").exists()


def test_a_follower_goes_on_from_the_anchor_and_keeps_its_own_last_state(
    led: Path, in_process: Main
) -> None:
    anchors = led.parent / "leader/anchors"
    disturb(anchors)
    assert in_process(follow(led, "follower")) == 0
    out = led.parent / "follower"
    moved = {name: load_file(anchors / f"0000000{name}.safetensors") for name in (4, 6, 7)}
    kept = {n: load_file(out / f"snapshots/0000000{n}.safetensors") for n in (6, 7)}
    assert all(torch.equal(kept[6][name], one) for name, one in moved[6].items())
    assert not any(torch.equal(kept[7][name], one) for name, one in moved[7].items())
    # Steps 4 and 5 by another trainer that begins at anchor 4
    config = load_config(led, led.parent)
    trainer = build(led)
    for _ in range(4):
        next(trainer.stream)
    from stacks.torch_stack.snapshot import read_snapshot

    state = read_snapshot(
        anchors / "00000004.safetensors", config.sha256, trainer.parameters, trainer.trainable
    )
    trainer.adopt(state)
    for t in (4, 5):
        step = trainer.step(t)
        assert {**steps(out)[t], "wall_seconds": 0} == {
            **json.loads(json.dumps(vars(step))), "wall_seconds": 0
        }  # fmt: skip
    own = trainer.state(6).tensors()
    line = next(one for one in lines(out) if one["step"] == 6)
    for one in line["tensors"]:
        name = f"{one['kind']}/{one['name']}"
        difference = (own[name].detach() - moved[6][name]).numpy()
        assert one["distance"] == pytest.approx(np.linalg.norm(difference), rel=1e-12)
    # tensors/ of step 5 are of the state before the anchor
    rows = [x for x in table(out, "tensors") if x["step"] == 5 and x["kind"] == "param"]
    for row in rows:
        assert row["norm"] == pytest.approx(float(own[f"param/{row['name']}"].norm()), rel=1e-12)


def test_a_follower_that_was_killed_resumes_to_the_same_bits(led: Path, in_process: Main) -> None:
    disturb(led.parent / "leader/anchors")
    assert in_process(follow(led, "follower")) == 0
    whole, out = led.parent / "follower", led.parent / "resumed"
    shutil.copytree(whole, out)
    (out / "done.json").unlink()
    (out / "snapshots/00000007.safetensors").unlink()
    with (out / "anchors.jsonl").open("a") as file:
        file.write('{"step": 7')
    assert in_process([*follow(led, "resumed"), "--resume"]) == 0
    same_run(whole, out)
    assert lines(out) == lines(whole)


def refused(in_process: Main, arguments: list[str], code: int = 2) -> str:
    out = Path(arguments[arguments.index("--out") + 1])
    shutil.rmtree(out, ignore_errors=True)
    assert in_process(arguments) == code
    error = document(out, "error")
    conforms("error", error)
    return f"{error['kind']}: {error['message']}"


def test_an_anchor_that_is_not_the_leaders_is_refused(
    led: Path, small_run: Run, in_process: Main
) -> None:
    arguments, anchors = follow(led, "follower"), led.parent / "leader/anchors"
    path = anchors / "00000002.safetensors"
    good = path.read_bytes()
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    save_file(tensors, path, metadata={**metadata, "config_sha256": "0"})
    assert "bad_input: S-29" in refused(in_process, arguments)
    assert "its config_sha256 is 0" in refused(in_process, arguments)
    save_file({name: one.float() for name, one in tensors.items()}, path, metadata=metadata)
    assert "dtype float32, but this run's" in refused(in_process, arguments)
    path.write_bytes(good[:-3])
    assert "missing, cut or no safetensors" in refused(in_process, arguments)
    shutil.copy(anchors / "00000004.safetensors", path)
    assert "is the state after 4 updates, but its name says 2" in refused(in_process, arguments)
    path.unlink()
    message = refused(in_process, [*arguments, "--anchor-seconds", "0.2"], 1)
    assert message.startswith("failed: S-30: the anchor of step 2 did not come to ")
    assert "within 0.2 seconds" in message
    free = small_run()
    assert "is free; leave it out" in refused(in_process, follow(free, "follower"))
    alone = [*leg_arguments(free, led.parent / "follower"), "--anchor-seconds", "1"]
    assert "without --anchors" in refused(in_process, alone)
    assert "invalid seconds value" in refused_option(in_process, arguments)


def refused_option(in_process: Main, arguments: list[str]) -> str:
    command = [sys.executable, "-m", "stacks.torch_stack", *arguments, "--anchor-seconds", "-1"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 2
    return result.stderr


def test_a_follower_waits_for_an_anchor_that_comes_later(led: Path, in_process: Main) -> None:
    anchors = led.parent / "leader/anchors"
    hidden = anchors.rename(led.parent / "hidden")

    def come() -> None:
        time.sleep(0.3)
        hidden.rename(anchors)

    thread = threading.Thread(target=come)
    thread.start()
    assert in_process(follow(led, "follower")) == 0
    thread.join()
    same_run(led.parent / "leader", led.parent / "follower")


def test_a_signal_while_it_waits_stops_a_follower_that_can_resume(
    led: Path, in_process: Main
) -> None:
    anchors, out = led.parent / "leader/anchors", led.parent / "follower"
    last = anchors / "00000006.safetensors"
    last.rename(led.parent / "later")
    command = [sys.executable, "-m", "stacks.torch_stack", *follow(led, "follower")]
    leg = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 120
    while time.monotonic() < limit and not (
        (out / "steps.jsonl").exists() and len(steps(out)) == 6
    ):
        time.sleep(0.02)
    leg.send_signal(signal.SIGTERM)
    leg.communicate()
    assert leg.returncode == 130
    assert "while it waited for anchor 6" in document(out, "error")["message"]
    assert not (out / "snapshots/00000006.safetensors").exists()  # it would not be the anchor
    (led.parent / "later").rename(last)
    assert in_process([*follow(led, "follower"), "--resume"]) == 0
    same_run(led.parent / "leader", out)
    assert [one["step"] for one in lines(out)] == [2, 4, 6, 7]
