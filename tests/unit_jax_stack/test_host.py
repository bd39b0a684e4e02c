"""Judges: a leg without a condition, the kernel, Python's own counters."""

import gc
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stacks.jax_stack.host import CHILD, CONDITIONS, Host
from stacks.jax_stack.resources import read_resources

from .conftest import Finished, Workshop
from .test_train import comparable, run_here, validate, wait_for_lines

Make = Callable[[], Workshop]


@pytest.fixture(autouse=True)
def _process() -> Iterator[None]:
    """`main` takes over signals, the umask and the collector of its process."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    mask = os.umask(0o022)
    yield
    gc.enable()
    os.umask(mask)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def plain(make_workshop: Make) -> tuple[Workshop, Finished]:
    shop = make_workshop()
    leg = run_here(shop, "train", "plain")
    assert leg.code == 0
    return shop, leg


def resources_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "resources.jsonl").read_bytes().splitlines()]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_no_condition_changes_a_bit(plain: tuple[Workshop, Finished], condition: str) -> None:
    shop, free = plain
    run = shop.run if condition in CHILD else partial(run_here, shop)
    leg = run("train", condition, "--host", condition)
    assert leg.code == 0, leg.stderr
    assert comparable(leg) == comparable(free)
    header = leg.json("header.json")
    validate(header, "header")
    assert header["provenance"]["host"] == condition
    runs = [line["collections"] for line in resources_of(leg.out)]
    if condition == "gc-off":
        assert runs == runs[:1] * 6
    if condition == "gc-every-step":
        full = [generations[2] for generations in runs]
        assert full == sorted(set(full))


def test_a_line_of_resources_after_each_step(plain: tuple[Workshop, Finished]) -> None:
    _, leg = plain
    assert "host" not in leg.json("header.json")["provenance"]
    lines = resources_of(leg.out)
    assert [line["step"] for line in lines] == list(range(6))
    for line in lines:
        validate(line, "resource")
    assert "resources.jsonl" not in leg.json("done.json")["files"]
    assert (leg.out / "resources.jsonl").stat().st_mode & 0o777 == 0o600


def test_resources_are_those_of_the_kernel_and_of_python() -> None:
    with ExitStack() as files:
        for _ in range(5):
            files.enter_context(open(os.devnull, "rb"))
        found = read_resources()
        assert found["threads"] == len(os.listdir("/proc/self/task"))
        status = Path("/proc/self/status").read_text()
        kilobytes = int(status.partition("VmRSS:")[2].split()[0])
        assert found["resident_bytes"] == pytest.approx(kilobytes * 1024, rel=0.05)
        assert found["collections"] == [part["collections"] for part in gc.get_stats()]
        assert found["open_files"] == len(os.listdir("/proc/self/fd")) - 1
    assert read_resources()["open_files"] == found["open_files"] - 5


def test_a_fresh_thread_does_one_step_and_its_errors_arrive() -> None:
    host = Host(condition="fresh-thread")
    assert host.step(threading.current_thread) is not threading.main_thread()
    assert Host(condition=None).step(threading.current_thread) is threading.main_thread()
    with pytest.raises(ZeroDivisionError):
        host.step(lambda: 1 // 0)


@pytest.mark.parametrize("condition", CHILD)
def test_signals_and_exit_codes_are_passed_on(
    plain: tuple[Workshop, Finished], condition: str
) -> None:
    shop, _ = plain
    name = f"stopped-{condition}"
    process = shop.start("train", name, "--host", condition)
    wait_for_lines(shop.root / name, 1)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=120)
    leg = Finished(code=process.returncode, stderr=stderr, out=shop.root / name)
    assert leg.code in (0, 130)  # 0: the last update was made before the signal arrived
    if leg.code == 130:
        assert leg.json("error.json")["kind"] == "interrupted"
        assert stderr.strip().splitlines()[-1] == leg.json("error.json")["message"]
    again = shop.run("train", name, "--host", condition)
    assert again.code == 2  # the directory is not empty


def test_the_child_ends_with_its_parent(plain: tuple[Workshop, Finished]) -> None:
    shop, _ = plain
    process = shop.start("train", "orphan", "--host", "fork")
    wait_for_lines(shop.root / "orphan", 1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.communicate(timeout=120)  # until the child has closed the pipe of stderr too
    deadline = time.monotonic() + 120
    while any(map(is_running, children)):
        assert time.monotonic() < deadline, "the child outlives its parent"
        time.sleep(0.05)


def is_running(process: str) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
