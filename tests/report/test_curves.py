"""Curves over seeds: where the mean is drawn, what the band spans, where it stops."""

import math

import pytest
from tests.report.cases import config, event, published, training, write_run
from tests.report.reader import read_page

from wcgan.report import read_runs, write_report
from wcgan.report.curves import curves_to_series, times_of


def series(*curves, place=lambda number, iteration: iteration):
    return curves_to_series("label", 0, curves, place)


def test_a_line_is_the_mean_and_a_band_the_span_of_all_seeds():
    found = series({10: 1.0, 20: 4.0}, {10: 3.0, 20: 2.0}, {10: 5.0, 20: 3.0})
    assert found.points == ((10, 3.0), (20, 3.0))
    assert (found.low, found.high, found.thin) == (((10, 1.0), (20, 2.0)), ((10, 5.0), (20, 4.0)), ())


def test_one_seed_has_no_band():
    found = series({10: 1.0, 20: 4.0})
    assert (found.points, found.low, found.high, found.thin) == (((10, 1.0), (20, 4.0)), (), (), ())


def test_a_band_is_only_where_all_seeds_have_values_and_longer_ones_go_on_alone():
    found = series({10: 1.0, 20: 2.0, 30: 3.0, 40: 4.0}, {10: 3.0, 15: 9.0, 20: 4.0})
    assert [x for x, _ in found.points] == [x for x, _ in found.low] == [10, 20]
    assert found.thin == (((20, 2.0), (30, 3.0), (40, 4.0)),)


@pytest.mark.parametrize("other", [{}, {15: 1.0}])
def test_seeds_that_share_no_iteration_are_drawn_singly(other):
    found = series({10: 1.0, 20: 2.0}, other)
    assert (found.points, found.low) == ((), ())
    assert found.thin == tuple(tuple(curve.items()) for curve in ({10: 1.0, 20: 2.0}, other) if curve)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_seed_that_is_not_finite_breaks_line_and_band(value):
    found = series({10: 1.0, 20: 2.0}, {10: value, 20: 4.0})
    for edge in (found.points, found.low, found.high):
        assert math.isnan(edge[0][1])
        assert math.isfinite(edge[1][1])


def test_over_time_a_mean_stands_at_the_mean_time():
    times = ({10: 1.0, 20: 2.0}, {10: 3.0, 20: 6.0})
    found = series({10: 1.0, 20: 2.0}, {10: 1.0, 20: 2.0}, place=lambda number, iteration: times[number][iteration])
    assert [x for x, _ in found.points] == [2.0, 4.0]


def test_the_time_between_two_lines_is_between_theirs_and_none_is_known_after_the_last(tmp_path):
    (run,) = read_runs([write_run(tmp_path / "run", records=training(100))])
    assert times_of(run, [5, 10, 45, 100, 110]) == pytest.approx({5: 0.615, 10: 1.23, 45: 5.535, 100: 12.3})


def test_a_page_on_seeds_has_a_line_and_a_band_per_config(tmp_path):
    runs = [
        write_run(tmp_path / v / str(s), config(v, seed=s), training(500, slope=1 + s), samples=())
        for v in ("cWC", "cBN")
        for s in (0, 1)
    ]
    page = read_page(write_report(runs, tmp_path / "page.html"))
    for chart in page.all("svg", "chart"):
        assert (len(chart.all("path", "line")), len(chart.all("path", "band"))) == (2, 2)
    assert "its band reaches from their lowest value to their highest" in page.text


def test_one_evaluation_is_a_number_and_several_are_a_chart(tmp_path):
    def run(name, *iterations, variant):
        scores = [published(at, FID=at / 10) for at in iterations]
        return write_run(tmp_path / name, config(variant), [*training(1000), *scores, event(1000, "finished")], ())

    once = [run("wc", 1000, variant="WC"), run("bn", 1000, variant="BN")]
    page = read_page(write_report(once, tmp_path / "once.html"))
    assert [item.text for item in page.all("ul", "numbers")[0].all("li")] == ["wc: 100 at 1,000", "bn: 100 at 1,000"]
    assert len(page.all("svg", "chart")) == 4  # those of losses, over iterations and over time
    several = [run("wc2", 500, 1000, variant="WC"), once[1]]
    page = read_page(write_report(several, tmp_path / "several.html"))
    assert page.all("ul", "numbers") == []
    assert len(page.all("svg", "chart")) == 6
