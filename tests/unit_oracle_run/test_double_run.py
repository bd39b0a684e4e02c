"""`oracle run` and `oracle render`: run directory, verdicts, exit codes, interrupts, resume."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from oracle.document import violation
from oracle.runs import open_run, refuse_running
from tests.unit_oracle_run.command import ORACLE, Ended, oracle
from tests.unit_oracle_run.tiny import TinyRun, stacks_file


class Folder:
    """A folder with a tiny run, legs of all behaviours, and a place for runs."""

    def __init__(self, tiny: TinyRun, path: Path) -> None:
        self.tiny, self.path, self.out = tiny, path, path / "runs"
        behaviours = (
            *("good", "crash", "killed-once", "nonce", "no-footer", "leftover", "cut"),
            *("bad-input", "slow", "nan", "hang"),
        )
        self.stacks = stacks_file(path, torch="good", jax="good", **{b: b for b in behaviours})

    def argv(self, *options: str, stacks: str = "torch,jax", verb: str = "run") -> list[str]:
        where = ["--stacks-file", str(self.stacks), "--out", str(self.out)]
        return [verb, str(self.tiny.config), *where, "--stacks", stacks, *options]

    def run(self, *options: str, **keywords: str) -> Ended:
        return oracle(*self.argv(*options, **keywords))

    def only(self) -> Path:
        others = self.out / "latest", self.out / "store"
        (found,) = (path for path in self.out.iterdir() if path not in others)
        return found


@pytest.fixture
def folder(tiny: TinyRun, tmp_path: Path) -> Folder:
    return Folder(tiny, tmp_path)


def verdict_of(run: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((run / "verdict.json").read_text())
    assert violation(document, "verdict") is None
    return document


def test_a_run_leaves_manifest_bundle_traces_logs_verdict_and_report(folder: Folder) -> None:
    ended = folder.run()
    run = folder.only()
    assert re.fullmatch(r"tiny-\d{8}T\d{6}Z-[0-9a-f]{4}", run.name)
    assert {path.name for path in run.iterdir()} == {
        *("run.json", "bundle", "torch", "jax", "logs", "verdict.json", "report.html"),
    }
    assert (run / "bundle" / "run.toml").read_bytes() == folder.tiny.config.read_bytes()
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["run"] == run.name
    assert manifest["status"] == "finished"
    assert manifest["purpose"] == "cross"
    assert manifest["root"] == str(folder.tiny.folder)
    nonces = {leg["nonce"] for leg in manifest["legs"].values()}
    assert len(nonces) == 2
    verdict = verdict_of(run)
    assert verdict["run"] == run.name
    assert ended.returncode == verdict["exit_code"] == 3  # no noise floor: INCONCLUSIVE
    assert "INCONCLUSIVE" in ended.stdout


def test_progress_of_a_log_is_plain_lines_with_both_losses(folder: Folder) -> None:
    told = folder.run(stacks="torch,slow").stderr.splitlines()
    assert "slow: training" in told
    assert "slow: done" in told
    assert any("slow 4/4 loss 0.500000 · loss differs by 0.0e+00 at most" in line for line in told)
    assert not any("\x1b" in line for line in told)


def test_json_goes_to_stdout_alone(folder: Folder) -> None:
    ended = folder.run("--json", "--no-report")
    assert json.loads(ended.stdout) == verdict_of(folder.only())
    assert not (folder.only() / "report.html").exists()


def test_a_stack_against_itself_is_a_self_run(folder: Folder) -> None:
    ended = folder.run(stacks="torch,torch")
    assert ended.returncode == 0
    assert verdict_of(folder.only())["purpose"] == "self"
    assert {"torch-a", "torch-b"} <= {path.name for path in folder.only().iterdir()}


def test_render_compares_without_training(folder: Folder) -> None:
    ended = folder.run(verb="render")
    verdict = verdict_of(folder.only())
    assert ended.returncode == 0
    assert (verdict["verdict"], verdict["mode"]) == ("AGREE", "render")
    assert not (folder.only() / "torch" / "steps.jsonl").exists()


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        ("crash", "exited with code 1 after step 1 and left no error.json"),
        ("nonce", "has the nonce 'of-another-run'"),
        ("no-footer", "has no done.json, so the leg did not finish"),
        ("cut", "its last line (4) was cut in the middle"),
        ("bad-input", "train.jsonl:3: no messages; add them."),
    ],
)
def test_a_leg_without_a_trace_is_an_error_that_names_it(
    folder: Folder, behaviour: str, expected: str
) -> None:
    ended = folder.run(stacks=f"good,{behaviour}")
    verdict = verdict_of(folder.only())
    assert ended.returncode == 2
    assert verdict["verdict"] == "ERROR"
    assert expected in verdict["legs"][1]["error"]
    assert verdict["reasons"] == [f"leg {behaviour}: {verdict['legs'][1]['error']}"]
    assert json.loads((folder.only() / "run.json").read_text())["status"] == "failed"
    assert "Traceback" not in ended.stdout + ended.stderr


def test_a_trace_left_over_from_an_earlier_run_is_never_taken_for_this_one(folder: Folder) -> None:
    """F07: the leg puts a whole trace of yesterday in its place and crashes."""
    ended = folder.run(stacks="good,leftover")
    assert (folder.only() / "leftover" / "done.json").exists()
    assert ended.returncode == 2
    assert verdict_of(folder.only())["verdict"] == "ERROR"


def test_what_a_leg_printed_is_in_no_report(folder: Folder) -> None:
    ended = folder.run(stacks="good,crash")
    run = folder.only()
    assert "patient Smith" in (run / "logs" / "crash.stderr").read_text()
    shown = ended.stdout + ended.stderr + (run / "verdict.json").read_text()
    assert "patient Smith" not in shown + (run / "report.html").read_text()


def test_a_loss_that_is_not_a_number_is_never_agreement(folder: Folder) -> None:
    assert folder.run(stacks="good,nan").returncode == 1


def test_a_killed_leg_resumes_with_its_nonce_and_ends_as_an_unbroken_one(folder: Folder) -> None:
    first = folder.run(stacks="good,killed-once")
    run = folder.only()
    assert first.returncode == 2
    command = f"oracle run --resume {run}"
    assert command in " ".join(verdict_of(run)["warnings"])
    before = json.loads((run / "run.json").read_text())
    inode = (run / "good" / "done.json").stat().st_ino

    second = oracle(*command.split()[1:], "--out", str(folder.out))
    after = json.loads((run / "run.json").read_text())
    assert second.returncode == 3
    assert verdict_of(run)["verdict"] == "INCONCLUSIVE"
    assert after["status"] == "finished"
    for name in ("good", "killed-once"):
        assert before["legs"][name]["nonce"] == after["legs"][name]["nonce"]
    assert (run / "good" / "done.json").stat().st_ino == inode  # a leg that was done stays
    steps = [(run / name / "steps.jsonl").read_text() for name in ("good", "killed-once")]
    assert steps[0] == steps[1]


def test_a_resume_on_another_config_is_refused_with_both_hashes(folder: Folder) -> None:
    folder.run(stacks="good,killed-once")
    folder.tiny.set("seed", 99)
    ended = oracle(*folder.argv("--resume", str(folder.only()), stacks="good,killed-once"))
    assert ended.returncode == 2
    assert re.search(r"has the hash [0-9a-f]{64} and the run began with [0-9a-f]{64}", ended.stderr)


def test_a_resume_on_changed_data_is_refused(folder: Folder) -> None:
    folder.run(stacks="good,killed-once")
    path = folder.tiny.folder / "eval.jsonl"
    path.write_text(path.read_text().replace("What?", "Who??"))
    ended = oracle("run", "--resume", str(folder.only()))
    assert ended.returncode == 2
    assert "eval.jsonl has the hash" in ended.stderr


def test_a_render_is_not_resumed_as_a_training_run(folder: Folder) -> None:
    folder.run(verb="render")
    ended = oracle("run", "--resume", str(folder.only()))
    assert ended.returncode == 2
    assert "is a render run; resume it with `oracle render`" in ended.stderr


def test_a_run_whose_leg_still_writes_is_not_resumed(folder: Folder) -> None:
    folder.run(stacks="good,killed-once")
    run = open_run(folder.only())
    nonce = run.manifest.legs["good"].nonce
    with subprocess.Popen(["python3", "-S", "-c", "import time; time.sleep(60)", nonce]) as process:
        legs = json.loads((run.path / "run.json").read_text())
        legs["legs"]["good"]["process_id"] = process.pid
        (run.path / "run.json").write_text(json.dumps(legs))
        ended = oracle("run", "--resume", str(run.path))
        process.kill()
    assert ended.returncode == 2
    assert f"leg good of {run.path.name} still runs as process {process.pid}" in ended.stderr
    refuse_running(open_run(run.path))  # the process is gone, and so is the refusal


def wait_for_steps(out: Path, legs: tuple[str, ...]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if all(list(out.glob(f"*/{leg}/steps.jsonl")) for leg in legs):
            return
        time.sleep(0.05)


def hears_an_interrupt() -> None:
    """As in a terminal: a job in the background of a script is born deaf to this signal."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_stops_both_legs_says_how_to_resume_and_exits_130(folder: Folder) -> None:
    folder.tiny.set("train.num_steps", 40)
    argv = [*ORACLE, *folder.argv(stacks="slow,hang")]
    process = subprocess.Popen(
        argv,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hears_an_interrupt,
    )
    wait_for_steps(folder.out, ("slow", "hang"))
    os.kill(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=30)
    run = folder.only()
    assert process.returncode == 130
    # The leg that hangs had to be killed; the fake legs keep no snapshots at all.
    assert f"stopped; no snapshot yet. To go on: oracle run --resume {run}" in told
    assert "Traceback" not in told
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["status"] == "interrupted"
    assert not (run / "verdict.json").exists()
    refuse_running(open_run(run))  # nothing is left running


