"""Judges: NumPy on the files that both parts leave, and unbroken legs."""

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacks.jax_stack.numerics import tensors_sha256
from stacks.jax_stack.safetensors import read_tensors, write_tensors

from .conftest import Finished, Workshop
from .test_train import comparable, run_here, validate, wait_for_lines

Make = Callable[[], Workshop]
ANCHORS = (3, 6, 7)  # every 3 of 7 steps, and the last


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    mask = os.umask(0o022)
    yield
    os.umask(mask)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def anchor_name(n: int) -> str:
    return f"{n:08d}.safetensors"


def make_anchored(shop: Workshop, **changes: str) -> None:
    path = shop.write_config(train_num_steps="7", trace_tensors_every="1", **changes)
    path.write_text(path.read_text() + '\n[trajectory]\nmode = "anchored"\nanchor_every = 3\n')


def move(path: Path, factor: float) -> None:
    """Another leader: every tensor of an anchor is scaled."""
    file = read_tensors(path)
    write_tensors(path, {name: x * factor for name, x in file.tensors.items()}, file.metadata)


@pytest.fixture(scope="module")
def led(make_workshop: Make) -> tuple[Workshop, Finished]:
    """A leader, and in `anchors` what it left with the first anchor moved."""
    shop = make_workshop()
    make_anchored(shop)
    leader = run_here(shop, "train", "leader")
    assert leader.code == 0
    shutil.copytree(leader.out / "anchors", shop.root / "anchors")
    move(shop.root / "anchors" / anchor_name(3), 1.25)
    return shop, leader


def follow(shop: Workshop, out: str, *flags: str, anchors: str = "anchors") -> Finished:
    return run_here(shop, "train", out, "--anchors", str(shop.root / anchors), *flags)


@pytest.fixture(scope="module")
def followed(led: tuple[Workshop, Finished]) -> Finished:
    leg = follow(led[0], "follower")
    assert leg.code == 0
    return leg


def lines_of(leg: Finished) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (leg.out / "anchors.jsonl").read_bytes().splitlines()]


def test_a_leader_writes_every_anchor_and_deletes_none(led: tuple[Workshop, Finished]) -> None:
    _, leader = led
    folder = leader.out / "anchors"
    assert sorted(path.name for path in folder.iterdir()) == [anchor_name(n) for n in ANCHORS]
    assert folder.stat().st_mode & 0o777 == 0o700
    pair = [leader.out / place / anchor_name(6) for place in ("anchors", "snapshots")]
    assert pair[0].read_bytes() == pair[1].read_bytes()
    header = leader.json("header.json")
    validate(header, "header")
    assert header["trajectory"] == {"mode": "anchored", "anchor_every": 3, "role": "leader"}
    assert not any("anchors" in name for name in leader.json("done.json")["files"])


def test_following_the_own_anchors_changes_nothing(led: tuple[Workshop, Finished]) -> None:
    shop, leader = led
    leg = follow(shop, "itself", anchors="leader/anchors")
    assert leg.code == 0
    assert comparable(leg) == comparable(leader)
    for line in lines_of(leg):
        assert {(row["distance"], row["max_abs"]) for row in line["tensors"]} == {(0.0, 0.0)}


def test_lines_are_what_numpy_says_of_the_files(
    led: tuple[Workshop, Finished], followed: Finished
) -> None:
    shop, leader = led
    lines = lines_of(followed)
    assert [line["step"] for line in lines] == list(ANCHORS)
    own = read_tensors(leader.out / "anchors" / anchor_name(3)).tensors  # equal up to step 3
    anchor = read_tensors(shop.root / "anchors" / anchor_name(3)).tensors
    for line in lines:
        validate(line, "anchor")
    assert lines[0]["sha256"] == tensors_sha256(anchor)
    names = [f"{row['kind']}/{row['name']}" for row in lines[0]["tensors"]]
    assert sorted(names) == sorted(anchor)
    assert names == sorted(names, key=lambda name: name.partition("/")[::2])
    for name, row in zip(names, lines[0]["tensors"], strict=True):
        apart = own[name] - anchor[name]
        assert row["distance"] == pytest.approx(np.linalg.norm(apart), rel=1e-14)
        assert row["norm"] == pytest.approx(np.linalg.norm(anchor[name]), rel=1e-14)
        assert row["max_abs"] == np.abs(apart).max()
    header, done = followed.json("header.json"), followed.json("done.json")
    validate(header, "header")
    validate(done, "done")
    assert header["trajectory"]["role"] == "follower"
    assert "anchors.jsonl" in done["files"]
    assert "resources.jsonl" not in done["files"]
    assert (followed.out / "anchors.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_follower_goes_on_from_the_anchor(
    led: tuple[Workshop, Finished], followed: Finished
) -> None:
    """The anchor of 3 was moved, which shows from step 3 on; that of 6 puts an end to it."""
    _, leader = led

    def losses(leg: Finished) -> list[float]:
        return [line["loss"] for line in leg.steps()]

    assert losses(followed)[:3] == losses(leader)[:3]
    assert losses(followed)[3] != losses(leader)[3]
    assert losses(followed)[6] == losses(leader)[6]
    final = followed.json("done.json")["final"]
    assert final == leader.json("done.json")["final"]  # step 6 began from the leader's state
    assert lines_of(followed)[2]["tensors"][0]["distance"] == 0.0


