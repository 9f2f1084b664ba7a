"""New files and folders: never over what is there, and whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path


def free_name(file: Path) -> Path:
    """The file itself, or where that exists the first of `NAME-2`, `NAME-3` and so on that does not."""
    names = (file.with_name(f"{file.stem}-{number}{file.suffix}") for number in count(2))
    return next(name for name in chain((file,), names) if not os.path.lexists(name))


def require_new(folder: Path, advice: str = "name another with --out") -> None:
    """Raises a ValueError, which ends in the advice, for a folder that holds anything and for the name of a file."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} exists already: {advice}")


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name when it is filled; after an error nothing of it is left."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