def test_a_second_interrupt_does_not_wait(folder: Folder) -> None:
    folder.tiny.set("train.num_steps", 400)
    stacks = stacks_file(folder.path, a="stubborn", b="stubborn")
    argv = [*ORACLE, "run", str(folder.tiny.config), "--stacks", "a,b", "--out", str(folder.out)]
    process = subprocess.Popen(
        [*argv, "--stacks-file", str(stacks)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hears_an_interrupt,
    )
    wait_for_steps(folder.out, ("a", "b"))
    started = time.monotonic()
    # Two signals that come before the first is handled are one, so it goes on asking.
    while process.poll() is None and time.monotonic() < started + 120:
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    ended = time.monotonic()
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert ended - started < 30  # the grace of 30 seconds was not waited for
    refuse_running(open_run(folder.only()))


def test_a_leg_that_stalls_is_an_error_with_its_last_step(folder: Folder) -> None:
    ended = folder.run("--stall-seconds", "2", stacks="good,hang")
    assert ended.returncode == 2
    error = verdict_of(folder.only())["legs"][1]["error"]
    assert error.startswith("wrote nothing for 2 seconds after step 1")


def test_bad_input_starts_no_leg_and_makes_no_directory(folder: Folder) -> None:
    folder.tiny.set("train.micro_batch_size", 0)
    ended = folder.run()
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"oracle: {folder.tiny.config}:")
    assert not folder.out.exists()


