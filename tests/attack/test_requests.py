"""Damaged requests to a study's server: it answers without an error of its own, and stores what was voted, no more."""

import random
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from tests.attack.tally import quick_and_long
from tests.mutations import mutated
from tests.web.study.cases import Client, make_study, open_store, serving

from wcgan.web.study import read_study
from wcgan.web.study.config import new_token, picture_file, token_to_id

pytest.importorskip("fastapi")
HEAD = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


def answer_to(port: int, request: bytes, patience: float = 0.1) -> bytes:
    """All that the server says before it closes the connection, or, where it waits for more, for so many seconds."""
    parts = []
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection, suppress(OSError):
        connection.settimeout(patience)
        connection.sendall(request)
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def status_of(answer: bytes) -> int:
    """Of the first answer; 0 for none."""
    return int(answer.split(b" ", 2)[1]) if answer else 0


def form(path: str, body: str) -> bytes:
    return f"POST {path} {HEAD}Content-Length: {len(body)}\r\n\r\n{body}".encode()


@quick_and_long(60, 2_000)
def test_requests(tmp_path, attack, cases):
    folder = make_study(tmp_path)
    study, token = read_study(folder), new_token()
    store = open_store(folder)
    store.join(token_to_id(token), 10, consented=True)
    store.database.close()
    names = [name for pair in study.pairs for name in (pair.a, pair.b)]
    pictures = {picture_file(folder, name).read_bytes() for name in names}
    originals = [
        f"GET /join/{study.join} {HEAD}\r\n".encode(),
        f"GET /p/{token} {HEAD}\r\n".encode(),
        f"GET /image/{names[0]}.png {HEAD}\r\n".encode(),
        f"GET /image/../study.yaml {HEAD}\r\n".encode(),
        f"GET /style.css {HEAD}Cookie: a=b\r\nAccept-Encoding: gzip\r\n\r\n".encode(),
        form(f"/join/{study.join}", ""),
        form(f"/p/{token}", "number=1&choice=1"),
        form(f"/p/{token}/consent", "x=%00%ff&y=%E4"),
    ]
    chance = random.Random(0)
    with serving(folder) as address:
        port = urlsplit(address).port
        assert port is not None
        for _ in range(cases):
            request = mutated(chance.choice(originals), chance)
            with attack.case():
                answer = answer_to(port, request)
                assert status_of(answer) < 500, (request, answer[:300])
                content = answer.partition(b"\r\n\r\n")[2]
                if b"\r\ncontent-type: image/png\r\n" in answer.lower() and status_of(answer) == 200:
                    assert any(content.startswith(picture) for picture in pictures)  # more requests may follow
                assert study.key.encode() not in answer
        assert {status_of(answer_to(port, whole, patience=60)) for whole in originals} == {200, 303, 404}
        client = Client(address)
        assert client.get(f"/join/{study.join}").status == 200  # the server is well
        client.close()
    store = open_store(folder)
    votes = store.votes()
    store.database.close()
    assert {vote.participant for vote in votes} <= {token_to_id(token)}
    assert {vote.number for vote in votes} <= {*range(1, len(study.pairs) + 1)}
    assert len({vote.number for vote in votes}) == len(votes)
