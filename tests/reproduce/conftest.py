import pytest
from tests.reproduce.cases import write_pictures


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture
def quick_estimates(monkeypatch):
    """Timings of a moment."""
    monkeypatch.setattr("wcgan.reproduce.estimate_cost.SECONDS", 0.05)