def test_files_of_judging_are_read_before_the_legs_start(folder: Folder) -> None:
    for option in ("--tolerances", "--floor"):
        ended = folder.run(option, "/nowhere.toml")
        assert ended.returncode == 2
        assert "/nowhere.toml" in ended.stderr
    assert not folder.out.exists()


def test_a_directory_that_cannot_be_made_is_one_sentence(folder: Folder) -> None:
    folder.out = folder.tiny.config / "runs"
    ended = folder.run()
    assert ended.returncode == 2
    assert ended.stderr.startswith("oracle: Not a directory")
    assert len(ended.stderr.splitlines()) == 1


def test_a_run_is_found_by_the_end_of_its_id(folder: Folder) -> None:
    folder.run(stacks="torch,torch")
    run = folder.only()
    for text in (run.name, run.name[-4:], str(run)):
        ended = oracle("show", text, "--out", str(folder.out))
        assert ended.returncode == 0
        assert "AGREE" in ended.stdout
    ended = oracle("show", "zzzz", "--out", str(folder.out))
    assert ended.returncode == 2
    assert "no run 'zzzz'" in ended.stderr


def test_latest_leads_to_the_run_that_was_begun_last(folder: Folder) -> None:
    folder.run()
    first = folder.only()
    assert oracle("show", "latest", "--out", str(folder.out)).returncode == 0
    assert (folder.out / "latest").resolve() == first.resolve()
    folder.run()
    assert (folder.out / "latest").resolve() != first.resolve()
    assert oracle("show", first.name, "--out", str(folder.out)).returncode == 0


def test_traces_are_compared_after_the_fact(folder: Folder) -> None:
    folder.run(stacks="torch,jax")
    run = folder.only()
    ended = oracle("compare", str(run / "torch"), str(run / "torch"), "--purpose", "self", "--json")
    assert ended.returncode == 0
    assert json.loads(ended.stdout)["purpose"] == "self"
    ended = oracle("compare", str(run / "torch"), str(run / "nowhere"))
    assert ended.returncode == 2
    assert "is not a directory" in ended.stderr


def test_a_manifest_is_refused_when_it_is_none(tmp_path: Path) -> None:
    ended = oracle("run", "--resume", str(tmp_path), "--out", str(tmp_path))
    assert ended.returncode == 2
    (tmp_path / "run.json").write_text("{}")
    ended = oracle("run", "--resume", str(tmp_path))
    assert ended.returncode == 2
    assert "run.json is malformed; start a new run" in ended.stderr
