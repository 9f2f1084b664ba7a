"""Rows that the paper separates: where they are compared, and whether ours are in its order."""

import pytest
from scipy import stats
from tests.report.cases import published
from tests.report.reader import read_page
from tests.report.tables import DASH, finished

from wcgan.paper.tables import Row, Table
from wcgan.report.order import EVERY, MEAN, REVERSED, order_of

PAPER = {"digits/a": 13.5, "digits/b": 15.4, "digits/c": 22.1}  # b is too near to a
TABLE = Table("", "Some", tuple(Row(preset, {"FID 10k": (figure, None)}) for preset, figure in PAPER.items()))
HEAD = "## Order of rows"


@pytest.fixture
def runs(tmp_path):
    """Preset -> runs with the given values at given iterations, a list of dictionaries, one per seed."""

    def make(**seeds):
        return {
            f"digits/{name}": [
                finished(tmp_path / f"{name}{s}", s, *(published(at, FID=value) for at, value in values.items()))
                for s, values in enumerate(own)
            ]
            for name, own in seeds.items()
        }

    return make


def order(files):
    """Sentence, and a dictionary per pair."""
    text = files["md"].read_text().partition(HEAD)[2].strip().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text if line.startswith("|")]
    return text[0], [dict(zip(cells[0], line, strict=True)) for line in cells[2:]]


def test_pairs_that_the_paper_separates_are_compared_with_every_seed(write, runs):
    a, b, c = [{1000: 14.0}, {1000: 15.0}], [{1000: 16.0}, {1000: 17.0}], [{1000: 21.0}, {1000: 25.0}]
    sentence, pairs = order(write(runs(a=a, b=b, c=c), TABLE))
    assert [(pair["Better in the paper"], pair["Worse"]) for pair in pairs] == [
        ("digits/a", "digits/c"),
        ("digits/b", "digits/c"),
    ]
    first = pairs[0]
    assert (first["Paper"], first["At iteration"], first["Seeds"]) == ("+8.60", "1,000", "2 and 2")
    assert first["Ours"] == first["Ours, best until then"] == "+8.50, every seed"
    assert sentence.startswith("The paper separates 2 pairs of these rows by more than 2 FID 10k.")
    assert sentence.endswith("2 have its order by their means, 2 with every seed; by the best until then, 2 and 2.")


def test_a_difference_of_just_the_separation_is_too_small(write, runs):
    near = Table("", "Near", (TABLE.rows[0], Row("digits/c", {"FID 10k": (PAPER["digits/a"] + 2, None)})))
    files = write(runs(a=[{1000: 14.0}], c=[{1000: 21.0}]), near)
    assert HEAD not in files["md"].read_text()


@pytest.mark.parametrize(
    ("better", "worse", "expected"),
    [([1, 2], [2.5, 3], EVERY), ([1, 2], [2, 3], MEAN), ([2, 4], [3, 3], REVERSED), ([3, 5], [1, 4], REVERSED)],
)
def test_equal_values_are_not_in_order(better, worse, expected):
    assert order_of(better, worse) == expected


def test_p_is_corrected_for_the_pairs_alone(write, runs):
    values = {"a": [14.0, 15.0], "b": [16.0, 17.0], "c": [21.0, 25.0]}
    _, pairs = order(write(runs(**{name: [{1000: value} for value in own] for name, own in values.items()}), TABLE))
    plain = [stats.ttest_ind(values[name], values["c"], equal_var=False).pvalue for name in "ab"]
    holm = [2 * min(plain), max(2 * min(plain), max(plain))]
    assert sorted(float(pair["p, corrected"]) for pair in pairs) == pytest.approx(sorted(holm), abs=5e-4)


def test_a_p_of_almost_0_is_not_written_as_0(write, runs):
    _, (pair,) = order(write(runs(a=[{1000: 14.0}, {1000: 14.1}], c=[{1000: 40.0}, {1000: 40.1}]), TABLE))
    assert pair["p, corrected"] == r"\< 0.001"


