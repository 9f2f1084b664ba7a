"""The ablation of the recipe: rows that are one change each, and a table of those that were run."""

from pathlib import Path

import pytest
from tests.benchmarks.scripts import load_script
from tests.train.test_start import TINY

from wcgan.core.config import config_to_dict
from wcgan.runs.folder import Run, config_differences

recipe = load_script("recipe")
UNIMPORTANT = ("log_every", "sample_every", "checkpoint_every", "keep_checkpoints")
RESULTS = Path(__file__).parents[2] / "results" / "recipe" / "rows"


def test_a_row_changes_what_it_says_and_nothing_else():
    plain, *others = (
        (row, config_to_dict(recipe.row_to_config(row, "cifar10/best", 100, None, ()))) for row in recipe.ROWS
    )
    for row, config in others:
        changed = {difference.split(" is ")[0] for difference in config_differences(config, plain[1])}
        assert changed == {setting.split("=")[0] for setting in recipe.ROWS[row]}, row


def test_the_table_of_committed_runs_has_the_scores_of_their_training(capsys):
    recipe.main(["--out", str(RESULTS), "--rows"])
    cells = [[cell.strip() for cell in line.split("|")[1:6]] for line in capsys.readouterr().out.splitlines()[2:]]
    assert cells == [
        ["start", "-", "23.48", "23.48", "10000"],
        ["cBN", "generator.normalization=cBN", "38.60", "38.60", "10000"],
        ["generator of 256", "generator.widths=[256, 256, 256]", "19.43", "19.43", "10000"],
        ["consistency", "train.consistency=10", "21.74", "21.74", "10000"],
        ["augmentation", "train.augment=[translation, cutout]", "27.52", "27.52", "10000"],
        ["2 updates of D on 128", "train.critic_steps=2 train.batch=128", "26.27", "26.27", "10000"],
    ]


def test_a_committed_run_is_what_its_row_says():
    for folder in sorted(RESULTS.iterdir()):
        row = next(row for row in recipe.ROWS if recipe.row_to_folder(row, RESULTS) == folder)
        made = config_to_dict(recipe.row_to_config(row, "cifar10/best", 10_000, None, ()))
        kept = config_to_dict(Run(folder).config())
        differences = {d.split(" is ")[0] for d in config_differences(made, kept)}
        assert differences <= {f"train.{name}" for name in UNIMPORTANT}, row


def test_a_row_that_is_not_there_is_said(capsys):
    with pytest.raises(SystemExit):
        recipe.main(["--rows", "no", "augmentation"])
    assert "there is no row 'no'; the rows are start, cBN" in capsys.readouterr().err


@pytest.mark.slow
def test_rows_that_were_run_are_in_the_table(tmp_path, capsys):
    tiny = [part for setting in TINY for part in ("--set", setting)]
    for rows in (["start"], ["cBN", "start"]):
        recipe.main(["--preset", "digits/cWC", "--iterations", "3", "--out", str(tmp_path), "--rows", *rows, *tiny])
    head, _, *lines = capsys.readouterr().out.splitlines()[-4:]
    assert head.startswith("| row ")
    assert [line.split("|")[1].strip() for line in lines] == ["start", "cBN"]
    assert all(float(line.split("|")[3]) > 0 for line in lines)
