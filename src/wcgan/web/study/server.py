"""Serves a study: prints the links, listens on a port, and limits what one address can occupy."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

from wcgan.web.study.app import address_to_network, build_app
from wcgan.web.study.config import FILE, MOST_PARTICIPANTS, check_count, new_token, read_study, token_to_id
from wcgan.web.study.store import Database, Store, sqlite_file

try:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise ImportError(f"a study is served by uvicorn: pip install 'wcgan[web]' ({error})") from error


MOST_CONNECTIONS, MOST_PER_ADDRESS = 2000, 400
HEAD_SECONDS = 10.0  # for the head of a request to arrive, from when it may begin
ANSWER_SECONDS = 120.0  # for the rest of the request, and for the answer to be taken
_EVERYWHERE = {"0.0.0.0", "::"}
_MOST_HEAD = 16 << 10  # bytes
_OTHER_FILES = 64  # open besides connections


def serve_study(
    folder: Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    database: str | None = None,
    participants: int | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Serves a study until it is stopped.

    Args:
        folder: the folder of the study.
        host: the address to listen on.
        port: the port to listen on; 0 for any free one.
        database: the URL of a PostgreSQL database; None for `votes.sqlite` in the folder.
        participants: print this many personal links instead of one by which anyone may join. Earlier links stay valid.
        say: called with each line to print: the links, and how to stop.

    Raises:
        ValueError: for a folder without a study, a port in use, or a database that cannot be used.
    """
    study = read_study(folder)
    if participants is not None:
        check_count("participants", participants, 1, MOST_PARTICIPANTS)
    check_count("port", port, 0, 65535)
    store = Store(Database(database or sqlite_file(folder)), study.key)
    try:
        left = study.most_participants - len(store.participants())
        if participants is not None and participants > left:
            raise ValueError(f"{participants} links are wanted and {left} places are left: see {folder / FILE}")
        with listen(host, port) as listener:
            address = _address(host, listener.getsockname()[1])
            if participants is None:
                say(f"link for all participants: {address}/join/{study.join}")
            for number in range(1, (participants or 0) + 1):
                token = new_token()
                store.join(token_to_id(token), study.most_participants, consented=False)
                say(f"link for participant {number}: {address}/p/{token}")
            say(f"stop with Ctrl+C; results so far: wcgan study report {folder}")
            allow_open_files(MOST_CONNECTIONS + _OTHER_FILES, say)
            config = uvicorn.Config(
                build_app(folder, study, store, open_to_all=participants is None),
                access_log=False,  # its lines would have the tokens
                log_level="warning",
                limit_concurrency=MOST_CONNECTIONS,
                h11_max_incomplete_event_size=_MOST_HEAD,
                http=bounded_protocol(),
                ws="none",
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=5,
            )
            uvicorn.Server(config).run(sockets=[listener])
    finally:
        store.database.close()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        ValueError: if the address or the port cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        what = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        raise ValueError(f"{host} port {port} cannot be listened on: {what.lower()}") from None


def _address(host: str, port: int) -> str:
    name = socket.gethostname() if host in _EVERYWHERE else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


def bounded_protocol(
    per_address: int = MOST_PER_ADDRESS, head_seconds: float = HEAD_SECONDS, answer_seconds: float = ANSWER_SECONDS
) -> type[H11Protocol]:
    """HTTP for one server, with limits that uvicorn does not have.

    An address with too many connections loses the oldest one that waits for a request; if none waits, the new one is
    closed.
    """
    connections: dict[str, dict[Bounded, None]] = {}  # by address, the oldest first

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
            own = connections.setdefault(self._network, {})
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
            own = connections.get(self._network, {})
            own.pop(self, None)
            if not own:
                connections.pop(self._network, None)

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
            """Closes the connection after so many seconds, unless this is called again before."""
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_later(seconds, self._abort)

        def _abort(self) -> None:
            self.transport.abort()

    return Bounded


def allow_open_files(count: int, say: Callable[[str], None]) -> None:
    """Raises the limit on open files and connections of this process, and says so if the system allows fewer."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < count:
        say(f"the system allows {most} open files; {MOST_CONNECTIONS} connections at once need {count}")
