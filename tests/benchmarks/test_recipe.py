"""The ablation of the recipe: rows that are one change each, and a table of those that were run."""

import pytest
from tests.benchmarks.scripts import load_script
from tests.train.test_start import TINY

from wcgan.core.config import config_to_dict
from wcgan.runs.folder import config_differences

recipe = load_script("recipe")


def test_a_row_changes_what_it_says_and_nothing_else():
    plain, *others = (
        (row, config_to_dict(recipe.row_to_config(row, "cifar10/best", 100, None, ()))) for row in recipe.ROWS
    )
    for row, config in others:
        changed = {difference.split(" is ")[0] for difference in config_differences(config, plain[1])}
        assert changed == {setting.split("=")[0] for setting in recipe.ROWS[row]}, row


@pytest.mark.slow
def test_rows_that_were_run_are_in_the_table(tmp_path, capsys):
    tiny = [part for setting in TINY for part in ("--set", setting)]
    for rows in (["recipe"], ["cBN", "recipe"]):
        recipe.main(["--preset", "digits/cWC", "--iterations", "3", "--out", str(tmp_path), "--rows", *rows, *tiny])
    head, _, *lines = capsys.readouterr().out.splitlines()[-4:]
    assert head.startswith("| row ")
    assert [line.split("|")[1].strip() for line in lines] == ["recipe", "cBN"]
    assert all(float(line.split("|")[3]) > 0 for line in lines)
