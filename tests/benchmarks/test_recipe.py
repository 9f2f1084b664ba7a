"""The ablation of the recipe: rows that are one change each, and a table of those that were run."""

import shutil
from pathlib import Path

import pytest
from tests.benchmarks.scripts import load_script
from tests.train.test_start import TINY

from wcgan.core.config import config_to_dict
from wcgan.runs.folder import config_differences

recipe = load_script("recipe")
RESULTS = Path(__file__).parents[2] / "results" / "recipe"


def test_a_row_changes_what_it_says_and_nothing_else():
    plain, *others = (
        (row, config_to_dict(recipe.row_to_config(row, "cifar10/best", 100, None, ()))) for row in recipe.ROWS
    )
    for row, config in others:
        changed = {difference.split(" is ")[0] for difference in config_differences(config, plain[1])}
        assert changed == {setting.split("=")[0] for setting in recipe.ROWS[row]}, row


def test_the_table_of_committed_runs_has_the_scores_of_their_training(tmp_path, capsys):
    for row, run in (("recipe", "cWC"), ("cBN", "cBN")):
        shutil.copytree(RESULTS / run, tmp_path / row)
    recipe.main(["--out", str(tmp_path), "--rows"])
    cells = [[cell.strip() for cell in line.split("|")[1:6]] for line in capsys.readouterr().out.splitlines()[2:]]
    assert cells == [
        ["recipe", "-", "16.93", "16.93", "14200"],
        ["cBN", "generator.normalization=cBN", "19.23", "18.41", "18000"],
    ]


def test_a_row_that_is_not_there_is_said(capsys):
    with pytest.raises(SystemExit):
        recipe.main(["--rows", "no", "augmentation"])
    assert "there is no row 'no'; the rows are recipe, cBN" in capsys.readouterr().err


@pytest.mark.slow
def test_rows_that_were_run_are_in_the_table(tmp_path, capsys):
    tiny = [part for setting in TINY for part in ("--set", setting)]
    for rows in (["recipe"], ["cBN", "recipe"]):
        recipe.main(["--preset", "digits/cWC", "--iterations", "3", "--out", str(tmp_path), "--rows", *rows, *tiny])
    head, _, *lines = capsys.readouterr().out.splitlines()[-4:]
    assert head.startswith("| row ")
    assert [line.split("|")[1].strip() for line in lines] == ["recipe", "cBN"]
    assert all(float(line.split("|")[3]) > 0 for line in lines)
