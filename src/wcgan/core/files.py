"""Files that are whole, or not there at all."""

import contextlib
import errno
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""What the system says of a disk that is full, and of a user who may fill no more of it."""


def write_atomically(file: Path, content: bytes) -> None:
    """All of the content under that name, in one step and flushed to the disk, or nothing new.

    Raises:
        OSError: that names the file, whatever failed.
    """
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, file)
        sync_folder(file.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error  # the system names the temporary one, or none
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def sync_folder(folder: Path) -> None:
    """Flushes the names in a folder to the disk, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Holds `path` against other processes; released when this one ends, however it ends.

    Yields whether the lock is really held: some network file systems have none. What is done under it must therefore
    be right without it, and is only spared being done twice.
    """
    with path.open("a") as file:
        held = False
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
            except BlockingIOError:
                _log.warning("another process is at work on %s; waiting for it", path.stem)
                with contextlib.suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_EX)
                    held = True
            except OSError:
                pass
        yield held
