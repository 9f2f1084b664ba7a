"""Visitors who mean no good: requests that never end, crowds, and people who join again and again."""

import asyncio
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest
import uvicorn
from tests.web.study.cases import Client, begin_server, free_port, make_study, open_store, serving

from wcgan.web.study import app, read_study
from wcgan.web.study.app import Rate, address_to_network, build_app
from wcgan.web.study.config import picture_file
from wcgan.web.study.server import allow_open_files, bounded_protocol, listen


@pytest.fixture
def folder(tmp_path):
    return make_study(tmp_path)


@contextmanager
def bounded(folder, **bounds):
    """A server with bounds of its own -> its port."""
    study, store = read_study(folder), open_store(folder)
    with listen("127.0.0.1", 0) as listener:
        config = uvicorn.Config(
            build_app(folder, study, store),
            http=bounded_protocol(**bounds),
            log_level="critical",
            lifespan="off",
            ws="none",
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)
            store.database.close()


def half_sent(port, content=b"GET / HTTP/1.1\r\nHost: x\r\n", source="127.0.0.1"):
    connection = socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(source, 0))
    connection.sendall(content)
    return connection


def seconds_open(connection):
    start = time.monotonic()
    with connection:
        try:
            while connection.recv(65536):
                pass
        except OSError:
            pass
    return time.monotonic() - start


@pytest.mark.parametrize(
    "content", [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET /style.css HTTP/1.1\r\nHost: x\r\n\r\nGET /"]
)
def test_a_request_that_does_not_come_is_not_waited_for(folder, content):
    with bounded(folder, head_seconds=0.5) as port:
        assert seconds_open(half_sent(port, content)) < 10


def test_a_request_that_trickles_in_is_not_waited_for(folder):
    with bounded(folder, head_seconds=1) as port:
        start = time.monotonic()
        with half_sent(port) as connection, suppress(ConnectionResetError, BrokenPipeError):
            while time.monotonic() - start < 20:
                connection.sendall(b"X-A: b\r\n")
                time.sleep(0.05)
        assert time.monotonic() - start < 10


def test_a_body_that_does_not_come_is_not_waited_for(folder):
    join = read_study(folder).join
    head = f"POST /join/{join} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx".encode()
    with bounded(folder, answer_seconds=0.5) as port:
        assert seconds_open(half_sent(port, head)) < 9  # the application would wait for ten


def test_an_answer_that_is_not_taken_is_not_waited_for(folder):
    """Somebody asks for pictures and never reads them; more of them than the system holds in its buffers."""
    picture = picture_file(folder, read_study(folder).pairs[0].a)
    picture.write_bytes(picture.read_bytes() + bytes(30 << 20))
    request = f"GET /image/{picture.name} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with bounded(folder, head_seconds=0.5, answer_seconds=1) as port:
        connection = half_sent(port, request)
        time.sleep(4)
        got = 0
        with connection:
            try:
                while part := connection.recv(1 << 20):
                    got += len(part)
            except OSError:
                pass
        assert got < 30 << 20  # it was cut off
        client = Client(f"http://127.0.0.1:{port}")
        assert len(client.get(f"/image/{picture.name}").body) > 30 << 20  # somebody who reads gets it all
        client.close()


def test_one_address_cannot_hold_more_than_its_share(folder):
    with bounded(folder, per_address=20, head_seconds=60) as port:
        crowd = [half_sent(port) for _ in range(60)]
        client = Client(f"http://127.0.0.1:{port}")
        assert client.get("/style.css").status == 200  # even from the same address: who waits longest goes first
        closed = 0
        for connection in crowd:
            connection.settimeout(0.1)
            try:
                closed += connection.recv(1) == b""
            except ConnectionResetError:
                closed += 1
            except TimeoutError:
                pass
            connection.close()
        client.close()
    assert closed == 60 - 19  # the client holds the twentieth


def test_half_sent_requests_lock_nobody_out(folder):
    """2,050 of them at once against the command itself."""
    warnings = []
    allow_open_files(2050 + 200, warnings.append)
    if warnings:
        pytest.skip(warnings[0])
    port = free_port()
    process = begin_server(folder, port)
    crowd = []

    async def attack():
        for _ in range(2050):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /join/x HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            crowd.append(writer)

        def visit():
            client = Client(f"http://127.0.0.1:{port}")
            try:
                return client.get(f"/join/{read_study(folder).join}").status
            finally:
                client.close()

        start = time.monotonic()
        statuses = [await asyncio.to_thread(visit) for _ in range(20)]
        for writer in crowd:
            writer.transport.abort()
        return statuses, time.monotonic() - start

    try:
        statuses, seconds = asyncio.run(attack())
    finally:
        process.kill()
        process.communicate()
    assert statuses == [200] * 20
    assert seconds < 20


def test_joining_has_a_rate_for_each_address(folder, monkeypatch):
    monkeypatch.setattr(app, "JOINS_AT_ONCE", 5)
    join = f"/join/{read_study(folder).join}"
    with serving(folder) as address:
        client = Client(address)
        answers = [client.post(join) for _ in range(8)]
        other = client.ask("POST", join, "", **{"X-Forwarded-For": "192.0.2.9"})  # behind a proxy on this machine
        client.close()
    assert [answer.status for answer in answers] == [303] * 5 + [429] * 3
    assert answers[-1].sentence == "Many people have just joined from your network. Go back and try again in a minute."
    assert other.status == 303
    assert len(open_store(folder).participants()) == 6


def test_the_rate_recovers_and_forgets():
    now = [0.0]
    rate = Rate(at_once=3, per_minute=6, clock=lambda: now[0])
    assert [rate.allow("a") for _ in range(4)] == [True, True, True, False]
    now[0] += 10
    assert [rate.allow("a") for _ in range(2)] == [True, False]
    now[0] += 1e6
    assert [rate.allow("a") for _ in range(4)] == [True, True, True, False]
    for number in range(20_000):
        rate.allow(str(number))
    assert len(rate._left) <= 10_000


def test_the_addresses_of_one_subscriber_are_one():
    assert (
        address_to_network("2001:db8:1:2:3:4:5:6") == address_to_network("2001:db8:1:2::1%eth0") == "2001:db8:1:2::/64"
    )
    assert address_to_network("2001:db8:1:3::1") != address_to_network("2001:db8:1:2::1")
    assert address_to_network("unix") == "unix"
