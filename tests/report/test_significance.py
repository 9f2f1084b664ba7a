"""Tests between groups of seeds, beside SciPy's own."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from wcgan.report.seed_groups import compare, holm, welch

values = st.integers(-1000, 1000).map(lambda n: n / 10)
samples = st.lists(values, min_size=2, max_size=6).filter(lambda sample: len(set(sample)) > 1)
shares = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@settings(deadline=None)
@given(samples, samples)
def test_welchs_test_is_scipys(first, second):
    found, wanted = welch(first, second), stats.ttest_ind(first, second, equal_var=False)
    interval = wanted.confidence_interval(0.95)
    assert found is not None
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-9, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9, abs=1e-9)
    assert found.difference == pytest.approx(sum(first) / len(first) - sum(second) / len(second))


@pytest.mark.parametrize("second", [[], [1.0], [1.0, math.nan], [1.0, math.inf]])
def test_too_little_is_not_tested(second):
    assert welch([1.0, 2.0], second) is None
    assert welch(second, [1.0, 2.0]) is None


def test_samples_without_any_variance_are_not_tested():
    assert welch([1.0, 1.0], [2.0, 2.0]) is None
    assert welch([1.0, 1.0], [2.0, 2.1]) is not None


def test_holms_correction_by_hand():
    assert holm([0.01, 0.02, 0.03, 0.04]) == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert holm([0.5, 0.001]) == pytest.approx([0.5, 0.002])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@given(shares)
def test_a_correction_keeps_the_order_and_never_lowers(ps):
    corrected = holm(ps)
    assert all(p <= c <= min(1.0, len(ps) * p) or c == max(corrected) for p, c in zip(ps, corrected, strict=True))
    assert all(p <= c <= 1 for p, c in zip(ps, corrected, strict=True))
    order = sorted(range(len(ps)), key=lambda place: ps[place])
    assert [corrected[place] for place in order] == sorted(corrected)


def test_only_pairs_that_are_tested_count_in_the_correction():
    near, far = [1.0, 1.1, 1.2], [5.0, 5.1, 5.3]
    (single,) = compare([near, far])
    with_lone = compare([near, far, [3.0]])
    assert single.test is not None
    assert single.corrected == single.test.p
    assert [(c.first, c.second, c.corrected) for c in with_lone] == [
        (0, 1, single.corrected),
        (0, 2, None),
        (1, 2, None),
    ]
