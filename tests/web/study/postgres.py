"""A PostgreSQL server of one's own, on a free port, for as long as it is needed."""

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.web.study.cases import free_port

PASSWORD = "s3cret%2Fword"  # as a URL has it


@contextmanager
def postgresql():
    """Starts a server -> the URL of its database; skips where there is none to start."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'wcgan[web]'")
    initdb, pg_ctl = shutil.which("initdb"), shutil.which("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("initdb and pg_ctl are not there: install PostgreSQL's server and put them on PATH")
    folder, port = Path(tempfile.mkdtemp(prefix="study-postgres-")), free_port()
    owner = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None  # it refuses to run as root
    (folder / "password").write_text("s3cret/word")
    if owner is not None:
        for path in (folder, folder / "password"):
            os.chown(path, owner, -1)

    def run(*command):
        done = subprocess.run(command, user=owner, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    data = folder / "data"
    try:
        secret = ("--auth=scram-sha-256", f"--pwfile={folder / 'password'}", "--username=study")
        run(initdb, "--no-sync", "--encoding=UTF8", *secret, str(data))
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        run(pg_ctl, "-w", "-D", str(data), "-o", options, "-l", str(folder / "log"), "start")
        try:
            yield f"postgresql://study:{PASSWORD}@127.0.0.1:{port}/postgres"
        finally:
            run(pg_ctl, "-w", "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
