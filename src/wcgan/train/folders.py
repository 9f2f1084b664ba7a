"""New folders: never over what is there, and whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
