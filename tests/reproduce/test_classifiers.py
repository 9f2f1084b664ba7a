"""The paper's table of classifiers: its runs, their schedules, what they take, and the table that is made of them."""

import csv
import shutil

import pytest
from tests.reproduce.cases import TINY_CLASSIFIER, everything, lines_of

from wcgan.paper.presets import classifier_preset, configure_classifier
from wcgan.reproduce.command import rebuild, reproduce
from wcgan.reproduce.complete_run import Scorer, complete_run, missing_figures, run_to_summary
from wcgan.reproduce.estimate_cost import (
    UnitCosts,
    estimate_cost,
    estimates_to_lines,
    measure_classifier_costs,
    runs_to_estimate,
)
from wcgan.reproduce.measurements import make_grids
from wcgan.reproduce.plan import plan_table, shorten
from wcgan.train.start_classifier import start_classifiers

SCORER = Scorer("classifier")


@pytest.fixture
def plan(pictures, tmp_path):
    """The table, or rows of it, with tiny networks on a few pictures."""

    def plan(*rows, **options):
        settings = [*TINY_CLASSIFIER, f"data.name={pictures}"]
        return plan_table("classification", rows, settings=settings, out=tmp_path / "out", **options)

    return plan


def test_every_row_has_five_seeds_and_the_config_of_its_preset():
    runs = plan_table("table8").runs
    assert len(runs) == 50
    assert [run.seed for run in runs[::10]] == [0, 1, 2, 3, 4]
    assert [run.config for run in runs[:10]] == [classifier_preset(run.row.preset) for run in runs[:10]]
    assert str(runs[1].folder) == "reproduce/classification/cifar10-ResNet-32WC/seed-0"


def test_a_scale_shortens_drops_and_warm_up_too():
    train = shorten(configure_classifier(dataset="cifar10", depth=110), 0.01).train
    assert (train.iterations, train.drops, train.warm_up) == (640, (320, 480), 4)
    assert (train.evaluate_every, train.checkpoint_every, train.log_every) == (40, 40, 100)


def test_drops_that_fall_together_are_one():
    assert shorten(configure_classifier(dataset="cifar10"), 1e-6).train.drops == (1,)


def test_a_run_is_done_when_its_last_iteration_has_an_error(plan):
    (run,) = plan("cifar10/ResNet-32 WC", seeds=1).runs
    line = {"kind": "evaluation", "iteration": 6, "error": 7.0, "protocol": {"name": "test split"}}
    assert missing_figures(run, SCORER, []) == {"test split": ("error",)}
    assert missing_figures(run, SCORER, [{**line, "iteration": 3}]) == {"test split": ("error",)}
    assert missing_figures(run, SCORER, [line]) == {}


def test_a_table_is_made_skipped_when_done_and_rebuilt(plan, tmp_path):
    rows = ("cifar10/ResNet-32 BN", "cifar10/ResNet-32 WC")
    result = reproduce(plan(*rows, seeds=2))
    assert (result.exit_code, result.problems) == (0, ())
    folder = tmp_path / "out" / "classification"
    with result.files["csv"].open(newline="") as file:
        lines = {line["row"]: line for line in csv.DictReader(file)}
    measured = [lines_of(folder / "cifar10-ResNet-32WC" / f"seed-{s}", "evaluation")[-1]["error"] for s in (0, 1)]
    own = lines["cifar10/ResNet-32 WC"]
    assert (own["measure"], own["paper"], own["seeds"]) == ("error", "7.0", "2")
    assert float(own["ours"]) == pytest.approx(sum(measured) / 2)
    assert tuple(lines) == rows
    assert "Inception" not in result.files["md"].read_text()

    runs = [path for path in folder.iterdir() if path.is_dir()]
    before = [everything(run) for run in runs]
    assert reproduce(plan(*rows, seeds=2)).exit_code == 0
    assert [everything(run) for run in runs] == before
    kept = result.files["html"].read_text()
    result.files["html"].unlink()
    assert rebuild(tmp_path / "out", "table8", rows)["classification"].read_text() == kept


