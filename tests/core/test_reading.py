"""Text and files that others wrote: what is refused, in how many words, and how soon."""

import os
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from wcgan.core import reading
from wcgan.core.reading import open_file, open_inside, parse_json, parse_yaml, read_bytes, read_text, read_yaml

BILLION = "\n".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE_YAML = {
    "a billion by aliases": (f"a: &a [x]\n{BILLION}", r"it has an alias, \*a"),
    "itself by an alias": ("&a [*a]", r"it has an alias, \*a"),
    "code": ("!!python/object/apply:os.system ['true']", "it has a tag"),
    "a tag that PyYAML cannot construct": ("!!int ''", "it has a tag"),
    "a long alias": ("*" + "a" * 5000, r"it has an alias, \*a+\.\.\.; write"),
    "a long tag": ("!" + "a" * 5000 + " x", r"it has a tag, !a+\.\.\.; write"),
    "lists in lists": ("[" * 100_000, "nested more than 32 deep"),
    "lists in lists, by lines": ("- " * 100_000, "nested more than 32 deep"),
    "keys in keys": ("? " * 100_000, "nested more than 32 deep"),
    "mappings in mappings": ("{a: " * 100_000, "nested more than 32 deep"),
    "a number of 401 digits": ("10" + "0" * 399, r"the number 100000000000\.\.\. of 401 characters is too large"),
    "a number of 5,000 digits": ("9" * 5000, "too large"),
    "a number of 5,000 hexadecimal digits": ("0x" + "f" * 5000, "too large"),
    "a number past 64 bits": (str(2**64), "too large"),
    "a number to base 60": ("1" + ":1" * 300_000, "too large"),
    "a real number to base 60": ("1" + ":1" * 300 + ".5", "too large"),
    "a key twice": ("a: 1\nb: 2\na: 3", "the key 'a' stands there twice"),
    "a long key twice": (f"{{{'a' * 900}, {'a' * 900}}}", r"the key 'a+\.\.\. stands there twice"),
    "a date that is none": ("2001-13-45", "month must be in 1..12"),
    "many values": ("[" + "1," * 400_000 + "]", "more than 50,000 values"),
    "many keys": ("\n".join(f"k{i}: 1" for i in range(90_000)), "more than 50,000 values"),
    "a list as a key": ("{[1]: 2}", "unhashable key"),
    "a control character": ("a\0b", "special characters are not allowed"),
    "half a character": ("a: \ud800", "special characters are not allowed"),
    "two documents": ("--- 1\n--- 2", "expected a single document"),
    "more than may be": ("#" * (reading.MOST_TEXT + 1), "at most 1,048,576 are read"),
}


SLOWER = ("many keys",)  # as many values take as long


@pytest.mark.parametrize(
    "name", [n if n not in SLOWER else pytest.param(n, marks=pytest.mark.slow) for n in HOSTILE_YAML]
)
def test_hostile_yaml_is_refused_in_one_line_and_soon(name: str) -> None:
    text, said = HOSTILE_YAML[name]
    start = time.thread_time()
    with pytest.raises(ValueError, match=said) as refusal:
        parse_yaml(text)
    assert time.thread_time() - start < 10  # seconds of this thread, whatever else runs; two at the most are usual
    assert len(str(refusal.value)) < 400
    assert "\n" not in str(refusal.value)


def test_plain_yaml_is_read_as_pyyaml_reads_it() -> None:
    text = "a: 1\nb: [1.5, x, null, true, .inf, -18446744073709551615]\nc:\n"
    text += "  d: 'text'\n  e: 2020-01-01\n  f: |\n    two\n    lines\n"
    assert parse_yaml(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "nested more than 32 deep"),
        ('{"a":' * 100_000, "nested more than 32 deep"),
        ("[" * 33 + "]" * 33, "nested more than 32 deep"),
        ("1" + "0" * 400, r"the number 100000000000\.\.\. of 401 characters is too large"),
        ("[1" + "0" * 5000 + "]", "too large"),
        (str(-(2**64)), "too large"),
        (b"\x80", "codec can't decode byte 0x80"),
        ("", "Expecting value"),
    ],
)
def test_hostile_json_is_refused(text: str | bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_json(text)


def test_plain_json_is_read() -> None:
    text = '{"a": [1, 2.5, null, true, "\\u00e4", {"b": 18446744073709551615}], "c": ' + "[" * 31 + "]" * 31 + "}"
    assert parse_json(text)["a"] == [1, 2.5, None, True, "ä", {"b": 2**64 - 1}]


def test_a_yaml_file_that_is_refused_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    for content, said in (
        (b"a: *b", "is not YAML that can be read: it has an alias"),
        (b"a: \xff", "is not text in UTF-8 \\(byte 3\\)"),
    ):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=rf"config\.yaml {said}"):
            read_yaml(file)
    file.write_bytes(b"a: [1, 2]\n")
    assert read_yaml(file) == {"a": [1, 2]}
    with pytest.raises(FileNotFoundError):
        read_yaml(tmp_path / "nothing.yaml")


