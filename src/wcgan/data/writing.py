"""Files that are whole, or not there at all."""

import contextlib
import errno
import os
import secrets
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
