"""What is recorded of a run, and when it is listed."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
from pathlib import Path

import pytest

from oracle.errors import OracleError
from oracle.runs import open_run
from oracle.store import Filters, find_run
from tests.unit_oracle_store.conftest import Kept
from tests.unit_oracle_store.made import COMMIT, LARGE, make_run, put, run_name, verdict


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_file_of_a_judged_run_is_an_object_named_by_its_hash_once(kept: Kept) -> None:
    kept.add(0, large=b"s" * LARGE)
    folder = kept.out / run_name(0)
    files = [path for path in folder.rglob("*") if path.is_file()]
    objects = kept.objects()
    assert set(objects) == {sha256(path) for path in files}
    assert len(objects) == len(files) - 1  # both legs have the same snapshot
    assert all(sha256(path) == name for name, path in objects.items())


def test_all_that_the_store_writes_is_for_this_user_alone(kept: Kept) -> None:
    kept.add(0, large=b"s" * LARGE)
    kept.store.pin(kept.store.find("latest"), "a gate")
    for path in (kept.out / "store").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_the_index_answers_what_manifest_and_verdict_say(kept: Kept) -> None:
    stored = kept.add(7, name="DIVERGED")
    document = verdict(7, name="DIVERGED")
    assert (stored.id, stored.verdict, stored.headline) == (
        document["run"],
        "DIVERGED",
        document["headline"],
    )
    assert (stored.first_phase, stored.first_step, stored.num_steps) == ("mask", 3, 4)
    assert (stored.commit, stored.stacks) == (COMMIT, ("torch", "jax"))
    assert stored.max_relative_loss_difference == 2e-16
    assert stored.num_bytes == sum(
        path.stat().st_size for path in (kept.out / stored.id).rglob("*") if path.is_file()
    )


def test_a_figure_that_is_not_finite_is_none(kept: Kept) -> None:
    path = make_run(kept.out, 0)
    document = verdict(0)
    document["summary"]["max_relative_loss_difference"] = "Infinity"
    put(path / "verdict.json", json.dumps(document).encode())
    assert kept.store.record(open_run(path)).max_relative_loss_difference is None


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        (Filters(), [4, 3, 2, 1, 0]),
        (Filters(limit=2), [4, 3]),
        (Filters(verdict="DIVERGED"), [3, 1]),
        (Filters(config="other"), [4]),
        (Filters(commit="abc"), [2]),
        (Filters(commit="a%"), []),
        (Filters(stack="mine"), [0]),
        (Filters(stack="jax"), [4, 3, 2, 1, 0]),
        (Filters(purpose="self"), []),
        (Filters(mode="train", verdict="AGREE", limit=1), [4]),
        (Filters(since="2026-01-01T00:03:00+00:00"), [4, 3]),
    ],
)
def test_filters(kept: Kept, filters: Filters, numbers: list[int]) -> None:
    path = make_run(kept.out, 0)
    document = verdict(0)
    document["legs"][0] |= {"stack": "mine"}
    put(path / "verdict.json", json.dumps(document).encode())
    kept.store.record(open_run(path))
    kept.add(1, name="DIVERGED")
    kept.add(2, git_commit="abc" + "0" * 37 + "+")
    kept.add(3, name="DIVERGED")
    kept.add(4, config="other")
    names = [run_name(number, "other" if number == 4 else "tiny") for number in numbers]
    assert [run.id for run in kept.store.runs(filters)] == names


def test_a_run_without_a_verdict_is_refused_and_not_listed(kept: Kept) -> None:
    path = make_run(kept.out, 0)
    (path / "verdict.json").unlink()
    with pytest.raises(OracleError, match="kept when it was judged"):
        kept.store.record(open_run(path))
    assert kept.ids() == []


def test_the_trace_of_a_leg_without_footer_is_left_out(kept: Kept) -> None:
    path = make_run(kept.out, 0, name="ERROR")
    (path / "jax" / "done.json").unlink()
    kept.store.record(open_run(path))
    assert sha256(path / "jax" / "steps.jsonl") not in kept.objects()
    assert sha256(path / "torch" / "steps.jsonl") in kept.objects()


def test_recording_again_changes_nothing_unless_the_run_was_judged_again(kept: Kept) -> None:
    first = kept.add(0, name="DIVERGED")
    old = sha256(kept.out / first.id / "verdict.json")
    assert kept.store.record(open_run(kept.out / first.id)) == first
    kept.store.pin(first, "a gate")
    second = kept.add(0, name="AGREE")
    assert (second.verdict, kept.ids(), len(kept.records())) == ("AGREE", [first.id], 1)
    assert kept.store.pins(second) == ["a gate"]
    # The earlier verdict is not lost: it is among what the run needs, and no garbage.
    kept.store.prune()
    assert kept.objects()[old].read_bytes() == json.dumps(verdict(0, name="DIVERGED")).encode()


def test_an_edit_in_place_of_a_small_file_leaves_what_was_recorded(kept: Kept) -> None:
    stored = kept.add(0, name="DIVERGED")
    path = kept.out / stored.id / "verdict.json"
    with path.open("r+b") as stream:
        stream.write(b"!")
    assert json.loads(kept.store.verdict(stored))["verdict"] == "DIVERGED"
    assert kept.store.edited(stored) == "verdict.json"


def test_a_run_whose_directory_is_gone_or_spoilt_is_shown_from_the_store(kept: Kept) -> None:
    stored = kept.add(0, large=b"s" * LARGE)
    before = {
        path.relative_to(kept.out / stored.id): path.read_bytes()
        for path in (kept.out / stored.id).rglob("*")
        if path.is_file()
    }
    (kept.out / stored.id / "run.json").write_text("{}")
    for _ in range(2):
        found = find_run(stored.id[-4:], kept.out)
        assert found.path.is_relative_to(kept.out / "store" / "restored")
        assert {
            path.relative_to(found.path): path.read_bytes()
            for path in found.path.rglob("*")
            if path.is_file()
        } == before
        shutil.rmtree(kept.out / stored.id, ignore_errors=True)


def test_a_directory_that_was_edited_is_told(kept: Kept) -> None:
    stored = kept.add(0)
    assert find_run(stored.id, kept.out, kept.notes.append).path == kept.out / stored.id
    assert kept.notes == []
    put(kept.out / stored.id / "verdict.json", b"{}")
    find_run(stored.id, kept.out, kept.notes.append)
    (note,) = kept.notes
    assert "verdict.json is not as it was recorded" in note


@pytest.mark.parametrize(
    ("text", "sentence"), [("nothing", "no run 'nothing'"), ("00Z-0000", None), ("0", "more of")]
)
def test_a_run_is_found_by_the_end_of_its_id(kept: Kept, text: str, sentence: str | None) -> None:
    stored = kept.add(0)
    kept.add(0, config="other")
    kept.add(1)
    if sentence is None:
        with pytest.raises(OracleError, match="2 runs"):
            kept.store.find(text)
        assert kept.store.find(f"tiny-20260101T0000{text}") == stored
        assert kept.store.find("latest").id == run_name(1)
    else:
        with pytest.raises(OracleError, match=sentence):
            kept.store.find(text)
