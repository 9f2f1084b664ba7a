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
# Writes down what the page of some generators consists of, then starts the command at a port. In a process of its own:
# Gradio leaves event loops open that only a server would close.
BUILDS = """
import json, sys
from pathlib import Path
from wcgan.cli import main
from wcgan.web.demo.app import build, load_runs
file, port, *runs = sys.argv[1:]
parts = build(load_runs(list(map(Path, runs)), device="cpu")).get_config_file()["components"]
Path(file).write_text(json.dumps([{"kind": part["type"], **part["props"]} for part in parts], default=str))
sys.argv = ["wcgan", "demo", runs[0], "--port", port, "--device", "cpu"]
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


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A page of two generators, one without classes, one with, and noise of two lengths; its port is taken.

    Returns its components, the port, and how the command ended.
    """
    folder = tmp_path_factory.mktemp("built")
    runs = [write_run(folder / "classless", "WC", noise=16), "digits-cWC_sa"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-c", BUILDS, folder / "components", port, *runs]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
    return json.loads((folder / "components").read_text()), port, done


@pytest.fixture(scope="session")
def components(built):
    return built[0]
