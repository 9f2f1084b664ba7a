"""Files and folders that are whole or not there at all, and locks between processes."""

import errno
import logging
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

_log = logging.getLogger(__name__)
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk and of an exhausted quota."""


# Writing


def write_atomically(file: Path, content: bytes) -> None:
    """Writes all of the content under that name, flushed to the disk, or changes nothing.

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
        with suppress(OSError):
            temporary.unlink()


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Removes what `write_atomically` leaves behind when its process is killed."""
    for path in folder.glob(f".{name}.*.tmp"):
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flushes the names in a folder to the disk, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder to fill, and renames it to `folder` at the end; an error leaves nothing behind."""
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


# Names


def cache_folder() -> Path:
    """The folder of packs and other caches: `$WCGAN_CACHE`, or `~/.cache/wcgan`."""
    return Path(os.environ.get("WCGAN_CACHE") or "~/.cache/wcgan").expanduser().absolute()


def free_name(file: Path) -> Path:
    """The file itself if its name is free, else the first free one of `NAME-2`, `NAME-3` and so on."""
    names = (file.with_name(f"{file.stem}-{number}{file.suffix}") for number in count(2))
    return next(name for name in chain((file,), names) if not os.path.lexists(name))


def is_named_like_a_file(path: Path) -> bool:
    """Whether a path that is no folder has an extension, one that begins with a letter.

    Example:
        >>> is_named_like_a_file(Path("model.onnx")), is_named_like_a_file(Path("v1.5"))
        (True, False)
    """
    return path.suffix[1:2].isalpha() and not path.is_dir()


def require_new(folder: Path, advice: str = "name another with --out") -> None:
    """Raises a ValueError that ends in the advice if the folder is not empty, or is a file."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} exists already: {advice}")


def require_writable(file: Path, advice: str) -> None:
    """Raises a ValueError that ends in the advice if the permissions of a file or its folder are against writing it."""
    folder = next(parent for parent in file.absolute().parents if parent.exists())
    if not all(os.access(path, os.W_OK) for path in (file, folder) if path.exists()):
        raise ValueError(f"{file} cannot be written: {advice}")


# Locks. The kernel releases an flock when its process ends, however it ends. The library `filelock` uses flock too, but
# on file systems without it raises (ENOLCK, EOPNOTSUPP) or leaves a file behind that outlives its process (ENOSYS).


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Waits for the lock `path`, and holds it; the system releases it when the process ends, however it ends.

    Yields whether the lock is really held: some network file systems have none. What is done under it must therefore
    be right without it; the lock only avoids that it is done twice.
    """
    with path.open("a") as file:
        held = False
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
            except BlockingIOError:
                _log.warning("another process is at work on %s; waiting for it", path.stem)
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_EX)
                    held = True
            except OSError:
                pass
        yield held


@contextmanager
def owned(path: Path, what: str) -> Iterator[None]:
    """Takes the lock `path`, or refuses at once and says who has it. The file is removed at the end.

    A process that is killed leaves the file, but not the lock. Where the file system has no locks, nothing is refused.

    Args:
        path: a file for the lock alone.
        what: what is locked, for the message.

    Raises:
        ValueError: if another process has it.
    """
    while True:
        file = path.open("a+", encoding="utf-8", errors="replace")
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = " ".join(file.read(200).split()) or "another process"
            file.close()
            raise ValueError(f"{what} is in use by {owner}: wait for it to end, or stop it") from None
        except OSError:
            break
        if fcntl is None or _is_still(file.fileno(), path):
            break
        file.close()  # its owner removed it between the opening and the lock
    with file:
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()


def _is_still(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one at that path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
