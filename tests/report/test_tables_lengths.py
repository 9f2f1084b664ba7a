"""Rows and seeds of different lengths: which figure counts, and where rows are compared."""

import pytest
from tests.report.cases import config, event, published, training, write_run
from tests.report.reader import read_page
from tests.report.tables import DASH, finished, lines, markdown, rows_of

from wcgan.experiments.paper import Row, Table


def test_only_the_last_checkpoint_counts(write, tmp_path):
    better = finished(tmp_path / "run", 0, published(500, FID=3.0), published(1000, FID=18.0))
    assert markdown(write({"digits/cWC": [better]})["md"])[0]["FID 10k ours"] == "18"
    early = finished(tmp_path / "early", 0, published(500, FID=3.0))
    assert markdown(write({"digits/cWC": [early]})["md"])[0]["FID 10k ours"] == DASH


def test_seeds_that_are_not_as_far_are_not_averaged_and_the_row_says_so(write, two_seeds, tmp_path):
    third = write_run(tmp_path / "s2", config(seed=2), [*training(400), published(400, FID=90.0)], samples=())
    files = write({"digits/cWC": [*two_seeds, third]})
    row = markdown(files["md"])[0]
    assert (row["FID 10k ours"], row["Seeds"]) == ("18.50 \u00b1 0.71", "2 of 3")
    assert row["Iterations"] == "1,000; 400 of 1,000, unfinished"
    remark = "FID 10k: seed 2 is at iteration 400, not 1,000."
    for kind in ("md", "tex", "csv", "html"):
        text = files[kind].read_text() if kind != "html" else read_page(files[kind]).text
        assert remark in text


@pytest.mark.parametrize("what", ["diverged", "stopped"])
def test_a_run_that_ended_early_says_where_and_how(write, tmp_path, what):
    records = [*training(430), published(400, FID=30.0), event(430, what)]
    files = write({"digits/cWC": [write_run(tmp_path / "run", records=records, samples=())]})
    row = markdown(files["md"])[0]
    assert (row["Iterations"], row["FID 10k ours"]) == (f"430 of 1,000, {what}", "30")
    assert "digits/cWC: the figure is of iteration 400." in files["md"].read_text()
    assert lines(files["csv"])["digits/cWC", "FID 10k"]["status"] == what


def test_a_run_without_an_evaluation_shows_how_far_it_is(write, tmp_path):
    row = markdown(write({"digits/cWC": [write_run(tmp_path / "run", records=training(430))]})["md"])[0]
    assert (row["IS ours"], row["Seeds"], row["Iterations"]) == (DASH, "1", "430 of 1,000, unfinished")


def test_rows_are_also_compared_where_one_ends_and_others_have_been(write, two_seeds, tmp_path):
    scores = [published(at, IS=5.0, FID=30.0 - at / 100) for at in (400, 600, 800, 900, 1000)]
    shortest = finished(tmp_path / "shortest", 0, *scores[:1], last=400)
    short = finished(tmp_path / "short", 0, *scores[:2], last=600)
    long = [
        finished(tmp_path / f"long{seed}", seed, *scores[:until], last=last)
        for seed, until, last in ((0, 4, 900), (1, 5, 1000))
    ]
    unseen = write_run(tmp_path / "unseen", config(), training(100))
    table = Table("t", "Lengths", tuple(Row(f"digits/{name}", {"FID 10k": (17.2, None)}) for name in "abcd"))
    files = write({"digits/a": [shortest], "digits/b": [short], "digits/c": long, "digits/d": [unseen]}, table)
    rows = markdown(files["md"])
    assert [row["FID 10k ours"] for row in rows] == ["26", "24", "20", DASH]
    assert [row["FID 10k at 400"] for row in rows] == ["26", "26", "26 \u00b1 0", DASH]
    assert [row["FID 10k at 600"] for row in rows] == [DASH, "24", "24 \u00b1 0", DASH]
    assert "FID 10k at 900" not in rows[0]  # one row alone has been there
    assert lines(files["csv"])["digits/c", "FID 10k at 600"]["ours"] == "24.0"
    assert [row["FID 10k at 400"] for row in rows_of(files["html"])][:2] == ["26", "26"]
    assert not any(" at " in name for name in markdown(write({"digits/cWC": two_seeds})["md"])[0])


def test_a_row_that_ends_between_evaluations_is_compared_at_the_one_before(write, tmp_path):
    short = finished(tmp_path / "short", 0, *(published(at, FID=at / 10) for at in (400, 600, 650)), last=650)
    long = finished(tmp_path / "long", 0, *(published(at, FID=at / 10) for at in (400, 600, 800)), last=800)
    rows = markdown(write({"digits/cWC": [short], "digits/cBN_sa": [long]})["md"])
    assert [row["FID 10k at 600"] for row in rows] == ["60", "60", DASH]
    assert [name for name in rows[0] if " at " in name] == ["FID 10k at 600"]


def test_where_a_seed_ends_and_its_row_goes_on_nothing_is_compared(write, tmp_path):
    scores = [published(at, FID=30.0) for at in (600, 800)]
    seeds = [
        finished(tmp_path / f"s{s}", s, *scores[:until], last=last) for s, until, last in ((0, 1, 600), (1, 2, 800))
    ]
    other = finished(tmp_path / "other", 0, *scores, last=800)
    rows = markdown(write({"digits/cWC": seeds, "digits/cBN_sa": [other]})["md"])
    assert not [name for name in rows[0] if " at " in name]


def test_of_many_lengths_the_last_are_compared(write, tmp_path):
    table = Table("t", "Many", tuple(Row(f"digits/{n}", {"FID 10k": (17.2, None)}) for n in range(9)))
    runs = {
        f"digits/{n}": [
            finished(tmp_path / str(n), 0, *(published(100 * i, FID=9.0) for i in range(1, n + 2)), last=100 * (n + 1))
        ]
        for n in range(9)
    }
    rows = markdown(write(runs, table)["md"])
    assert [name for name in rows[0] if " at " in name] == [f"FID 10k at {at}" for at in (600, 700, 800)]


def test_a_run_that_was_stopped_is_not_taken_for_a_whole_one(write, two_seeds, tmp_path):
    sentence = "stopped before its end, as iterations then say, the difference is not of like with like"
    assert sentence not in write({"digits/cWC": two_seeds})["md"].read_text()
    records = [event(0, "started"), *training(600), published(600, FID=30.0), event(600, "stopped")]
    assert sentence in write({"digits/cWC": [write_run(tmp_path / "short", config(), records)]})["md"].read_text()


def test_the_page_shows_samples_of_the_seed_that_got_furthest(write, tmp_path):
    runs = [
        finished(tmp_path / f"s{seed}", seed, published(last, FID=20.0), last=last)
        for seed, last in ((0, 600), (1, 900))
    ]
    page = read_page(write({"digits/cWC": runs})["html"])
    assert ["iteration 900" in caption.text for caption in page.all("figcaption")] == [True]


def test_further_training_without_an_evaluation_does_not_make_a_seed_the_furthest(write, tmp_path):
    runs = [finished(tmp_path / "s0", 0, published(600, FID=20.0), last=600)]
    runs += [finished(tmp_path / "s1", 1, published(400, FID=20.0), last=700)]
    page = read_page(write({"digits/cWC": runs})["html"])
    assert ["iteration 600" in caption.text for caption in page.all("figcaption")] == [True]
