import pytest
from tests.reproduce.cases import write_pictures


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One for all tests of tables, with that classifier in it."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def shared_cache(cache, own_folders, monkeypatch):
    monkeypatch.setenv("WCGAN_CACHE", str(cache))
