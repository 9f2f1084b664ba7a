"""The commit that is written beside figures."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import wcgan
from wcgan.runs.folder import VARIABLE, find_commit

SCRIPT = "from wcgan.runs.folder import find_commit; print(find_commit())"


def git(folder, *arguments):
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def ask(folder, monkeypatch):
    """What a package says that lies in a folder."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(wcgan, "__file__", str(folder / "wcgan" / "__init__.py"))
    return find_commit()


@pytest.fixture
def copy(tmp_path):
    """The package in a folder of its own, which is a repository that does not know it yet."""
    shutil.copytree(
        Path(wcgan.__file__).parent, tmp_path / "wcgan", ignore=shutil.ignore_patterns("__pycache__", "generators")
    )
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "somebody's own")
    return tmp_path


def test_the_environment_says_it_first(monkeypatch):
    monkeypatch.setenv(VARIABLE, "abc123")
    assert find_commit() == "abc123"


def test_a_package_installed_inside_a_repository_has_no_commit(copy, monkeypatch):
    assert ask(copy, monkeypatch) is None


def test_a_process_asks_for_the_package_that_it_has_imported(copy, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(copy))
    git(copy, "add", "wcgan")
    git(copy, "commit", "--quiet", "-m", "the package")
    answer = subprocess.run([sys.executable, "-c", SCRIPT], cwd=copy, check=True, capture_output=True, text=True)
    assert answer.stdout.strip() == ask(copy, monkeypatch) is not None


def test_a_working_tree_has_its_commit_and_a_plus_sign_once_a_file_of_the_package_differs(copy, monkeypatch):
    (copy / "notes.txt").write_text("of a repository")
    git(copy, "add", "wcgan", "notes.txt")
    git(copy, "commit", "--quiet", "-m", "the package")
    (copy / "notes.txt").write_text("changed since")
    commit = git(copy, "rev-parse", "HEAD").strip()
    found = ask(copy, monkeypatch)
    assert len(found) >= 10
    assert commit.startswith(found)
    with (copy / "wcgan" / "__init__.py").open("a") as file:
        file.write("\n")
    assert ask(copy, monkeypatch) == f"{found}+"
