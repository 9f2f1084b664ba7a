"""A table made one run after another: what is missing is run, what was stopped goes on, what is done is left alone."""

import json
import shutil
import signal

import pytest
import torch
from tests.evaluate.cases import random_weights
from tests.reproduce.cases import ITERATIONS, everything, lines_of, tiny
from tests.train.cases import different, last_tensors

from wcgan.evaluate.inception import VARIABLE
from wcgan.report.numbers import number
from wcgan.reproduce.command import rebuild, reproduce
from wcgan.reproduce.plan import plan_table, write_options
from wcgan.runs.checkpoint import read_newest
from wcgan.runs.folder import Run
from wcgan.train.batches import GanBatches
from wcgan.train.start import start

ROWS = ("digits/BN", "digits/cWC")
pytestmark = pytest.mark.usefixtures("digits_at_hand")


@pytest.fixture(scope="module")
def planned(pictures):
    def plan(out, *rows, settings=(), iterations=ITERATIONS, **options):
        chosen = tiny(iterations, *settings, pictures=pictures)
        return plan_table("digits", rows or ROWS, settings=chosen, out=out, **options)

    return plan


@pytest.fixture(scope="module")
def made(planned):
    return lambda *arguments, **options: reproduce(planned(*arguments, **options))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, digits_cache, made):
    """A table of two rows and two seeds, never stopped."""
    out = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WCGAN_CACHE", str(digits_cache))
        patch.delenv("WCGAN_INCEPTION_WEIGHTS", raising=False)
        result = made(out, seeds=2)
    return out, result


@pytest.fixture
def copy(whole, tmp_path):
    """That table, to be changed."""
    shutil.copytree(whole[0], tmp_path / "copy")
    return tmp_path / "copy"


def unescaped(file):
    """Markdown without its backslashes."""
    return file.read_text(encoding="utf-8").replace("\\", "")


def run_of(out, name="digits-cWC", seed=0):
    return Run(out / "digits" / name / f"seed-{seed}")


def test_every_run_is_trained_and_measured_once_and_the_table_has_it(whole):
    out, result = whole
    assert (result.problems, result.exit_code) == ((), 0)
    for name in ("digits-BN", "digits-cWC"):
        for seed in (0, 1):
            folder = run_of(out, name, seed).folder
            assert [line["iteration"] for line in lines_of(folder, "train")] == list(range(1, ITERATIONS + 1))
            assert [line["iteration"] for line in lines_of(folder, "evaluation")] == [ITERATIONS]
            assert Run(folder).config().train.seed == seed
    text = unescaped(result.files["md"])
    row = next(line for line in text.splitlines() if line.startswith("| digits/cWC |"))
    mean = sum(lines_of(run_of(out, seed=s).folder, "evaluation")[0]["FID(classifier)"] for s in (0, 1)) / 2
    assert f"| {number(mean)} ± " in row
    assert "Set in every run: generator.widths=[4, 4], " in text
    assert set(result.files) == {"md", "csv", "tex", "html", "svg"}


def test_what_is_done_is_left_as_it_is(whole, made):
    out, _ = whole
    before = {path: content for path, content in everything(out).items() if "seed-" in str(path)}
    assert made(out, seeds=2).exit_code == 0
    assert {path: content for path, content in everything(out).items() if "seed-" in str(path)} == before


def test_what_was_stopped_goes_on_with_the_same_bits(whole, tmp_path, made, planned):
    for run in planned(tmp_path).runs:
        start(run.config, run.folder, stop_at=5)
    assert made(tmp_path).exit_code == 0
    for name in ("digits-BN", "digits-cWC"):
        run, never_stopped = run_of(tmp_path, name), run_of(whole[0], name)
        assert different(last_tensors(run), last_tensors(never_stopped)) == []
        assert [line["iteration"] for line in lines_of(run.folder, "train")] == list(range(1, ITERATIONS + 1))
        assert [line["iteration"] for line in lines_of(run.folder, "evaluation")] == [5, ITERATIONS]


def test_a_process_killed_as_it_began_leaves_nothing_in_the_way(tmp_path, made):
    folder = run_of(tmp_path, "digits-BN").folder
    folder.mkdir(parents=True)
    (folder / ".config.yaml.123.tmp").write_text("data:")
    assert made(tmp_path, "digits/BN").exit_code == 0


