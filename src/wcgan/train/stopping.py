"""SIGINT and SIGTERM, remembered until work can end at a good place."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from wcgan.train.parallel import Rank


class StopRequest:
    """The signal that asks for an end, once there is one."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def requested(self, rank: Rank) -> bool:
        """Whether to stop now: all processes, or none."""
        return rank.any(self.signal is not None)


@contextmanager
def stop_requests(interrupt: bool = False) -> Iterator[StopRequest]:
    """Remembers a signal; with `interrupt` it also ends what is going on, by KeyboardInterrupt.

    Only a process's main thread can ask for signals: in another nothing is ever requested.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def remember(number: int, frame: object) -> None:
        stop.signal = number
        if interrupt:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
