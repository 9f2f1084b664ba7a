"""A study on a port, for many participants at once."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

try:
    import uvicorn
except ImportError as error:
    raise ImportError(f"a study is served by uvicorn: pip install 'wcgan[web]' ({error})") from error

from wcgan.web.study.app import build_app
from wcgan.web.study.config import FILE, MOST_PARTICIPANTS, check_count, read_study
from wcgan.web.study.connections import MOST_CONNECTIONS, allow_open_files, bounded_protocol
from wcgan.web.study.database import Database, sqlite_file
from wcgan.web.study.plan import new_token, token_to_id
from wcgan.web.study.store import Store

_EVERYWHERE = {"0.0.0.0", "::"}
_MOST_HEAD = 16 << 10  # bytes
_OTHER_FILES = 64  # that the server holds beside connections


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
        folder: of the study.
        host: the address to listen on.
        port: the port; 0 for any that is free.
        database: the URL of a PostgreSQL database; None for `votes.sqlite` in the folder.
        participants: make so many links, in place of one by which anyone may join. Links made earlier stay good.
        say: gets the links, one a line.

    Raises:
        ValueError: for a folder without a study, a port that is taken, or a database that cannot be used.
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
                say(f"{address}/join/{study.join}")
            for _ in range(participants or 0):
                token = new_token()
                store.join(token_to_id(token), study.most_participants, consented=False)
                say(f"{address}/p/{token}")
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
    """A socket that listens.

    Raises:
        ValueError: if it cannot be had.
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
