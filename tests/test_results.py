"""The committed results: their tables are what the program makes of the committed runs."""

import shutil
from pathlib import Path

import pytest

from wcgan.experiments.reproduce import rebuild
from wcgan.experiments.tables import EXPERIMENTS
from wcgan.report import write_table

RESULTS = Path(__file__).parents[1] / "results"
TABLES = [key for key in EXPERIMENTS if (RESULTS / key).is_dir()]


def test_there_are_some():
    assert TABLES


@pytest.mark.parametrize("key", TABLES)
def test_a_committed_table_is_that_of_its_runs(key, tmp_path):
    shutil.copytree(RESULTS, tmp_path / "results")
    for file in (tmp_path / "results" / key).glob("table.*"):
        file.unlink()
    rebuild(tmp_path / "results", key, write_table)
    for form in ("md", "csv", "tex", "html", "svg"):
        made, kept = (folder / key / f"table.{form}" for folder in (tmp_path / "results", RESULTS))
        assert made.read_text() == kept.read_text(), f"run `wcgan reproduce --from results`: {kept} is out of date"
