"""`wcgan reproduce`: what it prints, and what it refuses in one sentence."""

import os
from functools import partial
from pathlib import Path

import pytest
from tests.reproduce.cases import everything, tiny

from wcgan.paper.listing import architectures_to_lines
from wcgan.reproduce.measurements import tables_to_lines
from wcgan.reproduce.plan import plan_table
from wcgan.runs.folder import new_run

pytestmark = pytest.mark.usefixtures("digits_at_hand")


@pytest.fixture
def command(command, monkeypatch, tmp_path):
    """`wcgan reproduce ...` in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return partial(command, "reproduce")


def test_the_list_is_printed_line_by_line(command, tmp_path):
    code, out, err = command("--list")
    assert (code, err) == (0, "")
    assert out.splitlines() == tables_to_lines()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "name a table"),
        (["table14"], "unknown table 'table14'"),
        (["table3", "--rows", "cWC"], "ablation-WC has no row 'cWC'"),
        (["digits", "--scale", "2"], "--scale must be more than 0 and at most 1, got 2.0"),
        (["digits", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["digits", "--set", "train.seed=1"], "train.seed is not for --set here"),
        (["digits", "--gpus-per-run", "3"], "--gpus-per-run must be more than 0 and at most 1, got 3.0"),
        (["--from", "nowhere"], "nowhere does not exist"),
        (["--from", "results", "--out", "new"], "--from results is also where the tables are written: leave out --out"),
        (["--from", "results", "--dry-run", "--seeds", "3"], "of the runs there are: leave out --seeds, --dry-run"),
        (["grids"], "reproduce has no run with a checkpoint"),
        (["grids", "--set", "train.batch=2"], "leave out --set train.batch=2"),
        (["figure5"], "reproduce has no checkpoint for 2 of 2 panels"),
        (["table11"], "reproduce/user-study has no report of a study"),
        (["table9", "--set", "train.batch=2"], "leave out --set train.batch=2"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_leaves_nothing(arguments, sentence, command, tmp_path):
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("wcgan: ")
    assert err.count("\n") == 1
    assert sentence in err
    assert list(tmp_path.iterdir()) == []


def test_a_table_is_made_pictured_and_rebuilt(command, pictures, tmp_path):
    sets = [part for setting in tiny(4, pictures=pictures) for part in ("--set", setting)]
    code, out, _ = command("digits", "--rows", "cBN", "--scale", "0.5", *sets)
    folder = tmp_path / "reproduce-x0.5" / "digits"
    assert code == 0
    kinds = ("md", "csv", "tex", "html", "svg")
    assert out.splitlines()[-5:] == [f"{kind}: reproduce-x0.5/digits/table.{kind}" for kind in kinds]
    assert ["seed-0", "cBN", "4"] in [line.split()[:3] for line in out.splitlines()]
    for kind in ("md", "csv", "tex", "html"):
        assert "0.5" in (folder / f"table.{kind}").read_text(encoding="utf-8")
    assert command("grids", "--scale", "0.5")[0] == 0
    assert (folder.parent / "grids" / "digits" / "digits-cBN" / "class-rows.png").is_file()
    (folder / "table.html").unlink()
    code, out, _ = command("--from", "reproduce-x0.5")
    assert (code, out) == (0, "digits: reproduce-x0.5/digits/table.html\n")
    assert "0.5" in (folder / "table.html").read_text(encoding="utf-8")


def test_a_row_that_is_missing_is_exit_code_one(command):
    code, out, _ = command("mnist", "--rows", "mnist/BN")
    assert code == 1
    assert out.startswith("mnist/BN, seed 0: mnist is not in ")


@pytest.fixture
def trained_nothing(monkeypatch):
    """Any attempt to build networks or to read data fails."""
    for name in ("estimate_cost.build_players", "estimate_cost.load_data", "plan.load_data"):
        monkeypatch.setattr(f"wcgan.reproduce.{name}", None)


@pytest.mark.usefixtures("trained_nothing")
def test_a_dry_run_lists_rows_and_missing_data_and_does_nothing_else(command, tmp_path):
    before = everything(Path(os.environ["WCGAN_CACHE"]))
    code, out, _ = command("mnist", "--dry-run", "--rows", "mnist", "--seeds", "2")
    head, *rows, total, missing = out.splitlines()
    assert code == 1  # the data is not there
    assert head.split() == ["row", "iterations", "done", "begun", "folder"]
    assert [line.split() for line in rows] == [
        [f"mnist/{name}", "5,000", "0", "of", "2", "0", f"reproduce/mnist/mnist-{name}/seed-*"]
        for name in ("BN", "WC", "cBN", "cWC")
    ]
    assert total.split() == ["all", "0", "of", "8", "0"]
    assert missing.startswith("4 of 4 rows cannot be trained here: mnist is not in ")
    assert list(tmp_path.iterdir()) == []
    assert everything(Path(os.environ["WCGAN_CACHE"])) == before


@pytest.mark.usefixtures("trained_nothing")
def test_a_dry_run_says_what_is_done_and_what_is_begun(command, tmp_path):
    sets = tiny(4)
    plan = plan_table("digits", ["BN", "WC"], 2, settings=sets, out=tmp_path / "out")
    states = {("digits/BN", 0): "diverged", ("digits/BN", 1): "resumed"}
    for run in plan.runs:
        if (state := states.get((run.row.preset, run.seed))) is not None:
            new_run(run.folder, run.config).record("event", 2, what=state)
    before = everything(tmp_path)
    options = [part for setting in sets for part in ("--set", setting)]
    code, out, _ = command("digits", "--dry-run", "--rows", "BN,WC", "--seeds", "2", "--out", "out", *options)
    assert code == 0
    assert [" ".join(line.split()) for line in out.splitlines()[1:]] == [
        "digits/BN 4 1 of 2 1 out/digits/digits-BN/seed-*",
        "digits/WC 4 0 of 2 0 out/digits/digits-WC/seed-*",
        "all 1 of 4 1",
    ]
    assert everything(tmp_path) == before


def test_an_estimate_has_time_and_disk_of_each_row_and_leaves_no_run(quick_estimates, command, tmp_path):
    sets = [part for setting in tiny(4) for part in ("--set", setting)]
    code, out, _ = command("digits", "--estimate", "--rows", "BN", *sets)
    assert code == 0
    assert out.splitlines()[0].split() == ["row", "iterations", "done", "time", "left", "disk"]
    assert out.splitlines()[1].startswith("digits/BN ")
    assert list(tmp_path.iterdir()) == []


def test_an_estimate_without_the_data_is_exit_code_one(command, tmp_path):
    code, out, _ = command("mnist", "--estimate", "--rows", "mnist/BN")
    assert code == 1
    assert out.splitlines()[-2].startswith("1 of 1 rows cannot be trained here and are left out of the sum: mnist is")


def test_a_dry_run_of_the_overhead_times_nothing_and_writes_nothing(command, tmp_path, monkeypatch):
    monkeypatch.setattr("wcgan.reproduce.overhead.measure", None)  # a call would fail
    code, out, _ = command("overhead", "--dry-run")
    assert code == 0
    assert out.startswith("would time iterations with BN, WC, WzcaC, cBN, cWC, cWC_sa, and whitening by Cholesky")
    assert list(tmp_path.iterdir()) == []


def test_a_table_of_architectures_is_printed_and_nothing_is_written(command, tmp_path):
    code, out, _ = command("table12")
    assert (code, out.splitlines()) == (0, architectures_to_lines(12))
    assert list(tmp_path.iterdir()) == []
