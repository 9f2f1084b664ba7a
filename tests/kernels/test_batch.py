"""The kernels for batches where there is no GPU: Triton interprets them, in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parent
NEWER = {"tf32": "hopper tf32", "ieee": "hopper float32"}  # PyTorch's setting -> ours, where there is no GPU


@pytest.mark.parametrize(
    ("files", "which"),
    [
        ("interpreted.py interpreted_images.py", "not slow"),  # in one process: its start takes seconds
        ("interpreted_layer.py", "not slow"),
        ("interpreted_blocks.py interpreted_groups.py", "not slow"),
        pytest.param("interpreted.py interpreted_images.py", "slow", marks=pytest.mark.slow),
        pytest.param("interpreted_layer.py", "slow", marks=pytest.mark.slow),
        pytest.param("interpreted_blocks.py interpreted_groups.py", "slow", marks=pytest.mark.slow),
    ],
)
def test_interpreted_kernels_compute_what_plain_operators_do(files, which):
    pytest.importorskip("triton", reason="Triton is not installed")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", which]
    command += [str(FOLDER / file) for file in files.split()]
    environment = os.environ | {"TRITON_INTERPRET": "1"}  # read when Triton is imported
    result = subprocess.run(
        command, cwd=FOLDER.parents[1], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"\d{2} passed", result.stdout)
    assert "skipped" not in result.stdout


def test_the_precision_of_float32_products_follows_either_of_pytorchs_settings():
    """In a process of its own: once the newer setting has been used, PyTorch refuses to read the older one."""
    pytest.importorskip("triton", reason="Triton is not installed")
    settings = {
        "torch.backends.cuda.matmul.allow_tf32 = True": "hopper tf32",
        "torch.backends.cuda.matmul.allow_tf32 = False": "hopper float32",
        "torch.set_float32_matmul_precision('high')": "hopper tf32",
        "torch.set_float32_matmul_precision('highest')": "hopper float32",
    }
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        settings |= {f"torch.backends.cuda.matmul.fp32_precision = '{p}'": s for p, s in NEWER.items()}
    lines = [f"{setting}; print(precision_of(torch.ones(1)))" for setting in settings]
    code = "\n".join(["import torch", "from wcgan.kernels.batch import precision_of", *lines])
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == list(settings.values())
