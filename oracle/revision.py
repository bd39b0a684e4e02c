"""The commit that a folder is at, as git says it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def revision(folder: Path) -> str | None:
    """Return the commit of the repository around `folder`, with `+` when tracked files differ.

    None where there is no repository, no commit, or no git.
    """
    commit = git(folder, "rev-parse", "--verify", "HEAD^{commit}")
    if commit is None:
        return None
    changes = git(folder, "status", "--porcelain", "--untracked-files=no")
    return commit.strip() + ("" if changes is not None and not changes.strip() else "+")


def git(folder: Path, *arguments: str) -> str | None:
    """Return what a git command prints, or None when it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            env=os.environ | {"GIT_OPTIONAL_LOCKS": "0"},
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout if done.returncode == 0 else None