def test_a_figure_that_is_missing_is_taken_from_the_last_checkpoint(whole, copy, made):
    run = run_of(copy)
    (before,) = lines_of(run.folder, "evaluation")
    kept = [line for line in run.lines() if line["kind"] != "evaluation"]
    run.metrics.write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert made(copy, seeds=2).exit_code == 0
    (after,) = lines_of(run.folder, "evaluation")
    assert after["protocol"] == before["protocol"]
    assert after["FID(classifier)"] == pytest.approx(before["FID(classifier)"], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("complete", [True, False])
def test_weights_that_came_later_add_inceptions_figures_to_runs_that_are_trained(complete, copy, made, monkeypatch):
    weights = {name: value for name, value in random_weights().items() if complete or not name.startswith("fc.")}
    torch.save(weights, copy / "weights.pth")
    monkeypatch.setenv(VARIABLE, str(copy / "weights.pth"))
    before = lines_of(run_of(copy).folder, "train")
    assert made(copy, "digits/cWC").exit_code == 0
    classifiers, inceptions = lines_of(run_of(copy).folder, "evaluation")
    assert "FID" not in classifiers
    assert {"FID", "IS", "FID(classifier)"} & set(inceptions) == ({"FID", "IS"} if complete else {"FID"})
    assert inceptions["iteration"] == ITERATIONS
    assert inceptions["protocol"]["reference"]["images"] == 20
    assert lines_of(run_of(copy).folder, "train") == before
    after = run_of(copy).metrics.read_bytes()
    assert made(copy, "digits/cWC").exit_code == 0
    assert run_of(copy).metrics.read_bytes() == after


def test_a_finished_run_without_checkpoints_is_never_trained_again(copy, made):
    run = run_of(copy)
    kept = [line for line in run.lines() if line["kind"] != "evaluation"]
    run.metrics.write_text("".join(json.dumps(line) + "\n" for line in kept))
    shutil.rmtree(run.checkpoints)
    before = everything(run.folder)
    result = made(copy, seeds=2)
    assert result.exit_code == 1
    assert len(result.problems) == 1
    assert "seed-0 lacks figures and has no checkpoint to measure" in result.problems[0]
    assert everything(run.folder) == before


def test_a_row_that_fails_says_why_and_the_others_go_on(tmp_path, made):
    folder = run_of(tmp_path, "digits-BN").folder
    folder.parent.mkdir(parents=True)
    folder.write_text("not a folder")
    result = made(tmp_path)
    assert result.exit_code == 1
    assert [problem.partition(":")[0] for problem in result.problems] == ["digits/BN, seed 0"]
    assert len(lines_of(run_of(tmp_path).folder, "evaluation")) == 1
    assert "Not done: digits/BN, seed 0 (failed)." in result.files["md"].read_text(encoding="utf-8")


def test_a_data_set_that_is_not_there_is_said_once_for_the_table_and_leaves_no_run(tmp_path, capfd):
    result = reproduce(plan_table("mnist", ["mnist"], out=tmp_path))
    assert result.exit_code == 1
    (problem,) = result.problems
    assert problem.startswith("mnist is not in ")
    assert capfd.readouterr().err.count("mnist is not in ") == 1
    assert not list(tmp_path.rglob("config.yaml"))


def test_what_some_runs_lack_is_said_once_with_their_names(tmp_path):
    result = reproduce(plan_table("mnist", ["BN", "fashion-mnist/WC"], out=tmp_path))
    assert [problem.partition(" is not in ")[0] for problem in result.problems] == [
        "mnist/BN, seed 0: mnist",
        "fashion-mnist/BN, seed 0; fashion-mnist/WC, seed 0: fashion-mnist",
    ]


def test_the_files_have_the_rows_that_were_asked_for_and_no_others(whole, copy):
    def rows(file):
        return [line.split(" | ")[0] for line in file.read_text().splitlines() if line.startswith("| digits/")]

    assert rows(whole[1].files["md"]) == ["| digits/BN", "| digits/cWC"]
    page = rebuild(copy, "digits", ["cWC"])["digits"]
    assert rows(page.with_name("table.md")) == ["| digits/cWC"]
    assert "digits/BN" not in page.read_text()
    assert len(rows(rebuild(copy, "digits")["digits"].with_name("table.md"))) == 17
    with pytest.raises(ValueError, match="--rows chooses rows of one table"):
        rebuild(copy, None, ["cWC"])


def test_a_run_that_diverged_is_a_result_and_is_not_tried_again(tmp_path, made):
    settings = ["train.learning_rate=1e30"]
    result = made(tmp_path, "digits/BN", settings=settings)
    assert result.exit_code == 1
    assert "is no longer finite at iteration" in result.problems[0]
    before = everything(run_of(tmp_path, "digits-BN").folder)
    again = made(tmp_path, "digits/BN", settings=settings)
    assert again.exit_code == 1
    assert "diverged at iteration" in again.problems[0]
    assert everything(run_of(tmp_path, "digits-BN").folder) == before
    assert "diverged" in again.files["md"].read_text(encoding="utf-8")


def test_a_signal_ends_at_a_checkpoint_and_begins_no_other_run(tmp_path, made, monkeypatch):
    draw = GanBatches.draw

    def interrupted(batches, iteration):
        if iteration + 1 == 5:
            signal.raise_signal(signal.SIGTERM)
        return draw(batches, iteration)

    monkeypatch.setattr(GanBatches, "draw", interrupted)
    result = made(tmp_path)
    assert result.exit_code == 128 + signal.SIGTERM
    assert read_newest(run_of(tmp_path, "digits-BN").checkpoints).facts["iteration"] == 5
    assert result.problems == ("digits/BN, seed 0: stopped at iteration 5", "digits/cWC, seed 0: not started")
    assert all(path.is_file() for path in result.files.values())


@pytest.mark.parametrize("gpus", [0, -1, 1.5])
def test_a_share_of_a_gpu_out_of_range_is_refused(gpus, tmp_path, planned):
    with pytest.raises(ValueError, match="--gpus-per-run must be more than 0 and at most 1, got"):
        reproduce(planned(tmp_path), gpus_per_run=gpus)


def test_several_processes_are_refused(tmp_path, monkeypatch, made):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="wcgan reproduce runs in one process: use --ray"):
        made(tmp_path)


