"""Legs as processes: however one ends, both are gone afterwards and the reason is one sentence."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import time
from pathlib import Path

import pytest

from oracle.errors import LegError, TraceError
from oracle.launch import run_legs
from oracle.leg import PASSED_ON, Leg, LegEnd, Limits, environment, new_nonce
from oracle.progress import LegState
from oracle.stacks import Stack, load_stacks
from oracle.trace import read_trace
from tests.unit_oracle_run.tiny import TinyRun, stacks_file

PATIENT = Limits(stall_seconds=30.0, grace_seconds=5.0)


def legs(tiny: TinyRun, folder: Path, **behaviours: str) -> list[Leg]:
    stacks = load_stacks(stacks_file(folder, **behaviours))
    return [
        Leg(
            name=name,
            stack=stacks[name],
            mode="train",
            config=tiny.config,
            root=tiny.folder,
            out=folder / name,
            logs=folder / "logs",
            nonce=f"nonce-{name}",
        )
        for name in behaviours
    ]


def ends(
    tiny: TinyRun, folder: Path, limits: Limits = PATIENT, **behaviours: str
) -> dict[str, LegEnd]:
    found = run_legs(legs(tiny, folder, **behaviours), limits=limits)
    return {end.name: end for end in found}


def is_gone(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_two_good_legs_end_without_error_and_leave_traces(tiny: TinyRun, tmp_path: Path) -> None:
    found = ends(tiny, tmp_path, a="good", b="good")
    assert [(end.return_code, end.error, end.last_step) for end in found.values()] == [
        (0, None, 3),
        (0, None, 3),
    ]
    for name in ("a", "b"):
        assert read_trace(tmp_path / name, nonce=f"nonce-{name}").steps.height == 4


def test_both_legs_run_at_the_same_time(tiny: TinyRun, tmp_path: Path) -> None:
    seen: list[tuple[int | None, ...]] = []
    run_legs(
        legs(tiny, tmp_path, a="slow", b="slow"),
        limits=PATIENT,
        on_progress=lambda states: seen.append(tuple(state.step for state in states)),
    )
    # One after the other, one leg would have no step, or its last, whenever the other has one.
    assert any(all(step is not None and step < 3 for step in steps) for steps in seen)


def test_a_crash_is_told_with_code_step_and_log_but_not_with_what_was_printed(
    tiny: TinyRun, tmp_path: Path
) -> None:
    found = ends(tiny, tmp_path, a="crash", b="slow")
    assert found["a"].error == (
        "exited with code 1 after step 1 and left no error.json (see logs/a.stderr)."
    )
    assert "patient Smith" in (tmp_path / "logs" / "a.stderr").read_text()


def test_a_leg_that_could_not_even_say_why_is_told_by_its_full_disk(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_left = type(shutil.disk_usage(tmp_path))(10**9, 10**9, 4096)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: nothing_left)
    found = ends(tiny, tmp_path, a="crash", b="slow")
    assert found["a"].error == (
        f"exited with code 1 after step 1 and left no error.json; the disk of {tmp_path / 'a'} is "
        "full, 4,096 bytes are left (see logs/a.stderr)."
    )


def test_a_full_disk_is_told_beside_a_sentence_that_does_not_know_of_it(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_left = type(shutil.disk_usage(tmp_path))(10**9, 10**9, 4096)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: nothing_left)
    found = ends(tiny, tmp_path, a="bad-input", b="slow")
    assert found["a"].error == (
        f"train.jsonl:3: no messages; add them; the disk of {tmp_path / 'a'} is full, 4,096 bytes "
        "are left."
    )


def test_when_a_leg_crashes_the_other_ends_after_its_step(tiny: TinyRun, tmp_path: Path) -> None:
    found = ends(tiny, tmp_path, a="crash", b="slow")
    assert found["b"].error == "was stopped because a failed."
    assert found["b"].stopped_for == "a"
    assert found["b"].return_code == 130
    assert (tmp_path / "b" / "error.json").exists()  # it had time to say so


def test_bad_input_is_told_in_the_leg_s_own_sentence_on_one_line(
    tiny: TinyRun, tmp_path: Path
) -> None:
    found = ends(tiny, tmp_path, a="bad-input", b="slow")
    assert found["a"].return_code == 2
    assert found["a"].error == "train.jsonl:3: no messages; add them."


@pytest.mark.parametrize("behaviour", ["hang", "stubborn"])
def test_a_leg_that_hangs_is_stopped_and_its_last_step_named(
    tiny: TinyRun, tmp_path: Path, behaviour: str
) -> None:
    limits = Limits(stall_seconds=2.0, grace_seconds=0.5)
    found = ends(tiny, tmp_path, limits, a=behaviour, b="good")
    assert found["a"].error is not None
    assert found["a"].error.startswith("wrote nothing for 2 seconds after step 1")
    assert found["a"].return_code in (-signal.SIGTERM, -signal.SIGKILL)
    assert found["b"].error is None


def test_a_killed_leg_is_told_with_signal_and_step(tiny: TinyRun, tmp_path: Path) -> None:
    found = ends(tiny, tmp_path, a="killed", b="good")
    assert found["a"].return_code == -signal.SIGKILL
    assert found["a"].error == (
        "was killed by SIGKILL after step 1; out of memory? (see logs/a.stderr)."
    )


def test_a_full_disk_is_an_error_and_not_a_trace(tiny: TinyRun, tmp_path: Path) -> None:
    found = ends(tiny, tmp_path, a="full", b="good")
    assert found["a"].error is not None
    with pytest.raises(TraceError):
        read_trace(tmp_path / "a")


def test_garbage_on_both_outputs_is_no_fault(tiny: TinyRun, tmp_path: Path) -> None:
    found = ends(tiny, tmp_path, a="garbage", b="garbage")
    assert [end.error for end in found.values()] == [None, None]
    assert (tmp_path / "logs" / "a.stdout").stat().st_size == 200_000


def test_a_leg_that_prints_without_end_does_not_fill_the_disk(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oracle.launch.LARGEST_LOG_BYTES", 100_000)
    found = ends(tiny, tmp_path, a="chatter", b="good")
    assert [end.error for end in found.values()] == [None, None]  # it trained all the same
    log = (tmp_path / "logs" / "a.stderr").read_text()
    assert len(log) <= 100_000
    assert log.startswith("warning 0\n")  # what came first is kept, and what came last
    assert log.endswith("the end\n")


def test_children_that_a_leg_leaves_behind_are_ended_with_it(tiny: TinyRun, tmp_path: Path) -> None:
    found = ends(tiny, tmp_path, a="child", b="good")
    assert found["a"].error is None
    child = int((tmp_path / "child.pid").read_text())
    deadline = time.monotonic() + 2.0
    while not is_gone(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert is_gone(child)


def test_a_stack_that_cannot_be_started_stops_the_other(tiny: TinyRun, tmp_path: Path) -> None:
    good, missing = legs(tiny, tmp_path, a="slow", b="good")
    stack = Stack(name="b", argv=("/nowhere/trainer",), env={}, root=tmp_path)
    broken = Leg(**{**vars(missing), "stack": stack})
    pids: dict[str, int] = {}
    with pytest.raises(LegError, match=r"stack b cannot be started: /nowhere/trainer \(No such"):
        run_legs([good, broken], limits=PATIENT, on_start=pids.update)
    assert is_gone(pids["a"])


def test_an_interrupt_stops_both_legs_and_is_passed_on(tiny: TinyRun, tmp_path: Path) -> None:
    pids: dict[str, int] = {}
    before = signal.getsignal(signal.SIGTERM)

    def cancel_job(states: tuple[LegState, ...]) -> None:
        if all(state.step is not None for state in states):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        run_legs(
            legs(tiny, tmp_path, a="slow", b="slow"),
            limits=PATIENT,
            on_start=pids.update,
            on_progress=cancel_job,
        )
    assert set(pids) == {"a", "b"}
    assert all(map(is_gone, pids.values()))
    assert (tmp_path / "a" / "error.json").exists()  # it ended after its step, by itself
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_leg_sees_only_what_is_passed_on(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    stack = Stack(name="a", argv=("x",), env={"PYTHONPATH": "/mine"}, root=tmp_path)
    seen = environment(stack)
    assert seen["PYTHONPATH"] == "/mine"
    assert seen.keys() <= {*PASSED_ON, "PYTHONPATH"}
    assert "OMP_NUM_THREADS" not in seen


def test_logs_are_for_their_owner_alone(tiny: TinyRun, tmp_path: Path) -> None:
    ends(tiny, tmp_path, a="good", b="good")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "logs").iterdir()}
    assert modes == {0o600}
    written = tmp_path / "a" / "tokens" / "00000.jsonl"
    assert stat.S_IMODE(written.stat().st_mode) == 0o600  # by the umask that a leg is given


def test_argv_is_that_of_the_contract(tiny: TinyRun, tmp_path: Path) -> None:
    leg = legs(tiny, tmp_path, a="good")[0]
    assert leg.argv[-9:] == [
        *("train", "--config", str(tiny.config), "--root", str(tiny.folder)),
        *("--out", str(tmp_path / "a"), "--nonce", "nonce-a"),
    ]
    assert Leg(**{**vars(leg), "resume": True, "trace": False}).argv[-2:] == [
        "--resume",
        "--no-trace",
    ]


def test_nonces_differ() -> None:
    assert len({new_nonce() for _ in range(100)}) == 100


def test_progress_shows_phases_steps_and_losses(tiny: TinyRun, tmp_path: Path) -> None:
    seen: list[tuple[LegState, ...]] = []
    run_legs(legs(tiny, tmp_path, a="slow", b="good"), limits=PATIENT, on_progress=seen.append)
    assert "training" in [states[0].phase for states in seen]
    assert [state.phase for state in seen[-1]] == ["done", "done"]
    assert seen[-1][0].losses == {0: 2.0, 1: 1.0, 2: 2.0 / 3, 3: 0.5}
    assert seen[-1][0].step == 3
