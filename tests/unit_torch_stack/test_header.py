"""The hash of the stack's own code (S-25)."""

import hashlib
from pathlib import Path

from stacks.torch_stack import header


def test_code_is_hashed_by_path_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b/a.py").write_bytes(b"2")
    (tmp_path / "b.py").write_bytes(b"1")
    (tmp_path / "c.txt").write_bytes(b"3")
    fed = b"b.py\x001\x00b/a.py\x002\x00"
    assert header.code_sha256(tmp_path) == hashlib.sha256(fed).hexdigest()


def test_the_stack_hashes_itself() -> None:
    package = Path(header.__file__).parent
    assert header.code_sha256(package) != header.code_sha256(package.parent)
