"""The import walls hold, and each of them fires when somebody breaches it."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED_BY_BOTH_STACKS = {"numpy", "jaxtyping", "beartype", "pyarrow"}

BREACHES = [
    ("the oracle imports no training framework", "oracle/trace.py", "import torch"),
    ("the oracle imports no training framework", "oracle/trace.py", "import stacks.jax_stack"),
    ("the PyTorch stack imports neither", "stacks/torch_stack/loss.py", "import jax"),
    ("the PyTorch stack imports neither", "stacks/torch_stack/loss.py", "import oracle"),
    ("the JAX stack imports neither", "stacks/jax_stack/loss.py", "import torch"),
    ("the JAX stack imports neither", "stacks/jax_stack/loss.py", "import stacks.torch_stack"),
    ("the oracle's modules depend in one direction", "oracle/trace.py", "import oracle.verdict"),
]


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    linter = Path(sys.executable).with_name("lint-imports")
    environment = {**os.environ, "PYTHONPATH": str(root), "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run(
        [str(linter), "--no-cache"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def copy_of_the_code(target: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "oracle", target / "oracle", ignore=ignored)
    shutil.copytree(ROOT / "stacks", target / "stacks", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", target / "pyproject.toml")
    return target


def test_the_walls_hold(tmp_path: Path) -> None:
    result = lint_imports(copy_of_the_code(tmp_path))
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(("wall", "file", "breach"), BREACHES)
def test_a_breach_is_reported(tmp_path: Path, wall: str, file: str, breach: str) -> None:
    root = copy_of_the_code(tmp_path)
    with (root / file).open("a") as module:
        module.write(f"\n{breach}\n")
    result = lint_imports(root)
    broken = [line for line in result.stdout.splitlines() if "BROKEN" in line]
    assert result.returncode == 1
    assert len(broken) == 1, result.stdout
    assert wall in broken[0]


def third_party_imports(package: Path) -> dict[str, set[str]]:
    """Return top-level third-party module -> names of the files that import it."""
    found: dict[str, set[str]] = {}
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in names:
                top = name.split(".")[0]
                if top not in sys.stdlib_module_names and top != "stacks":
                    found.setdefault(top, set()).add(path.name)
    return found


def test_both_stacks_import_only_containers_and_types_in_common() -> None:
    ours = third_party_imports(ROOT / "stacks" / "torch_stack")
    theirs = third_party_imports(ROOT / "stacks" / "jax_stack")
    assert {"torch"} <= set(ours)
    assert {"jax"} <= set(theirs)
    assert set(ours) & set(theirs) <= SHARED_BY_BOTH_STACKS
    for found in (ours, theirs):
        assert found.get("pyarrow", set()) <= {"trace.py"}


def test_the_allow_list_sees_imports_inside_functions(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("def f():\n    from pandas.io import json\n    import os\n")
    assert third_party_imports(tmp_path) == {"pandas": {"late.py"}}


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        (
            "import oracle, oracle.trace, oracle.verdict",
            ["torch", "jax", "transformers", "datasets"],
        ),
        ("import oracle.cli", ["polars", "rich", "numpy", "jsonschema", "pyarrow"]),
    ],
)
def test_a_fresh_interpreter_loads_nothing_heavy(statement: str, forbidden: list[str]) -> None:
    program = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    output = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    loaded = set(json.loads(output))
    assert "oracle" in loaded
    assert not loaded & set(forbidden)