def test_the_seeds_of_the_command_count_where_they_are_copied_to(plan, pictures, tmp_path):
    config = configure_classifier("cifar10/ResNet-32 WC", settings=[*TINY_CLASSIFIER, f"data.name={pictures}"])
    start_classifiers(config, tmp_path / "mine", seeds=2)
    shutil.copytree(tmp_path / "mine", tmp_path / "out" / "classification" / "cifar10-ResNet-32WC")
    runs = plan("cifar10/ResNet-32 WC", seeds=2).runs
    assert [run_to_summary(run, SCORER).status for run in runs] == ["done", "done"]
    assert complete_run(runs[0]).sentence.startswith("error ")


def test_a_stopped_run_of_a_table_goes_on(plan):
    (run,) = plan("cifar10/ResNet-32 WC", seeds=1).runs
    start_classifiers(run.config, run.folder, stop_at=4)
    assert run_to_summary(run, SCORER).status == "stopped"
    assert complete_run(run).status == "done"
    assert [line["what"] for line in lines_of(run.folder, "event")][-2:] == ["resumed", "finished"]


def test_a_trained_run_without_its_error_says_so_and_is_left_alone(plan):
    (run,) = plan("cifar10/ResNet-32 WC", seeds=1).runs
    start_classifiers(run.config, run.folder)
    (run.folder / "metrics.jsonl").unlink()
    result = complete_run(run)
    assert (result.status, "has no error in its metrics" in result.sentence) == ("failed", True)
    assert any((run.folder / "checkpoints").glob("0000006.safetensors"))


def test_a_gans_run_in_a_classifiers_place_is_refused(plan):
    (run,) = plan("cifar10/ResNet-32 WC", seeds=1).runs
    run.folder.mkdir(parents=True)
    (run.folder / "config.yaml").write_text("train:\n  iterations: 6\n")
    with pytest.raises(ValueError, match="is the run of a GAN, and that of a classifier is needed here"):
        plan("cifar10/ResNet-32 WC", seeds=1)


def test_grids_are_not_drawn_of_classifiers(plan, tmp_path):
    (run,) = plan("cifar10/ResNet-32 WC", seeds=1).runs
    start_classifiers(run.config, run.folder)
    with pytest.raises(ValueError, match="has no run with a checkpoint"):
        make_grids(tmp_path / "out", (), False, print)


def test_the_costs_of_a_classifier_are_what_it_writes_and_tests(plan, tmp_path):
    (run,) = plan("cifar10/ResNet-32 WC", seeds=1).runs
    costs = measure_classifier_costs(run.config, seconds=0.1)
    start_classifiers(run.config, tmp_path / "run")
    newest = sorted((tmp_path / "run" / "checkpoints").glob("0*"))[-2:]
    assert costs.checkpoint_bytes == pytest.approx(sum(path.stat().st_size for path in newest), rel=0.01)
    assert (costs.test_images, costs.grid_bytes) == (20, 0)
    assert costs.seconds_per_iteration > 0


def test_an_estimate_counts_iterations_and_tests_and_checkpoints(plan):
    runs = plan("cifar10/ResNet-32 WC").runs
    taken = UnitCosts(
        seconds_per_iteration=2.0, seconds_per_image=0.1, checkpoint_bytes=1000, grid_bytes=0, test_images=20
    )
    row = runs_to_estimate(runs, SCORER, taken)
    assert (row.iterations, row.seeds, row.done) == (6, 5, 0)
    assert row.seconds == pytest.approx(5 * (6 * 2.0 + 2 * 20 * 0.1))
    assert row.bytes == 5 * 3 * 1000


def test_a_table_of_classifiers_is_estimated_and_nothing_is_written(quick_estimates, plan, tmp_path):
    estimates = estimate_cost(plan("cifar10/ResNet-32 BN", seeds=1))
    assert estimates[1] == []
    assert estimates_to_lines(*estimates)[1].split()[:3] == ["cifar10/ResNet-32", "BN", "6"]
    assert not (tmp_path / "out").exists()


def test_a_data_set_that_is_not_there_is_said_for_its_row():
    ((row,), _) = estimate_cost(plan_table("classification", ["cifar10/ResNet-32 BN"], seeds=1))
    assert "cifar10 is not in " in row.missing
