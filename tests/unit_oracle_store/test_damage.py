"""A store that is damaged, of another version, on a full disk: a sentence, and nothing is lost."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from oracle.errors import OracleError
from oracle.runs import open_run
from oracle.store import keep
from oracle.store import objects as objects_module
from oracle.store.database import VERSIONS
from tests.unit_oracle_run.command import oracle
from tests.unit_oracle_store.conftest import Kept
from tests.unit_oracle_store.made import LARGE, make_run, run_name, verdict


def contents(kept: Kept) -> list[tuple[object, ...]]:
    """Every row of the index, read by the standard library."""
    with closing(sqlite3.connect(kept.index)) as connection:
        return [
            (table, *row)
            for table in ("run", "leg", "phase", "file", "pin", "floor")
            for row in sorted(connection.execute(f"select * from {table}"), key=repr)
        ]


def execute(kept: Kept, statement: str) -> None:
    with closing(sqlite3.connect(kept.index)) as connection, connection:
        connection.execute(statement)


def filled(kept: Kept) -> list[tuple[object, ...]]:
    for number in range(3):
        kept.add(number, name=("AGREE", "DIVERGED", "ERROR")[number])
    kept.store.pin(kept.store.find("latest"), "a gate")
    return contents(kept)


@pytest.mark.parametrize("damage", ["gone", "empty", "no database", "torn", "no table"])
def test_a_damaged_index_is_built_again_from_the_records(kept: Kept, damage: str) -> None:
    before = filled(kept)
    size = kept.index.stat().st_size
    if damage == "gone":
        kept.index.unlink()
    elif damage == "empty":
        kept.index.write_bytes(b"")
    elif damage == "no database":
        kept.index.write_bytes(b"not a database" * 1000)
    elif damage == "torn":
        content = kept.index.read_bytes()
        kept.index.write_bytes(content[: size // 4] + b"\xff" * (size // 2) + content[-size // 4 :])
    else:
        execute(kept, "drop table run")
    assert kept.ids() == [run_name(2), run_name(1), run_name(0)]
    assert contents(kept) == before
    if damage in ("no database", "torn", "no table"):
        (note,) = kept.notes
        assert "is damaged" in note
        asides = kept.index.parent.glob("index.sqlite.damaged-*Z")
        assert [str(aside) in note for aside in asides] == [True], "it is kept, and named"


def test_reindex_builds_the_same_index(kept: Kept) -> None:
    before = filled(kept)
    assert kept.store.reindex() == []
    assert contents(kept) == before


def test_reindex_records_directories_that_were_not(kept: Kept) -> None:
    filled(kept)
    make_run(kept.out, 5)
    (make_run(kept.out, 6) / "verdict.json").write_text("{}")
    assert kept.store.reindex() == []
    assert kept.ids() == [run_name(number) for number in (5, 2, 1, 0)]
    assert [note for note in kept.notes if "not recorded" in note and run_name(6) in note]


def test_a_row_without_its_record_gets_it_back(kept: Kept) -> None:
    before = filled(kept)
    names = kept.records()
    kept.records()[1].unlink()
    assert len(kept.ids()) == 3
    assert (kept.records(), contents(kept)) == (names, before)
    kept.records()[0].unlink()
    kept.store.reindex()
    assert (kept.records(), contents(kept)) == (names, before)


def test_an_index_of_a_newer_oracle_is_refused_and_left_as_it_is(kept: Kept) -> None:
    filled(kept)
    execute(kept, "update alembic_version set version_num = '9001'")
    before = kept.index.read_bytes()
    for command in (("runs",), ("verify",), ("prune",), ("rm", run_name(0), "--yes"), ("reindex",)):
        ended = oracle(*command, "--out", str(kept.out))
        assert (ended.returncode, ended.stdout) == (2, ""), command
        assert "version 9001" in ended.stderr
        assert VERSIONS[-1] in ended.stderr
    assert kept.index.read_bytes() == before
    path = make_run(kept.out, 7)
    keep(path, kept.notes.append)
    (note,) = kept.notes
    assert "was not recorded" in note
    assert "version 9001" in note


def test_a_record_of_a_newer_oracle_is_told_and_kept(kept: Kept) -> None:
    kept.add(0)
    kept.add(1)
    path = next(path for path in kept.records() if run_name(0) in path.name)
    document = json.loads(path.read_text())
    content = json.dumps(document | {"record_version": "2"}).encode()
    path.unlink()
    digits = hashlib.sha256(content).hexdigest()[:16]
    path = path.with_name(f"{run_name(0)}.{digits}.json")
    path.write_bytes(content)
    ended = oracle("reindex", "--out", str(kept.out))
    assert ended.returncode == 2
    assert "is of version '2'" in ended.stderr
    assert path.read_bytes() == content
    num_objects = len(kept.objects())
    with pytest.raises(OracleError, match="version '2'"):
        kept.store.prune(keep_last=0)
    assert len(kept.objects()) == num_objects, "what the newer record needs is not known"


def test_an_edited_record_is_told(kept: Kept) -> None:
    stored = kept.add(0)
    (path,) = kept.records()
    path.write_text(path.read_text().replace("AGREE", "ERROR"))
    (found,) = kept.store.verify(stored)
    assert (found.file, found.expected) == (str(path), stored.record_sha256)
    (problem,) = kept.store.reindex()
    assert "was edited" in problem


@pytest.mark.parametrize("where", ["object", "directory", "link"])
def test_verify_names_what_was_altered(kept: Kept, where: str) -> None:
    kept.add(1)
    stored = kept.add(0, large=b"s" * LARGE)
    steps = kept.out / stored.id / "jax" / "steps.jsonl"
    target, names = steps, [steps]
    if where == "object":
        target = next(p for p in kept.objects().values() if p.read_bytes() == steps.read_bytes())
        names = [target]
    elif where == "link":
        # One file with two names where blocks cannot be shared: both are told.
        target = kept.out / stored.id / "jax" / "snapshots" / "00000004.safetensors"
        linked = [p for p in kept.objects().values() if p.samefile(target)]
        names = [*linked, target]
    with target.open("r+b") as stream:
        stream.write(b"!")
    found = kept.store.verify(*kept.store.runs())
    assert {one.file for one in found} == {str(name) for name in names}
    assert {one.run for one in found} == {stored.id}
    ended = oracle("verify", "--out", str(kept.out))
    assert ended.returncode == 2
    assert "1 of 2 runs is not as recorded" in ended.stderr
    assert oracle("verify", run_name(1), "--out", str(kept.out)).returncode == 0


def test_an_altered_object_is_not_passed_on(kept: Kept) -> None:
    stored = kept.add(0)
    shutil.copytree(kept.out / stored.id, kept.out.parent / "aside")
    shutil.rmtree(kept.out / stored.id)
    for path in kept.objects().values():
        path.write_bytes(b"spoilt")
    with pytest.raises(OracleError, match="recorded with the hash"):
        kept.store.verdict(stored)
    with pytest.raises(OracleError, match="recorded with the hash"):
        kept.store.directory(stored)
    assert not list(kept.out.glob("store/restored/*"))
    # Recording the same run mends its objects.
    (kept.out.parent / "aside").rename(kept.out / stored.id)
    kept.store.record(open_run(kept.out / stored.id))
    assert kept.store.verify(stored) == []


@pytest.mark.parametrize("where", ["object", "record", "index"])
def test_a_full_disk_costs_a_sentence_and_no_run(
    kept: Kept, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.add(0)
    path = make_run(kept.out, 1)
    document = verdict(1) | {"headline": "long " * 100_000}  # more than the index has room for
    (path / "verdict.json").write_text(json.dumps(document))
    before = set(kept.objects())

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        if where == "object":
            patch.setattr(objects_module.shutil, "copyfileobj", full)
        elif where == "record":
            patch.setattr("oracle.files.os.fsync", full)
        else:
            # SQLite refuses to grow the file, as it does when the disk is full.
            monkeypatch.setattr("oracle.store.database.PRAGMAS", ("max_page_count = 1",))
        keep(path, kept.notes.append)
    monkeypatch.undo()
    (note,) = kept.notes
    assert note.startswith(f"warning: {path} was not recorded in the store (")
    assert "full" in note or "No space left on device" in note
    assert "oracle reindex" in note
    # What is whole is listed; what is not is not.
    assert set(kept.ids()) in ({run_name(0)}, {run_name(0), run_name(1)})
    assert (where == "index") == (run_name(1) in kept.ids())
    assert not list((kept.out / "store").rglob("*.tmp"))
    assert before <= set(kept.objects())
    kept.store.reindex()
    assert kept.ids() == [run_name(1), run_name(0)]
    assert kept.store.verify(*kept.store.runs()) == []


def test_a_folder_where_nothing_can_be_made_costs_a_sentence(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_run(kept.out, 0)
    (kept.out / "store").write_text("in the way")  # holds for root, too
    keep(path, kept.notes.append)
    (note,) = kept.notes
    assert "was not recorded" in note


def test_a_locked_index_is_told(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.add(0)
    path = make_run(kept.out, 1)
    monkeypatch.setattr("oracle.store.database.WAIT_SECONDS", 0.1)
    with kept.store.database.writing() as connection:
        connection.execute(text("select 1"))
        keep(path, kept.notes.append)
    assert "was locked by another process" in kept.notes[0]


def test_a_held_store_is_told(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.add(0)
    monkeypatch.setattr("oracle.store.lock.WAIT_SECONDS", 0.1)
    with kept.store.place.lock.alone(), pytest.raises(OracleError, match="held by another"):
        kept.store.record(open_run(kept.out / run_name(0)))
    assert Path(kept.index).exists()
