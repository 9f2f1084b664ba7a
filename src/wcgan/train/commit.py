"""Which commit of the code a figure comes from."""

import os
import subprocess
from pathlib import Path

import wcgan

VARIABLE = "WCGAN_COMMIT"


def find_commit() -> str | None:
    """The commit of a working tree, with a plus sign where its files differ from it; None of an installed package.

    The environment's `WCGAN_COMMIT` says it for a copy of the files that git knows nothing of.
    """
    if os.environ.get(VARIABLE):
        return os.environ[VARIABLE]
    source = Path(wcgan.__file__).parent
    # A package that is installed inside somebody's repository is none of its files.
    if _git(source, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = _git(source, "rev-parse", "--short=10", "HEAD")
    return commit and commit + ("+" if _git(source, "status", "--porcelain", "--untracked-files=no", ".") else "")


def _git(folder: Path, *arguments: str) -> str | None:
    """What git answers; None where it does not."""
    try:
        answer = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
