from pathlib import Path

import numpy as np

from stacks.jax_stack.batch import Position
from stacks.jax_stack.safetensors import read_tensors
from stacks.jax_stack.snapshot import Snapshot, newest_snapshot, write_snapshot


def snapshot(num_updates: int, config: str = "c") -> Snapshot:
    value = {"w": np.full((2,), float(num_updates))}
    return Snapshot(
        num_updates=num_updates,
        position=Position(epoch=1, row=num_updates),
        params=value | {"frozen": np.ones(1)},
        m=value,
        v=value,
        config_sha256=config,
    )


def test_the_newest_two_are_kept_and_hold_what_the_clause_says(tmp_path: Path) -> None:
    for n in (2, 4, 10):
        write_snapshot(tmp_path, snapshot(n))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "00000004.safetensors",
        "00000010.safetensors",
    ]
    file = read_tensors(tmp_path / "00000010.safetensors")
    assert set(file.tensors) == {"param/w", "param/frozen", "m/w", "v/w"}
    assert file.metadata == {
        "step": "10",
        "epoch": "1",
        "row": "10",
        "config_sha256": "c",
        "contract": "1",
    }


def test_a_snapshot_that_is_not_whole_is_passed_over(tmp_path: Path) -> None:
    write_snapshot(tmp_path, snapshot(2))
    write_snapshot(tmp_path, snapshot(4))
    newest = tmp_path / "00000004.safetensors"
    newest.write_bytes(newest.read_bytes()[:-3])
    (tmp_path / ".00000006.tmp").write_bytes(b"half")
    found = newest_snapshot(tmp_path, "c")
    assert found is not None
    assert (found.num_updates, found.position) == (2, Position(epoch=1, row=2))
    assert found.array("param", "w").tolist() == [2.0, 2.0]


def test_a_snapshot_of_another_config_is_none(tmp_path: Path) -> None:
    assert newest_snapshot(tmp_path / "absent", "c") is None
    write_snapshot(tmp_path, snapshot(2, config="other"))
    assert newest_snapshot(tmp_path, "c") is None