# From committed files


def test_a_table_is_rebuilt_from_runs_without_their_checkpoints(copy):
    written = {path.name: path.read_bytes() for path in (copy / "digits").glob("table.*")}
    for path in (copy / "digits").glob("table.*"):
        path.unlink()
    for folder in copy.rglob("checkpoints"):
        shutil.rmtree(folder)
    assert rebuild(copy, None) == {"digits": copy / "digits" / "table.html"}
    figures = [line for line in written["table.md"].decode().splitlines() if line.startswith("| digits/")]
    rebuilt = (copy / "digits" / "table.md").read_text(encoding="utf-8")
    assert [line for line in rebuilt.splitlines() if line.startswith(("| digits/BN |", "| digits/cWC |"))] == figures
    assert "Set in every run: generator.widths=[4, 4], " in unescaped(copy / "digits" / "table.md")


def test_a_run_that_two_tables_share_is_in_both(tmp_path):
    plan = plan_table("unconditional", ["cifar10/WC SN + ResNet"], scale=0.1, out=tmp_path)
    (run,) = plan.runs
    run.folder.mkdir(parents=True)
    (run.folder / "config.yaml").write_text("preset: cifar10/WC SN + ResNet\n")
    assert set(rebuild(tmp_path, None)) == {"unconditional"}
    write_options(plan)
    assert set(rebuild(tmp_path, "table3")) == {"ablation-WC"}
    for table in ("unconditional", "ablation-WC"):
        rebuild(tmp_path, table)
        assert "Schedules shortened to 0.1 of the paper's." in unescaped(tmp_path / table / "table.md")


def test_a_folder_without_runs_is_said(tmp_path):
    with pytest.raises(ValueError, match="has no run: runs are in TABLE/ROW/seed-N"):
        rebuild(tmp_path, None)
    with pytest.raises(ValueError, match="has no run of ablation-WC"):
        rebuild(tmp_path, "table3")
    with pytest.raises(ValueError, match="nowhere does not exist"):
        rebuild(tmp_path / "nowhere", None)
