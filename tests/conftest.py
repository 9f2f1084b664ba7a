"""What all tests share."""

from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # the tests share the cores among processes; threads on top only get in each other's way


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and a data folder of its own for each test, and no weights but its own."""
    folder = tmp_path_factory.mktemp("wcgan")
    monkeypatch.setenv("WCGAN_CACHE", str(folder / "cache"))
    monkeypatch.setenv("WCGAN_DATA", str(folder / "data"))
    monkeypatch.delenv("WCGAN_INCEPTION_WEIGHTS", raising=False)
    return folder
