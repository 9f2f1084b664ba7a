"""Whether two groups of seeds differ by more than chance: Welch's t-test, corrected by Holm."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

try:
    from scipy import special  # type: ignore[import-untyped]  # comes with scikit-learn
except ImportError as error:
    raise ImportError("wcgan.report needs SciPy: pip install 'wcgan[train]'") from error

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Welch:
    """A test of two samples whose variances may differ."""

    difference: float
    """The first mean minus the second."""
    low: float
    """Of the 95% interval of the difference."""
    high: float
    p: float
    """How often a difference at least as large would come from equal means."""


@dataclass(frozen=True)
class Comparison:
    """A pair of samples, by their places, and its test; None where there is too little to test."""

    first: int
    second: int
    test: Welch | None
    corrected: float | None
    """The test's p value, corrected for the number of tests."""


def welch(first: Sequence[float], second: Sequence[float]) -> Welch | None:
    r"""Welch's t-test.

    .. math:: t = \frac{\bar x - \bar y}{\sqrt{s_x^2 / n_x + s_y^2 / n_y}}

    Args:
        first: a sample.
        second: another.

    Returns:
        The test; None for fewer than two values on a side, for values that are not finite, and for two samples without
        any variance.

    Example:
        >>> test = welch([1.0, 2.0, 3.0], [4.0, 5.0, 7.0])
        >>> round(test.difference, 3), round(test.p, 3)
        (-3.333, 0.042)
    """
    samples = (first, second)
    if min(map(len, samples)) < 2 or not all(math.isfinite(value) for sample in samples for value in sample):
        return None
    parts = [statistics.variance(sample) / len(sample) for sample in samples]  # of the means
    if not sum(parts):
        return None
    # The Welch-Satterthwaite equation.
    freedom = sum(parts) ** 2 / sum(part**2 / (len(s) - 1) for part, s in zip(parts, samples, strict=True))
    difference, error = statistics.fmean(first) - statistics.fmean(second), math.sqrt(sum(parts))
    margin = float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    p = 2 * float(special.stdtr(freedom, -abs(difference) / error))
    return Welch(difference, difference - margin, difference + margin, p)


def holm(values: Sequence[float]) -> list[float]:
    """p values corrected for their number by Holm's method: the smallest times their number, and so on.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    corrected, highest = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=lambda place: values[place])):
        highest = max(highest, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = highest
    return corrected


def compare(samples: Sequence[Sequence[float]]) -> list[Comparison]:
    """Every pair of samples; p values are corrected for the number of pairs that can be tested."""
    pairs = list(combinations(range(len(samples)), 2))
    tests = [welch(samples[first], samples[second]) for first, second in pairs]
    corrected = iter(holm([test.p for test in tests if test]))
    return [Comparison(*pair, test, next(corrected) if test else None) for pair, test in zip(pairs, tests, strict=True)]
