"""One process at a time."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

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
