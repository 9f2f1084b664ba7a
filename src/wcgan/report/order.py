"""Rows that the paper separates clearly: are ours in the same order, after equally many iterations?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from wcgan.core.terminal import counted
from wcgan.paper.tables import MEASURES
from wcgan.report.numbers import DASH, difference_to_text, number, p_to_text
from wcgan.report.paper_comparison import Results
from wcgan.report.read import RunRecord, score_key
from wcgan.report.scores import Score
from wcgan.report.seed_groups import Measured, comparable, holm, measure, welch_test

MEASURE = "FID 10k"  # lower is better
SEPARATION = 2.0
"""From this difference of the paper's figures on, its order is expected of ours too."""
HEADS = (
    *("Better in the paper", "Worse", "Paper", "At iteration", "Seeds"),
    *("Ours", "p, corrected", "Ours, best until then"),
)
EVERY, MEAN, REVERSED = "every seed", "mean", "reversed"
EXPLAINED = (
    "Differences are worse minus better, between means over seeds. Every seed: each seed of the better row is below "
    "each of the worse one; mean: only the means are in this order. p is that of Welch's t-test, Holm-corrected for "
    "the number of pairs."
)


@dataclass(frozen=True)
class Pair:
    """Two rows that the paper separates, the better first."""

    names: tuple[str, str]
    paper: float
    """Difference of the paper's figures."""
    iteration: int
    ours: tuple[list[float], list[float]]
    """A value per seed at the last iteration where most seeds of both rows were scored."""
    best: tuple[list[float], list[float]]
    """The best of each of those seeds until then."""


def results_to_pairs(results: Results) -> list[Pair]:
    """The pairs of rows with runs, of one dataset, that the paper separates."""
    figures = next((column.paper for column in results.columns if column.label == MEASURE), {})
    rows = [row for row in results.rows if row.runs and row.preset in figures]
    pairs = []
    for better, worse in combinations(sorted(rows, key=lambda row: figures[row.preset][0]), 2):
        paper = figures[worse.preset][0] - figures[better.preset][0]
        same_data = better.preset.partition("/")[0] == worse.preset.partition("/")[0]
        if paper <= SEPARATION or not same_data:
            continue
        if found := _at_equal_iterations(better.runs, worse.runs):
            ours, best = (found[0].values, found[1].values), (_bests(found[0]), _bests(found[1]))
            pairs.append(Pair((better.preset, worse.preset), paper, found[0].iteration, ours, best))
    return pairs


def _at_equal_iterations(first: Sequence[RunRecord], second: Sequence[RunRecord]) -> tuple[Measured, Measured] | None:
    """Our scores of two rows where most seeds of both have one under one protocol, as late as possible."""
    score = Score(*MEASURES[MEASURE])
    one, other = ({record["iteration"] for run in runs for record in run.evaluations} for runs in (first, second))
    measured = [(measure(first, score, at), measure(second, score, at)) for at in sorted(one & other, reverse=True)]
    found = [(a, b) for a, b in measured if a and b and _key(a) == _key(b)]
    return max(found, key=lambda pair: min(len(each.values) for each in pair), default=None)


def _key(measured: Measured) -> str:
    return score_key(measured.evaluations[0], measured.score.name)


def _bests(measured: Measured) -> list[float]:
    """The best value of each seed until the iteration of the measurement, under its protocol."""
    name = measured.score.name
    return [
        min(
            float(record[name])
            for record in comparable(run, measured.score, _key(measured))
            if record["iteration"] <= measured.iteration
        )
        for run in measured.runs
    ]


def order_of(better: Sequence[float], worse: Sequence[float]) -> str:
    """Whether values are in the expected order.

    Example:
        >>> order_of([1, 2], [3, 4]), order_of([1, 4], [3, 5]), order_of([3, 5], [1, 4])
        ('every seed', 'mean', 'reversed')
    """
    if max(better) < min(worse):
        return EVERY
    return MEAN if statistics.fmean(better) < statistics.fmean(worse) else REVERSED


def pairs_to_rows(pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    """A row per pair, as `HEADS` says."""
    tests = [welch_test(pair.ours[1], pair.ours[0]) for pair in pairs]
    corrected = iter(holm([test.p for test in tests if test]))
    return [
        (
            *pair.names,
            difference_to_text(pair.paper),
            number(pair.iteration),
            " and ".join(str(len(values)) for values in pair.ours),
            _difference(*pair.ours),
            p_to_text(next(corrected)) if test else DASH,
            _difference(*pair.best),
        )
        for pair, test in zip(pairs, tests, strict=True)
    ]


def _difference(better: Sequence[float], worse: Sequence[float]) -> str:
    difference = statistics.fmean(worse) - statistics.fmean(better)
    return f"{difference_to_text(difference)}, {order_of(better, worse)}"


def pairs_to_sentence(pairs: Sequence[Pair]) -> str:
    """How many pairs are in the paper's order."""
    counts = []
    for values in ([pair.ours for pair in pairs], [pair.best for pair in pairs]):
        orders = [order_of(*each) for each in values]
        counts.append((len(orders) - orders.count(REVERSED), orders.count(EVERY)))
    (means, every), (best_means, best_every) = counts
    return (
        f"The paper separates {counted(len(pairs), 'pair')} of these rows by more than {SEPARATION:g} {MEASURE}. "
        f"After equally many iterations, {means} have its order by their means, {every} with every seed; by the best "
        f"until then, {best_means} and {best_every}."
    )