def test_the_snapshot_of_n_is_written_after_the_anchor_was_taken(
    led: tuple[Workshop, Finished], followed: Finished
) -> None:
    shop, _ = led
    own = read_tensors(followed.out / "snapshots" / anchor_name(6))
    anchor = read_tensors(shop.root / "anchors" / anchor_name(6))
    assert own.metadata == anchor.metadata
    assert tensors_sha256(own.tensors) == tensors_sha256(anchor.tensors)


def comparable_with_lines(leg: Finished) -> dict[str, Any]:
    return comparable(leg) | {"anchors": (leg.out / "anchors.jsonl").read_bytes()}


@pytest.mark.parametrize("kept", [3, 5])
def test_a_follower_killed_at_any_time_resumes_to_the_same_bits(
    led: tuple[Workshop, Finished], followed: Finished, kept: int
) -> None:
    """What a leg leaves that is killed after `kept` steps; a later line, and a torn one."""
    shop, _ = led
    name = f"killed-{kept}"
    process = shop.start("train", name, "--anchors", str(shop.root / "anchors"))
    wait_for_lines(shop.root / name, kept)
    process.kill()
    process.communicate()
    with (shop.root / name / "anchors.jsonl").open("ab") as file:
        file.write(b'{"step": 7, "tensors": []}\n{"torn')
    leg = follow(shop, name, "--resume")
    assert leg.code == 0
    assert comparable_with_lines(leg) == comparable_with_lines(followed)


def test_a_follower_stopped_while_it_waits_takes_the_anchor_when_it_resumes(
    led: tuple[Workshop, Finished], followed: Finished
) -> None:
    shop, _ = led
    process = shop.start("train", "waiting", "--anchors", str(shop.root / "later"))
    wait_for_lines(shop.root / "waiting", 3)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    leg = Finished(code=process.returncode, stderr="", out=shop.root / "waiting")
    assert leg.code == 130
    assert (leg.out / "snapshots" / anchor_name(3)).exists()
    assert not lines_of(leg)
    leg = follow(shop, "waiting", "--resume")
    assert leg.code == 0
    assert comparable_with_lines(leg) == comparable_with_lines(followed)


def test_a_follower_waits_for_an_anchor_that_comes_late(
    led: tuple[Workshop, Finished], followed: Finished
) -> None:
    shop, _ = led
    (shop.root / "late").mkdir()

    def bring() -> None:
        for n in ANCHORS:
            time.sleep(0.2)
            shutil.copy(shop.root / "anchors" / anchor_name(n), shop.root / "late/.part")
            (shop.root / "late/.part").rename(shop.root / "late" / anchor_name(n))

    thread = threading.Thread(target=bring)
    thread.start()
    leg = follow(shop, "patient", anchors="late")
    thread.join()
    assert leg.code == 0
    assert comparable_with_lines(leg) == comparable_with_lines(followed)


def test_an_anchor_that_never_comes_fails_with_its_number_and_the_seconds(
    led: tuple[Workshop, Finished],
) -> None:
    leg = follow(led[0], "alone", "--anchor-seconds", "0.25", anchors="nowhere")
    error = leg.json("error.json")
    assert (leg.code, error["kind"]) == (1, "failed")
    assert "the anchor of 3 updates did not come within 0.25 s" in error["message"]


def spoil(path: Path, kind: str) -> None:
    file = read_tensors(path)
    if kind == "cut":
        os.truncate(path, path.stat().st_size - 3)
    elif kind == "dtype":
        narrow = {name: x.astype(np.float32) for name, x in file.tensors.items()}
        write_tensors(path, narrow, file.metadata)
    else:
        write_tensors(path, file.tensors, file.metadata | json.loads(kind))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("cut", "truncated"),
        ("dtype", "is float32, the run holds float64"),
        ('{"config_sha256": "0000"}', "of the config 0000"),
        ('{"step": "2"}', "after 2 updates, its name and the leg say 3"),
    ],
)
def test_an_anchor_of_something_else_is_refused(
    led: tuple[Workshop, Finished], tmp_path: Path, kind: str, words: str
) -> None:
    shop, _ = led
    shutil.copytree(shop.root / "anchors", tmp_path / "spoilt")
    spoil(tmp_path / "spoilt" / anchor_name(3), kind)
    leg = follow(shop, str(tmp_path / "refused"), anchors=str(tmp_path / "spoilt"))
    error = leg.json("error.json")
    assert (leg.code, error["kind"]) == (2, "bad_input")
    assert words in error["message"]


def test_anchors_of_a_free_run_are_refused(workshop: Workshop) -> None:
    leg = follow(workshop, "free")
    assert leg.code == 2
    assert "is for a run whose trajectory.mode is anchored" in leg.json("error.json")["message"]


def test_a_follower_without_a_trace_follows_as_well(
    led: tuple[Workshop, Finished], followed: Finished
) -> None:
    leg = follow(led[0], "untraced", "--no-trace")
    assert leg.code == 0
    assert leg.json("done.json")["final"] == followed.json("done.json")["final"]
    assert lines_of(leg) == lines_of(followed)
