"""The clone check: it passes on the stacks as they are and fires on a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools import clones

STACKS = Path(__file__).resolve().parents[2] / "stacks"


def test_the_stacks_share_no_code() -> None:
    assert clones.shared_fraction(STACKS / "torch_stack", STACKS / "jax_stack") <= clones.LIMIT


def test_a_copy_with_other_comments_and_one_renamed_function_is_caught(tmp_path: Path) -> None:
    copied = Path(shutil.copytree(STACKS / "jax_stack", tmp_path / "copy"))
    for path in copied.glob("*.py"):
        path.write_text(
            "# rewritten\n" + path.read_text("utf-8").replace("def main(", "def start(")
        )
    assert clones.shared_fraction(STACKS / "jax_stack", copied) > clones.LIMIT


def test_one_borrowed_module_in_twelve_is_caught(tmp_path: Path) -> None:
    mixed = Path(shutil.copytree(STACKS / "torch_stack", tmp_path / "mixed"))
    shutil.copy(STACKS / "jax_stack" / "train.py", mixed / "borrowed.py")
    shutil.copy(STACKS / "jax_stack" / "encode.py", mixed / "borrowed_too.py")
    shutil.copy(STACKS / "jax_stack" / "update.py", mixed / "borrowed_three.py")
    assert clones.shared_fraction(STACKS / "jax_stack", mixed) > clones.LIMIT


def test_comments_docstrings_and_layout_do_not_count(tmp_path: Path) -> None:
    a, b = tmp_path / "a.py", tmp_path / "b.py"
    a.write_text('"""One."""\nif x:\n    y = 1  # why\n')
    b.write_text('"""Another."""\n\nif x:\n        y = 1\n')
    assert clones.code_tokens(a) == clones.code_tokens(b) == ["if", "x", ":", "y", "=", "1"]


def test_empty_packages_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(ValueError, match="nothing to compare"):
        clones.shared_fraction(tmp_path / "a", STACKS / "jax_stack")
