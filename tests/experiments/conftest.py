"""What holds for all tests of this folder."""

from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Batches here are so small that a second thread only costs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and a data folder of its own for each test."""
    folder = tmp_path_factory.mktemp("wcgan")
    monkeypatch.setenv("WCGAN_CACHE", str(folder / "cache"))
    monkeypatch.setenv("WCGAN_DATA", str(folder / "data"))
    return folder
