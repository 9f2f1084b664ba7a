"""The kernels for batches where there is no GPU: Triton interprets them, in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def test_interpreted_kernels_compute_what_the_plain_passes_do():
    pytest.importorskip("triton", reason="Triton is not installed")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER / "interpreted.py")]
    environment = os.environ | {"TRITON_INTERPRET": "1"}  # read when Triton is imported
    result = subprocess.run(
        command, cwd=FOLDER.parents[1], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"\d{2} passed", result.stdout)
    assert "skipped" not in result.stdout
