"""Every test has a cache and a data folder of its own."""

from pathlib import Path

import pytest
from tests.data.cases import counted  # noqa: F401


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("WCGAN_CACHE", str(cache))
    monkeypatch.delenv("WCGAN_DATA", raising=False)
    return cache
