"""Reading what others wrote: real files only, and YAML and JSON of bounded size, depth and numbers."""

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from wcgan.core.terminal import shortened, shown

MOST_TEXT = 1 << 20  # bytes of a YAML file; the longest that this package writes has a fifth of it
MOST_DEPTH = 32  # lists and mappings within each other
MOST_VALUES = 50_000  # in one YAML file
MOST_DIGITS = 64  # characters of a number
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


def open_file(path: Path, most: int | None = None) -> BinaryIO:
    """Opens a regular file to read; links are followed. Never waits, as opening a named pipe would.

    Args:
        path: the file.
        most: bytes that it may have.

    Raises:
        ValueError: for anything but a regular file, and for one that is larger; it does not name the path.
        OSError: if it cannot be opened.
    """
    _require_file(os.stat(path).st_mode)  # before it is opened: opening is enough to set some devices going
    return _to_stream(os.open(path, _FLAGS), most)


def open_inside(folder: Path, *names: str, most: int | None = None) -> BinaryIO:
    """Opens `folder/name/...` as `open_file` does, following no link below `folder`.

    Each name is opened from the descriptor of the one before it, so that a link that is put there at any moment leads
    nowhere.
    """
    if not names or any(name in ("", ".", "..") or "/" in name or os.sep in name for name in names):
        raise ValueError(f"{'/'.join(names)!r} does not name a file inside a folder")
    if os.open not in os.supports_dir_fd:  # Windows, where making a link takes a privilege
        for number in range(1, len(names) + 1):
            if folder.joinpath(*names[:number]).is_symlink():
                raise ValueError("it is a link, not a file")
        return open_file(folder.joinpath(*names), most)
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names[:-1]:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = inner
        _require_file(os.stat(names[-1], dir_fd=here, follow_symlinks=False).st_mode)
        descriptor = os.open(names[-1], _FLAGS | os.O_NOFOLLOW, dir_fd=here)
    finally:
        os.close(here)
    return _to_stream(descriptor, most)


def _to_stream(descriptor: int, most: int | None) -> BinaryIO:
    try:
        facts = os.fstat(descriptor)
        _require_file(facts.st_mode)
        if most is not None and facts.st_size > most:
            raise ValueError(f"it has {facts.st_size:,} bytes, and at most {most:,} are read")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _require_file(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise ValueError(f"it is {_KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file")


def read_bytes(path: Path, most: int = MOST_TEXT) -> bytes:
    """A regular file's bytes.

    Raises:
        ValueError: that names the path, for anything but a regular file of at most `most` bytes.
        OSError: if it cannot be opened.
    """
    try:
        with open_file(path, most) as file:
            content = file.read(most + 1)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    if len(content) > most:  # a file of the kernel's, which gives its size as 0
        raise ValueError(f"{path} cannot be read: it has more than {most:,} bytes")
    return content


def read_text(path: Path, most: int = MOST_TEXT) -> str:
    """The same as text in UTF-8."""
    try:
        return read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8 (byte {error.start})") from None


def read_yaml(path: Path) -> Any:
    """What a YAML file holds: see `parse_yaml`.

    Raises:
        ValueError: that names the path.
        OSError: if it cannot be opened.
    """
    text = read_text(path)
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise ValueError(f"{path} is not YAML that can be read: {error}") from None


def parse_yaml(text: str) -> Any:
    """Mappings, lists, text, numbers, dates, true, false and null: YAML without tags, aliases and doubled keys.

    Raises:
        ValueError: for anything else, in one line, and for what is nested too deep, too long, or too large a number.

    Example:
        >>> parse_yaml("{widths: [64, 32], name: cWC}")
        {'widths': [64, 32], 'name': 'cWC'}
    """
    if len(text) > MOST_TEXT:
        raise ValueError(f"it has {len(text):,} characters, and at most {MOST_TEXT:,} are read")
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def parse_json(text: str | bytes) -> Any:
    """A value in JSON.

    Raises:
        ValueError: if it is none, is nested too deep, or has too large a number.

    Example:
        >>> parse_json('{"FID": 12.5}')
        {'FID': 12.5}
    """
    try:
        value = json.loads(text, parse_int=_to_whole)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [inner for outer in level for inner in _parts(outer)]
        if not level:
            return value
    raise ValueError(_TOO_DEEP)


_TOO_DEEP = f"it is nested more than {MOST_DEPTH} deep"


def _parts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []


def _to_whole(text: str) -> int:
    if len(text) > MOST_DIGITS or abs(int(text)) >= 1 << 64:
        raise ValueError(f"the number {text[:12]}... of {len(text)} characters is too large")
    return int(text)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, less what a config has no use for and an attacker has."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._values = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):  # nine lines of them make a value of a billion parts
            raise ValueError(f"it has an alias, *{shortened(str(event.anchor))}; write the value out")
        if event.tag is not None:
            raise ValueError(f"it has a tag, {shortened(event.tag)}; write the value without it")
        self._depth += 1
        self._values += 1
        if self._depth > MOST_DEPTH:
            raise ValueError(_TOO_DEEP)
        if self._values > MOST_VALUES:
            raise ValueError(f"it has more than {MOST_VALUES:,} values")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                raise ValueError(f"the key {shown(key.value)} stands there twice")
            seen.add((key.tag, key.value if isinstance(key, yaml.ScalarNode) else None))
        return super().construct_mapping(node, deep)

    def construct_number(self, node: Any) -> int | float:
        text = node.value
        if len(text) <= MOST_DIGITS:
            number = self.construct_yaml_int(node) if node.tag.endswith("int") else self.construct_yaml_float(node)
            if isinstance(number, float) or abs(number) < 1 << 64:
                return number
        raise ValueError(f"the number {text[:12]}... of {len(text)} characters is too large")


for _tag in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.construct_number)
