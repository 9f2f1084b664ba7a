"""Curves: where they are drawn, where they break, what their axes say."""

import math
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from wcgan.report.charts import (
    Series,
    is_logarithmic,
    log_ticks,
    series_in_percent,
    series_to_svg,
    swatch,
    thinned,
    ticks,
)


def curve(*values, style=0):
    return Series("run", style, tuple((10 * i, value) for i, value in enumerate(values)))


def paths(svg):
    return re.findall(r'<path d="([^"]*)" class="line', svg)


def points(path):
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path)]


def points_of(outline):
    return [(float(x), float(y)) for x, y in (pair.split() for pair in outline.lstrip("M").split("L"))]


def test_higher_values_are_drawn_higher_and_later_ones_further_right():
    (path,) = paths(series_to_svg("loss", [curve(1.0, 3.0, 2.0)]))
    (x0, y0), (x1, y1), (x2, y2) = points(path)
    assert x0 < x1 < x2
    assert y1 < y2 < y0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_breaks_the_curve(value):
    (path,) = paths(series_to_svg("loss", [curve(1.0, 2.0, value, 3.0, 4.0)]))
    assert len(points(path)) == 4
    assert path.count("M") == 2


@pytest.mark.parametrize("values", [(), (math.nan, math.inf)])
def test_without_a_finite_value_there_is_a_sentence_and_no_chart(values):
    assert "No finite value to draw." in series_to_svg("loss", [curve(*values)])


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=20))
def test_whatever_the_values_every_coordinate_is_inside_the_picture(values):
    svg = series_to_svg("loss", [curve(*values)])
    (path,) = paths(svg)
    assert len(points(path)) == len(values)
    assert all(0 <= x <= 420 and 0 <= y <= 250 for x, y in points(path))
    assert "nan" not in svg


def test_values_too_far_apart_for_a_logarithmic_axis_are_drawn_on_a_linear_one():
    assert len(points(paths(series_to_svg("loss", [curve(1e-300, 1e99)]))[0])) == 2


def test_one_value_is_drawn_as_a_dot():
    svg = series_to_svg("FID", [curve(5.0)])
    assert svg.count("<circle") == 1


def test_a_band_reaches_from_its_lower_edge_to_its_upper_one_in_whole_pieces():
    low, high = ((0, 1.0), (10, math.nan), (20, 1.0), (30, 2.0)), ((0, 3.0), (10, math.nan), (20, 4.0), (30, 4.0))
    points = tuple((x, (y + z) / 2) for (x, y), (_, z) in zip(low, high, strict=True))
    svg = series_to_svg("FID", [Series("runs", 3, points, low, high)])
    (band,) = re.findall(r'<path d="([^"]*)" class="band c3"', svg)
    assert [piece.count("L") + 1 for piece in band.split("Z")[:-1]] == [2, 4]  # a single place is an upright line
    (x0, y0), (x1, y1) = points_of(band.split("Z")[0])
    assert x0 == x1
    assert y0 > y1


def test_the_axes_hold_bands_and_single_curves_too():
    svg = series_to_svg("FID", [Series("runs", 0, ((0, 5.0),), ((0, 1.0),), ((0, 9.0),), (((0, 5.0), (50, 20.0)),))])
    (single,) = re.findall(r'<path d="([^"]*)" class="thin', svg)
    assert all(0 <= x <= 420 and 0 <= y <= 250 for x, y in points(single))
    assert svg.count("<circle") == 3


def test_equal_values_are_drawn_level():
    (path,) = paths(series_to_svg("loss", [curve(2.0, 2.0, 2.0)]))
    assert len({y for _, y in points(path)}) == 1


def test_a_score_that_falls_a_hundredfold_gets_a_logarithmic_axis():
    assert is_logarithmic([curve(300.0, 3.0)])
    assert not is_logarithmic([curve(30.0, 3.0)])
    assert not is_logarithmic([curve(300.0, -3.0)])


def test_on_a_logarithmic_axis_equal_ratios_are_equally_far_apart():
    (path,) = paths(series_to_svg("FID", [curve(1000.0, 100.0, 10.0)]))
    (_, y0), (_, y1), (_, y2) = points(path)
    assert y1 - y0 == pytest.approx(y2 - y1, abs=0.11)


def test_a_long_curve_is_thinned_to_means_of_neighbours():
    thin = thinned(tuple((i, float(i % 2)) for i in range(1000)), most=250)
    assert len(thin) == 250
    assert {y for _, y in thin} == {0.5}
    assert thin[0][0] == pytest.approx(1.5)


def test_thinning_does_not_hide_a_value_that_is_not_finite():
    long = [(i, 1.0) for i in range(1000)]
    long[500] = (500, math.nan)
    assert sum(math.isnan(y) for _, y in thinned(tuple(long))) == 1


def test_a_short_curve_is_drawn_as_it_is():
    short = tuple((i, float(i)) for i in range(250))
    assert thinned(short) == short


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
@example(64.0, 0.6)  # a span that float arithmetic takes for a little less
def test_ticks_are_few_evenly_spaced_and_within_the_axis(low, span):
    found = ticks(low, low + span)
    assert 1 <= len(found) <= 6
    slack = 1e-6 * (abs(low) + span)
    assert all(low - slack <= tick <= low + span + slack for tick in found)


@settings(deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(30, 1e9))
def test_logarithmic_ticks_are_within_the_axis(low, ratio):
    found = log_ticks(low, low * ratio)
    assert len(found) >= 1
    assert all(low <= tick <= low * ratio for tick in found)


def test_the_first_32_runs_all_look_different():
    assert len({str(swatch(style)) for style in range(32)}) == 32


def test_a_curve_ends_where_its_last_seed_does():
    mean, alone = ((10.0, 3.0), (20.0, 2.0)), ((20.0, 1.5), (30.0, 1.0))
    assert "WC ends at 1<" in series_to_svg("FID", [Series("WC", 0, mean, thin=(alone,))])


def test_accuracies_are_drawn_in_percent_with_their_bands_and_single_curves():
    points, low, high, thin = (((10, value),) for value in (0.5, 0.25, 0.75, 0.625))
    found = Series("run", 0, points, low, high, (thin,))
    (drawn,) = series_in_percent("accuracy(classifier)", [found])
    assert (drawn.points, drawn.low, drawn.high, drawn.thin) == (
        *(((10, value),) for value in (50.0, 25.0, 75.0)),
        (((10, 62.5),),),
    )
    assert series_in_percent("error", [found]) == [found]