def no_files(folder: Path) -> dict[str, Path]:
    """What a path can lead to that is no file."""
    os.mkfifo(folder / "pipe")
    (folder / "zeros").symlink_to("/dev/zero")
    (folder / "to pipe").symlink_to("pipe")
    (folder / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as bound:
        here = os.getcwd()
        os.chdir(folder)  # the path of a socket must be short
        try:
            bound.bind("socket")
        finally:
            os.chdir(here)
    return {
        "it is a named pipe, not a file": folder / "pipe",
        "it is a device, not a file": folder / "zeros",
        "it is a named pipe, not a file ": folder / "to pipe",
        "it is a folder, not a file": folder / "folder",
        "it is a socket, not a file": folder / "socket",
    }


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    for said, path in no_files(tmp_path).items():
        for read in (open_file, read_bytes, read_text, read_yaml):
            with pytest.raises(ValueError, match=said.strip()):
                read(path)


def test_a_file_larger_than_may_be_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)  # a hole, which takes no room on the disk
    with pytest.raises(ValueError, match=r"a cannot be read: it has 1,099,511,627,776 bytes, and at most 1,048,576"):
        read_bytes(tmp_path / "a")
    assert read_bytes(Path("/proc/self/stat"))  # of the kernel's: its size is said to be 0
    with pytest.raises(ValueError, match="it has more than 5 bytes"):
        read_bytes(Path("/proc/self/stat"), 5)


def test_inside_a_folder_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "folder"
    (folder / "real").mkdir(parents=True)
    (folder / "real/file").write_text("mine")
    (folder / "real/link").symlink_to(tmp_path / "secret")
    (folder / "real/near").symlink_to("file")
    (folder / "linked").symlink_to("real")
    os.mkfifo(folder / "real/pipe")
    with open_inside(folder, "real", "file") as file:
        assert file.read() == b"mine"
    for names in (
        ("real", "link"),
        ("real", "near"),
        ("real", "pipe"),
        ("linked", "file"),
        ("real",),
        ("real", "nothing"),
    ):
        with pytest.raises((ValueError, OSError)):
            open_inside(folder, *names)
    for names in (("..", "secret"), ("real/../../secret",), (str(tmp_path / "secret"),), (".",), ("",), ()):
        with pytest.raises(ValueError, match="does not name a file inside a folder"):
            open_inside(folder, *names)


def test_a_link_that_is_swapped_in_at_any_moment_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret/images").mkdir(parents=True)
    (tmp_path / "secret/images/a").write_text("secret")
    (tmp_path / "study/images").mkdir(parents=True)
    (tmp_path / "study/images/a").write_text("public")
    images, aside = tmp_path / "study/images", tmp_path / "study/aside"

    def swap() -> None:
        for _ in range(300):
            images.rename(aside)
            images.symlink_to(tmp_path / "secret/images")
            images.unlink()
            aside.rename(images)

    thread, read = threading.Thread(target=swap), set()
    thread.start()
    while thread.is_alive() or not read:
        with suppress(OSError), open_inside(tmp_path / "study", "images", "a") as file:
            read.add(file.read())
    thread.join()
    assert read == {b"public"}


def test_descriptors_are_closed_whatever_happens(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    before = len(os.listdir("/proc/self/fd"))
    for names, most in ((("a",), 2), (("a", "b"), None), (("nothing",), None), (("nothing", "b"), None)):
        with pytest.raises((ValueError, OSError)):
            open_inside(tmp_path, *names, most=most)
    assert len(os.listdir("/proc/self/fd")) == before
