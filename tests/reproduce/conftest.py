import pytest
from tests.reproduce.cases import write_pictures


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"))
