"""A table, and seeds of its first row."""

import pytest
from tests.report.cases import published
from tests.report.tables import TABLE, finished

from wcgan.report import write_table


@pytest.fixture
def two_seeds(tmp_path):
    """Two seeds of the first row: IS 8.4 and 8.6, FID 18 and 19."""
    return [
        finished(tmp_path / f"s{s}", s, published(1000, IS=8.4 + s / 5, FID=18.0 + s), commit="1a2b3c") for s in (0, 1)
    ]


@pytest.fixture
def write(tmp_path):
    """Writes the table -> its files."""

    def write(runs, table=TABLE, **options):
        return write_table(table, runs, tmp_path / "out", **options)

    return write
