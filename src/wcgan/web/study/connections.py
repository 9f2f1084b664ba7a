"""Connections to a study's server: how long each may take, and how many one address may hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

try:
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise ImportError(f"a study is served by uvicorn: pip install 'wcgan[web]' ({error})") from error

from wcgan.web.study.limits import address_to_network

MOST_CONNECTIONS, MOST_PER_ADDRESS = 2000, 400
HEAD_SECONDS = 10.0  # for the head of a request to arrive, from when it may begin
ANSWER_SECONDS = 120.0  # for the rest of the request, and for the answer to be taken


def bounded_protocol(
    per_address: int = MOST_PER_ADDRESS, head_seconds: float = HEAD_SECONDS, answer_seconds: float = ANSWER_SECONDS
) -> type[H11Protocol]:
    """HTTP for one server, with bounds that uvicorn does not have.

    An address that opens more connections than it may loses the oldest one that waits for a request; where none does,
    the new one is closed.
    """
    held: dict[str, dict[Bounded, None]] = {}  # by address, the oldest first

    class Bounded(H11Protocol):
        _timer: asyncio.TimerHandle | None = None
        _network = ""

        @property
        def waits(self) -> bool:
            """Whether no request is being answered."""
            return self.cycle is None or self.cycle.response_complete

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._network = address_to_network(self.client[0]) if self.client else ""
            own = held.setdefault(self._network, {})
            own[self] = None
            if len(own) > per_address:
                oldest = next(other for other in own if other.waits)  # this one does, at least
                del own[oldest]
                oldest.transport.abort()
            self._give(head_seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self._timer is not None:
                self._timer.cancel()
            own = held.get(self._network, {})
            own.pop(self, None)
            if not own:
                held.pop(self._network, None)

        def data_received(self, data: bytes) -> None:
            waited = self.waits
            super().data_received(data)
            if waited and not self.waits:
                self._give(answer_seconds)

        def on_response_complete(self) -> None:
            super().on_response_complete()  # may begin with the next request already
            all_taken = self.waits and not self.transport.get_write_buffer_size()
            self._give(head_seconds if all_taken else answer_seconds)

        def _give(self, seconds: float) -> None:
            """Closes the connection in so many seconds, unless it is given others before."""
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_later(seconds, self._abort)

        def _abort(self) -> None:
            self.transport.abort()

    return Bounded


def allow_open_files(count: int, say: Callable[[str], None]) -> None:
    """Lets this process hold so many files and connections; says so where the system does not."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < count:
        say(f"the system allows {most} open files, and {count} are needed for {MOST_CONNECTIONS} connections at once")
