"""The playground as its command serves it, in a process of its own that writes down whom it calls."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.web.demo.cases import write_run

from wcgan.runs.pretrained import shipped

# Without pip install 'wcgan[web]' there is no page to test.
collect_ignore_glob = [] if find_spec("gradio") else ["test_*.py"]
# The command, with every address that the process connects to on a line of the file named first.
PROGRAM = """
import socket, sys
calls, connect = open(sys.argv.pop(1), "a"), socket.socket.connect
def written_down(self, address):
    print(address, file=calls, flush=True)
    return connect(self, address)
socket.socket.connect = written_down
from wcgan.cli import main
main()
"""


@dataclass(frozen=True)
class Served:
    url: str
    runs: tuple[Path, ...]
    log: Path
    calls: Path

    def post(self, path, content, **headers):
        """-> status and text of the answer."""
        headers = {"Content-Type": "application/json", **headers}
        request = urllib.request.Request(self.url + path, content, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def ask(self, name, *values):
        """Calls a function of the page as its API does -> the event's kind, and what came with it."""
        _, text = self.post(f"gradio_api/call/{name}", json.dumps({"data": values}).encode())
        event = json.loads(text)["event_id"]
        with urllib.request.urlopen(f"{self.url}gradio_api/call/{name}/{event}", timeout=60) as answer:
            kind, data = answer.read().decode().strip().splitlines()[:2]
        return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """Three generators: the shipped one of digits, one that is not trained, and one without classes."""
    folder = tmp_path_factory.mktemp("served")
    runs = (shipped("digits-cWC_sa"), write_run(folder / "plain"), write_run(folder / "classless", "WC"))
    port, log, calls = free_port(), folder / "log", folder / "calls"
    calls.touch()
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GRADIO_TEMP_DIR": str(folder / "cache")}
    with log.open("w") as file:
        command = [sys.executable, "-c", PROGRAM, calls, "demo", *runs, "--port", port, "--device", "cpu"]
        process = subprocess.Popen([str(part) for part in command], stdout=file, stderr=file, env=environment)
        try:
            deadline = time.monotonic() + 120
            while "playground, to open in a browser: " not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
            yield Served(f"http://127.0.0.1:{port}/", runs, log, calls)
        finally:
            process.terminate()
            process.wait(20)
