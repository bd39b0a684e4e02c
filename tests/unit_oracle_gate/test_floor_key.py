"""The key of a floor changes with everything that the floor depends on, and with nothing else."""

from __future__ import annotations

import pytest

from tests.unit_oracle_gate.case import Case
from tests.unit_oracle_judge.synthetic import Documents
from tests.unit_oracle_run.command import oracle


def key(case: Case, *options: str, run: str = "latest") -> tuple[int, str]:
    ended = oracle("floor-key", run, "--out", str(case.out), *options)
    return ended.returncode, ended.stdout.strip()


def test_a_render_and_a_training_run_have_one_key(case: Case) -> None:
    paths = [case.run(mode="render"), case.run(mode="train"), case.run(mode="render")]
    keys = {key(case, run=str(path))[1] for path in paths}
    assert len(keys) == 1
    assert keys.pop().startswith("tiny-")


def new_code(made: Documents) -> None:
    made["header"]["provenance"]["code_sha256"] = "f" * 64


def new_version(made: Documents) -> None:
    made["header"]["provenance"]["versions"] = {"numpy": "2.4.7"}


def new_machine(made: Documents) -> None:
    made["header"]["provenance"]["machine"]["cores"] = 64


@pytest.mark.parametrize("change", [new_code, new_version, new_machine])
def test_another_leg_has_another_key(case: Case, change: object) -> None:
    before = key(case, run=str(case.run(mode="render")))
    after = key(case, run=str(case.run(change, mode="render")))  # type: ignore[arg-type]
    assert before != after


def test_other_weights_and_another_config_have_another_key(case: Case) -> None:
    path = case.run(mode="render")
    keys = [key(case, run=str(path))]
    weights = case.tiny.folder / "checkpoint" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    keys.append(key(case, run=str(path)))
    case.tiny.set("seed", 4)
    keys.append(key(case, run=str(case.run(mode="render"))))
    assert len(set(keys)) == 3


def test_a_floor_is_told_to_hold_when_it_does(case: Case) -> None:
    path = str(case.run(mode="render"))
    assert key(case, "--holds", run=path)[0] == 3
    case.calibrate(files=case.checkpoint_files())
    assert key(case, "--holds", run=path)[0] == 0
    assert key(case, "--holds", run=str(case.run(new_code, mode="render")))[0] == 3
    case.tiny.set("seed", 4)
    assert key(case, "--holds", run=str(case.run(mode="render")))[0] == 3
