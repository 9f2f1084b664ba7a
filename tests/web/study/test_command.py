"""`wcgan study` as a person types it."""

import re
import signal
import socket
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from tests.web.study.cases import Client, begin_server, free_port, make_study, open_store, write_side

from wcgan.web.study import read_study


@pytest.fixture
def command(command):
    """`wcgan study ...`"""
    return partial(command, "study")


def vote_on_all(address, path, choice):
    client = Client(address)
    if "I agree" in client.get(path).text:
        client.post(f"{path}/consent")
    while number := client.get(path).number:
        client.post(path, number=number, choice=choice)
    client.close()


def listens_on(pid, port):
    """The addresses on which somebody listens on a port, as the kernel lists them for a process."""
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    local = [fields[1].split(":") for fields in lines if fields[3] == "0A"]
    return [str(IPv4Address(bytes.fromhex(host)[::-1])) for host, own in local if int(own, 16) == port]


def test_a_study_from_create_to_report(command, tmp_path):
    a, b = write_side(tmp_path / "a"), write_side(tmp_path / "b", seed=1)
    (tmp_path / "consent.txt").write_text("Only my words.")
    folder, port = tmp_path / "study", free_port()
    options = ("--pairs", 3, "--images", 4, "--checks", 2, "--consent", tmp_path / "consent.txt")
    code, out, _ = command("create", a, b, "--out", folder, *options)
    assert (code, out.splitlines()[0]) == (0, f"3 pairs and 2 attention checks: {folder}")
    process = begin_server(folder, port, "--participants", "2")
    try:
        second = process.stdout.readline().strip()
        assert second.startswith("link for participant 2: http://127.0.0.1:")
        links = [process.link, second.rpartition(" ")[2]]
        assert process.stdout.readline() == f"stop with Ctrl+C; results so far: wcgan study report {folder}\n"
        address = f"http://127.0.0.1:{port}"
        paths = [link.removeprefix(address) for link in links]
        assert listens_on(process.pid, port) == ["127.0.0.1"]
        for path, choice in zip(paths, "12", strict=True):
            assert re.fullmatch(r"/p/[\w-]{32}", path)
            vote_on_all(address, path, choice)
        client = Client(address)
        for wanted in (f"{paths[0]}x", f"{paths[0]}/nothing", "/image/../study.yaml"):
            assert client.get(wanted).status == 404
        assert client.post(paths[0], number="x").status == 400
        client.close()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert "Traceback" not in err
    tokens = [path.removeprefix("/p/") for path in paths]
    assert [secret for secret in (*tokens, read_study(folder).key) if secret in out + err] == []
    assert len(open_store(folder).votes()) == 10

    code, out, _ = command("report", folder, "--most-failed", 2)
    assert code == 0
    assert "Preference for b, averaged over participants" in out
    assert re.search(r"Participants counted +2 of 2", out)
    assert f"report: {folder / 'report.html'}" in out
    assert (folder / "report.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serve", "{}/nothing"), "is not the folder of a study: it has no study.yaml"),
        (("report", "{}/nothing"), "is not the folder of a study: it has no study.yaml"),
        (("report", "{}/study"), "has no votes yet"),
        (("serve", "{}/study", "--port", "70000"), "port must be a whole number from 0 to 65535, got 70000"),
        (("serve", "{}/study", "--participants", "0"), "participants must be a whole number from 1"),
        (
            ("serve", "{}/study", "--port", "0", "--participants", "1001"),
            "1001 links are wanted and 1000 places are left",
        ),
        (("serve", "{}/study", "--host", "no.such.host.invalid"), "cannot be listened on"),
        (("serve", "{}/study", "--database", "mysql://me:s3cret@x/y"), "not as mysql://"),
        (("create", "{}/smooth", "{}/rough", "--out", "{}/study"), "exists already"),
        (("create", "{}/smooth", "{}/rough", "--out", "{}/new", "--consent", "{}/none"), "no such file"),
    ],
)
def test_what_a_user_can_mend_is_one_sentence(command, tmp_path, arguments, message):
    make_study(tmp_path)
    code, _, err = command(*(argument.format(tmp_path) for argument in arguments))
    assert code == 2
    assert err.startswith("wcgan: ")
    assert err.count("\n") == 1
    assert message in err
    assert "s3cret" not in err


def test_a_port_that_is_taken_is_one_sentence(command, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = command("serve", make_study(tmp_path), "--port", port)
    assert (code, err) == (2, f"wcgan: 127.0.0.1 port {port} cannot be listened on: address already in use\n")