def test_p_compares_the_values_at_the_shared_iteration_not_the_best(write, runs):
    a, c = [{500: 14.5, 1000: 14.0}, {500: 19.0, 1000: 20.0}], [{500: 12.0, 1000: 19.0}, {500: 13.0, 1000: 26.0}]
    _, (pair,) = order(write(runs(a=a, c=c), TABLE))
    p = stats.ttest_ind([14.0, 20.0], [19.0, 26.0], equal_var=False).pvalue
    assert float(pair["p, corrected"]) == pytest.approx(p, abs=5e-4)


def test_overlapping_seeds_are_in_order_by_their_means_alone_and_a_best_may_be_reversed(write, runs):
    a, c = [{500: 30.0, 1000: 14.0}, {500: 30.0, 1000: 20.0}], [{500: 13.0, 1000: 19.0}, {500: 12.0, 1000: 26.0}]
    sentence, (pair,) = order(write(runs(a=a, c=c), TABLE))
    assert pair["Ours"] == "+5.50, mean"
    assert pair["Ours, best until then"] == "\u22124.50, reversed"
    assert sentence.endswith("1 have its order by their means, 0 with every seed; by the best until then, 0 and 0.")


def test_rows_are_compared_where_most_seeds_of_both_were_scored(write, runs):
    long = [{500: 20.0, 1000: 10.0}, {500: 22.0}]
    _, (pair,) = order(write(runs(a=long, c=[{500: 30.0, 1000: 5.0}, {500: 32.0}]), TABLE))
    assert (pair["At iteration"], pair["Ours"], pair["Seeds"]) == ("500", "+10.00, every seed", "2 and 2")


def test_many_seeds_of_one_row_do_not_make_up_for_few_of_the_other(write, runs):
    a = [{500: 20.0, 1000: 10.0}, {500: 22.0, 1000: 11.0}, {1000: 12.0}]
    _, (pair,) = order(write(runs(a=a, c=[{500: 30.0, 1000: 25.0}, {500: 32.0}]), TABLE))
    assert (pair["At iteration"], pair["Seeds"]) == ("500", "2 and 2")


def test_evaluations_without_the_score_or_against_other_images_do_not_count_as_best(write, tmp_path):
    other = published(600, FID=1.0)
    other["protocol"]["reference"] = {"split": "train", "images": 10_000}
    early = (published(300, IS=5.0), other, published(800, FID=11.0))
    folders = {
        "digits/a": [finished(tmp_path / "a", 0, *early, published(1000, FID=12.0))],
        "digits/c": [finished(tmp_path / "c", 0, published(1000, FID=30.0))],
    }
    _, (pair,) = order(write(folders, TABLE))
    assert pair["Ours, best until then"] == "+19.00, every seed"


def test_what_comes_after_the_shared_iteration_does_not_count_as_best(write, runs):
    _, (pair,) = order(write(runs(a=[{500: 20.0, 900: 1.0}], c=[{500: 30.0}]), TABLE))
    assert (pair["At iteration"], pair["Ours, best until then"]) == ("500", "+10.00, every seed")
    assert (pair["Seeds"], pair["p, corrected"]) == ("1 and 1", DASH)


def test_other_real_images_and_other_datasets_are_never_compared(write, tmp_path):
    train = published(1000, FID=30.0)
    train["protocol"]["reference"] = {"dataset": "digits", "split": "train", "images": 10_000}
    folders = {"digits/a": [finished(tmp_path / "a", 0, published(1000, FID=10.0))]}
    files = write(folders | {"digits/c": [finished(tmp_path / "c", 0, train)]}, TABLE)
    assert HEAD not in files["md"].read_text()
    other = Table("", "Two", (*TABLE.rows, Row("mnist/c", {"FID 10k": (30.0, None)})))
    files = write(folders | {"mnist/c": [finished(tmp_path / "m", 0, published(1000, FID=30.0))]}, other)
    assert HEAD not in files["md"].read_text()


def test_the_page_has_the_same_pairs(write, runs):
    files = write(runs(a=[{1000: 14.0}], c=[{1000: 21.0}]), TABLE)
    page = read_page(files["html"])
    assert "Order of rows" in [head.text for head in page.all("h2")]
    texts = [cell.text for table in page.all("table", "tests") for cell in table.all("td")]
    assert [text.replace("\u00a0", " ") for text in texts] == list(order(files)[1][0].values())[1:]
