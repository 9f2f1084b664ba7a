"""A file gets all of its content in one step, or stays what it was."""

import errno
import os
import stat
from pathlib import Path

import pytest

from wcgan.core.files import write_atomically, written_whole


def test_new_content_takes_the_place_of_the_old_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    for content in (b"a longer content", b"short", b""):
        write_atomically(file, content)
        assert file.read_bytes() == content
        assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("before", [None, b"mine"], ids=["nothing there", "a file there"])
@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=["full", "interrupted"]
)
def test_a_write_that_fails_leaves_what_was_there(
    failure: BaseException, before: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.json"
    if before is not None:
        file.write_bytes(before)

    def fail(descriptor: int) -> None:
        raise failure

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(failure)):
        write_atomically(file, b"new")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == ({} if before is None else {file: before})


def test_an_error_that_the_system_gives_no_name_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        write_atomically(tmp_path / "a.json", b"new")
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(tmp_path / "a.json"))


@pytest.mark.parametrize("name", ["nowhere/a.json", "file/a.json", "folder"])
def test_an_error_names_the_file_and_not_the_temporary_one(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"^\[Errno \d+\] [^:]+: '[^']+'$") as error:
        write_atomically(tmp_path / name, b"new")
    assert error.value.filename == str(tmp_path / name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


def test_others_may_read_it_where_the_user_lets_them(tmp_path: Path) -> None:
    file, plain = tmp_path / "a.json", tmp_path / "plain"
    write_atomically(file, b"new")
    plain.touch()
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_folder_is_written_although_a_killed_process_of_the_same_number_left_one_behind(tmp_path: Path) -> None:
    (tmp_path / f".folder.{os.getpid()}.tmp").mkdir()  # the first process of a container is always number 1
    with written_whole(tmp_path / "folder") as temporary:
        (temporary / "file").touch()
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["file"]
