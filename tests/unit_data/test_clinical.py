"""The clinical set: bytes, format, split, and facts of the classification known from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit_data.conftest import DATA, ROOT, Row, read_rows

CODE = re.compile(r"\b[A-Z][0-9A-Z][0-9A-Z](?:\.[0-9A-Z]{1,4})?\b")
PHENOTYPE = re.compile(r"HP:\d{7}|OMIM:\d{6}|ORPHA:\d+")


def prepare(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    command = [sys.executable, str(DATA / "clinical" / "prepare.py"), *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)


def subject(row: Row) -> str:
    """The category, term or disease that is named first; read from the text alone."""
    import simple_icd_10_cm as icd

    text = "\n".join(m["content"] for m in row["messages"] if m["role"] != "system")
    if row["id"].startswith("hpo"):
        found = PHENOTYPE.search(text)
        assert found, row["id"]
        return found[0]
    codes: list[str] = CODE.findall(text)
    return next(code[:3] for code in codes if "." in code or icd.is_valid_item(code))


def check_format(row: Row) -> None:
    assert list(row) == ["id", "messages"]
    roles = [message["role"] for message in row["messages"]]
    turns = roles[1:] if roles[0] == "system" else roles
    assert turns
    assert turns == ["user", "assistant"] * (len(turns) // 2), row["id"]
    for message in row["messages"]:
        assert list(message) == ["role", "content"]
        assert message["content"].strip(), row["id"]


def test_sample_is_rebuilt_byte_for_byte_under_another_hash_seed(tmp_path: Path) -> None:
    done = prepare("--sample", "--out", str(tmp_path), hash_seed="12345")
    assert done.returncode == 0, done.stderr
    for name in ("train.jsonl", "heldout.jsonl"):
        committed = (DATA / "clinical" / "sample" / name).read_bytes()
        assert (tmp_path / name).read_bytes() == committed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["heldout.jsonl", "train.jsonl"]


def test_sample_has_the_stated_size_and_format(sample: dict[str, list[Row]]) -> None:
    assert {split: len(rows) for split, rows in sample.items()} == {"train": 3000, "heldout": 200}
    for row in [*sample["train"], *sample["heldout"]]:
        check_format(row)
        assert re.fullmatch(r"icd-\d{6}", row["id"])
    folder = DATA / "clinical" / "sample"
    raw = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sum(map(len, raw.values())) < 2_000_000
    assert all(text.endswith(b"}\n") and b"\r" not in text for text in raw.values())


def test_sample_is_varied(sample: dict[str, list[Row]]) -> None:
    rows = sample["train"]
    starts_with_system = sum(row["messages"][0]["role"] == "system" for row in rows)
    turns = [sum(m["role"] == "user" for m in row["messages"]) for row in rows]
    lengths = sorted(sum(len(m["content"]) for m in row["messages"]) for row in rows)
    assert 0.2 < starts_with_system / len(rows) < 0.45
    assert turns.count(1) > 1000
    assert sum(turn >= 3 for turn in turns) > 100
    assert lengths[-1] > 50 * lengths[0]


def test_ids_are_unique_over_sample_and_edge(
    sample: dict[str, list[Row]], edge: dict[str, Row]
) -> None:
    ids = [row["id"] for rows in sample.values() for row in rows]
    edge_ids = [row["id"] for row in read_rows(DATA / "clinical" / "edge.jsonl")]
    assert len({*ids, *edge_ids}) == len(ids) + len(edge_ids)


def test_no_category_is_on_both_sides_of_the_sample(sample: dict[str, list[Row]]) -> None:
    train, heldout = ({subject(row) for row in sample[split]} for split in ("train", "heldout"))
    assert len(train) > 500
    assert len(heldout) > 20
    assert train.isdisjoint(heldout)


@pytest.mark.parametrize(
    ("code", "needle"),
    [
        ("A00.1", "Cholera due to Vibrio cholerae 01, biovar eltor"),
        ("A01.03", "Typhoid pneumonia"),
        ("A50.52", "Hutchinson's teeth"),
    ],
)
def test_facts_of_the_published_tabular_list(
    sample: dict[str, list[Row]], code: str, needle: str
) -> None:
    rows = [row for rows in sample.values() for row in rows]
    texts = ["\n".join(m["content"] for m in row["messages"]) for row in rows]
    naming = [text for text in texts if re.search(rf"\b{re.escape(code)}(?![\w.])", text)]
    assert any(needle in text for text in naming)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = prepare("--sample", "--out", str(tmp_path / "file"))
    assert done.returncode == 2
    assert "cannot write to" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_definition_loses_its_quotes_and_references() -> None:
    from data.clinical.hpo import clean_definition

    assert clean_definition('"A \\"lazy\\" eye." [PMID:1, x:2]') == 'A "lazy" eye.'
    assert clean_definition("") == ""


@pytest.mark.slow
def test_full_set_is_large_disjoint_and_repeatable(tmp_path: Path) -> None:
    rows: dict[str, list[Any]] = {}
    for name, seed in (("one", "1"), ("two", "2")):
        done = prepare("--out", str(tmp_path / name), hash_seed=seed)
        assert done.returncode == 0, done.stderr
    for split in ("train", "heldout"):
        first, second = (tmp_path / name / f"{split}.jsonl" for name in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()
        rows[split] = read_rows(first)
        for row in rows[split]:
            check_format(row)
    ids = {row["id"] for split in rows.values() for row in split}
    assert len(rows["train"]) >= 170_000
    assert len(ids) == len(rows["train"]) + len(rows["heldout"])
    train, heldout = ({subject(row) for row in rows[split]} for split in ("train", "heldout"))
    assert train.isdisjoint(heldout)
    assert len(heldout) > 1000
