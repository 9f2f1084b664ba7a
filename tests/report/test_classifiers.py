"""Runs of classifiers: their error in tables and on pages, beside the paper's, and what a page leaves out."""

import csv

import pytest
from tests.report.cases import classifier_config, classifier_records, write_run
from tests.report.reader import read_page, rows, section

from wcgan.paper.tables import TABLES
from wcgan.report import read_runs, runs_to_error, runs_to_rows, write_report, write_table

TABLE = TABLES["classification"]
SENTENCE = "Error is the share of the test images that are misclassified. Real images: all 10,000 of cifar10 test."


@pytest.fixture
def write(tmp_path):
    """Writes a finished run with this error -> its folder."""

    def write(error=7.0, normalization="WC", seed=0, records=None, **network):
        config = classifier_config(normalization, seed=seed)
        config["classifier"] |= network
        folder = tmp_path / f"{normalization}-{seed}"
        return write_run(folder, config, classifier_records(error) if records is None else records, samples=())

    return write


def headings(page):
    return [heading.text for heading in page.all("h2")]


def test_a_run_has_its_network_its_error_and_its_protocol(write, tmp_path):
    page = read_page(write_report([write(7.0)], tmp_path / "page.html"))
    (row,) = rows(page)
    assert (row["Variant"], row["error"], row["Real images"]) == (*("ResNet-32 WC", "7.00%", "128,000"),)
    assert page.all("h1")[0].text == "ResNet-32 WC on cifar10"
    assert SENTENCE in section(page, "Runs")


def test_a_page_has_curves_of_errors_and_losses_and_no_samples(write, tmp_path):
    page = read_page(write_report([write(), write(7.5, "BN")], tmp_path / "page.html"))
    charts = [heading.text for heading in page.all("h3")]
    assert charts == [
        "error \u2193 lower is better (%)",
        *("Training loss (log scale)", "Test loss"),
        "Training error \u2193 lower is better (%)",
    ]
    assert "Samples" not in headings(page)


def test_a_page_on_a_classifier_and_a_gan_has_the_gans_samples(write, tmp_path):
    gan = write_run(tmp_path / "gan")
    page = read_page(write_report([write(), gan], tmp_path / "page.html"))
    figures = page.all("div", "samples")[0].all("h3")
    assert [figure.text for figure in figures] == ["gan"]


def test_the_lower_error_is_marked(write, tmp_path):
    page = read_page(write_report([write(7.0), write(6.5, "DBN")], tmp_path / "page.html"))
    assert [cell.text for cell in page.all("table", "runs")[0].all("td", "best")] == ["6.50%"]


def test_a_network_with_the_layer_everywhere_says_so(write):
    assert read_runs([write(where="all")])[0].variant == "ResNet-32 WC in all layers"


def test_seeds_have_a_mean_with_two_digits(write, tmp_path):
    runs = [write(7.0, seed=0), write(7.3, seed=1)]
    page = read_page(write_report(runs, tmp_path / "page.html"))
    (row,) = rows(page, "seeds")
    assert (row["Seeds"], row["error"]) == ("0, 1", "7.15% \u00b1 0.21%")
    assert runs_to_error(read_runs(runs)) == "error: 7.15% \u00b1 0.21% over 2 seeds (seed 0 7.00%, seed 1 7.30%)"


def test_one_run_has_its_error_in_a_line_and_a_new_one_has_none(write):
    assert runs_to_error(read_runs([write(7.0)])) == "error: 7.00%"
    assert runs_to_error(read_runs([write(seed=1, records=classifier_records()[:2])])) == "error: not measured yet"


def test_a_seed_that_is_not_as_far_is_left_out_of_the_mean(write):
    runs = [write(7.0, seed=0), write(seed=1, records=classifier_records(7.3)[:-3])]
    line = runs_to_error(read_runs(runs))
    assert line.startswith("error: 7.00% over 1 seed (seed 0 7.00%, seed 1 12.30%)")
    assert line.endswith("; seed 1 is at iteration 900, not 1,000")


def test_runs_are_rows_of_the_terminal(write):
    heads, lines, _ = runs_to_rows(read_runs([write(7.0)]))
    assert (heads, lines) == (("run", "variant", "iterations", "error"), [("WC-0", "ResNet-32 WC", "1000", "7.00%")])


@pytest.fixture
def files(write, tmp_path):
    runs = {
        "cifar10/ResNet-32 BN": [write(7.4, "BN", seed) for seed in (0, 1)],
        "cifar10/ResNet-32 WC": [write(6.9, "WC", 0), write(7.2, "WC", 1)],
    }
    return write_table(TABLE, runs, tmp_path / "out")


def test_a_table_has_the_papers_error_with_its_two_digits_beside_our_last(files):
    lines = [line.strip("| ").split(" | ") for line in files["md"].read_text().splitlines() if line.startswith("|")]
    assert lines[0][:4] == ["Row", "error paper", "error last", "error difference"]
    assert lines[3][:4] == ["cifar10/ResNet-32 WC", "7.00%", "7.05% \u00b1 0.21%", "+0.05"]
    assert lines[-1][:4] == ["cifar100/ResNet-56 WC", "30.40%", "\u2013", "\u2013"]
    assert r"7.05\% $\pm$ 0.21\%" in files["tex"].read_text()
    assert SENTENCE in files["md"].read_text()


def test_a_table_of_classifiers_has_seconds_per_epoch(files):
    lines = rows(read_page(files["html"]), "facts")
    assert [line["s / epoch"] for line in lines] == ["7.81", "7.81"]  # 50,000 images, 128 a 50th of a second


def test_a_length_that_the_paper_does_not_give_is_not_said_to_be_its(write, tmp_path):
    files = write_table(TABLE, {"cifar10/ResNet-32 WC": [write(7.4, "WC", 0)]}, tmp_path / "short", scale=0.25)
    assert "Schedules shortened to 0.25 of the presets'." in files["md"].read_text()


def test_an_epoch_of_a_folder_is_not_known(tmp_path):
    config = classifier_config()
    config["data"]["name"] = "my/pictures"
    run = write_run(tmp_path / "run", config, classifier_records(), samples=())
    files = write_table(TABLE, {"cifar10/ResNet-32 WC": [run]}, tmp_path / "out")
    assert [line["s / epoch"] for line in rows(read_page(files["html"]), "facts")] == ["\u2013"]


def test_no_column_but_the_error_is_made_of_what_was_measured(files):
    with files["csv"].open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert {(line["measure"], line["score"], line["protocol"]) for line in lines} == {("error", "error", "test split")}
    (own,) = (line for line in lines if line["row"] == "cifar10/ResNet-32 WC")
    assert (own["paper"], float(own["difference"])) == ("7.0", pytest.approx(0.05))
