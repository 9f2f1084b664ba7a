"""What the tests of the study share."""

from importlib.util import find_spec

import pytest

# Without `pip install 'wcgan[web]'` there is nothing to test.
collect_ignore_glob = [] if find_spec("fastapi") and find_spec("uvicorn") else ["test_*.py"]


@pytest.fixture(scope="session")
def postgres():
    """The URL of a database of a server that was started for the tests."""
    from tests.web.study.postgres import postgresql

    with postgresql() as url:
        yield url
