"""Studies to vote on, a real server in a thread or a process, and a client that keeps its own log."""

from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import numpy as np
import uvicorn
from tests.data.cases import save

from wcgan.web.study import create_study, read_study
from wcgan.web.study.app import build_app
from wcgan.web.study.config import token_to_id
from wcgan.web.study.server import listen
from wcgan.web.study.store import Database, Store, sqlite_file


def write_side(folder: Path, classes=6, images=5, side=8, channels=3, smooth=False, seed=0) -> Path:
    """A folder with a sub-folder per class: noise, or one colour each."""
    chance = np.random.default_rng(seed)
    for label in range(classes):
        for number in range(images):
            shape = (channels, 1, 1) if smooth else (channels, side, side)
            pixels = np.broadcast_to(chance.integers(0, 256, shape, np.uint8), (channels, side, side))
            save(folder / f"class {label}" / f"{number}.png", pixels)
    return folder


def make_study(folder: Path, classes=4, checks=2, **options) -> Path:
    """A study of a smooth side against a noisy one, in `folder/study`."""
    a = write_side(folder / "smooth", smooth=True)
    b = write_side(folder / "rough", seed=1)
    create_study(a, b, folder / "study", classes=classes, images=4, checks=checks, **options)
    return folder / "study"


def open_store(folder: Path, database: str | None = None) -> Store:
    return Store(Database(database or sqlite_file(folder)), read_study(folder).key)


@contextmanager
def serving(folder: Path, database: str | None = None, open_to_all: bool = True):
    """The application behind a real socket -> its address."""
    store = open_store(folder, database)
    app = build_app(folder, read_study(folder), store, open_to_all)
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False, lifespan="off", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
            store.database.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def begin_server(folder: Path, port: int, *more: str, database: str | None = None) -> subprocess.Popen[str]:
    """Starts `wcgan study serve` and waits for the first link it prints, which becomes its `link`."""
    command = [sys.executable, "-m", "wcgan", "study", "serve", str(folder), "--port", str(port), *more]
    environment = os.environ | ({"WCGAN_STUDY_DATABASE": database} if database else {})
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.link = process.stdout.readline().strip().rpartition(" ")[2]  # type: ignore[attr-defined]
    if not process.link:  # type: ignore[attr-defined]
        raise AssertionError(process.communicate()[1])
    return process


class Answer:
    """What a server answered."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers = response.status, dict(response.getheaders())
        self.body = response.read()
        self.text = self.body.decode(errors="replace")
        self.to = self.headers.get("location", self.headers.get("Location", ""))

    @property
    def number(self) -> int:
        """Of the pair that is shown; 0 when there is none."""
        found = re.search(r'name="number" value="(\d+)"', self.text)
        return int(found[1]) if found else 0

    @property
    def pictures(self) -> list[str]:
        return re.findall(r'<img src="([^"]+)"', self.text)

    @property
    def sentence(self) -> str:
        """Of a page that says what is wrong."""
        found = re.search(r"</h1><p>(.+?)</p>", self.text)
        return found[1] if found else ""


class Client:
    """A browser without a screen: one connection, opened again when it breaks."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)

    def ask(self, method: str, path: str, body: str | bytes | None = None, **headers: str) -> Answer:
        try:
            self.connection.request(method, path, body, headers)
            return Answer(self.connection.getresponse())
        except (OSError, http.client.HTTPException):
            self.connection.close()
            raise

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def post(self, path: str, **fields: object) -> Answer:
        return self.ask("POST", path, urlencode(fields))

    def close(self) -> None:
        self.connection.close()


class Participant:
    """Votes on every pair, whatever happens to the server, and logs what was chosen: number -> choice."""

    def __init__(self, address: str, join: str, choose, doubled: bool = False, patience: float = 120) -> None:
        self.address, self.join, self.choose, self.doubled = address, join, choose, doubled
        self.log: dict[int, str] = {}
        self.token, self.repeats = "", 0
        self.end = time.monotonic() + patience

    def insist(self, client: Client, method: str, path: str, **fields: object) -> Answer:
        """Asks again until there is an answer."""
        while True:
            try:
                answer = client.ask(method, path, urlencode(fields) if fields else None)
            except (OSError, http.client.HTTPException):
                self.repeats += 1
                assert time.monotonic() < self.end, "the server does not come back"
                time.sleep(0.1)
                continue
            assert answer.status in (200, 303), (answer.status, answer.sentence)
            return answer

    def take_part(self) -> None:
        client, second = Client(self.address), Client(self.address)
        try:
            self.token = self.insist(client, "POST", self.join).to.removeprefix("/p/")
            path = f"/p/{self.token}"
            while True:
                number = self.insist(client, "GET", path).number
                if not number:
                    return
                choice = self.log.setdefault(number, self.choose(number))
                if self.doubled:  # a double click: two requests on their way at once
                    twin = threading.Thread(
                        target=self.insist, args=(second, "POST", path), kwargs={"number": number, "choice": choice}
                    )
                    twin.start()
                self.insist(client, "POST", path, number=number, choice=choice)
                if self.doubled:
                    twin.join()
        finally:
            client.close()
            second.close()


def logged(participants: list[Participant]) -> list[tuple[str, int, str]]:
    """What the clients say they chose."""
    return sorted((token_to_id(p.token), number, choice) for p in participants for number, choice in p.log.items())


def stored(store: Store) -> list[tuple[str, int, str]]:
    """What the database says they chose."""
    return sorted((vote.participant, vote.number, vote.choice) for vote in store.votes())
