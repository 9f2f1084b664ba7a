"""Runs of one config with different seeds: their mean scores, and significance tests between configs."""

from __future__ import annotations

import json
import math
import re
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, takewhile

from wcgan.core.config import flattened
from wcgan.report.numbers import number, score_to_text
from wcgan.report.read import Record, RunRecord, score_key
from wcgan.report.scores import Score, deviation_of, is_lower_better
from wcgan.runs.status import RunStatus

CONFIDENCE = 0.95
# Settings that may differ between the runs of one group.
_FREE = {"train.seed", "data.folder"}
_SEED_AT_THE_END = re.compile(r"([-_/. ]*seed|[-_/. ]s)?[-_/. ]*\d*$")


@dataclass(frozen=True)
class Group:
    """Runs of one config, one per seed."""

    name: str
    runs: tuple[RunRecord, ...]


@dataclass(frozen=True)
class Measured:
    """A score of a group: the mean over its seeds, under one protocol."""

    score: Score
    runs: tuple[RunRecord, ...]
    """The seeds that count."""
    evaluations: tuple[Record, ...]
    """One per run: all at the same iteration, or each at the run's best."""
    left_out: tuple[str, ...] = ()
    """Why other seeds do not count."""

    @property
    def values(self) -> list[float]:
        return [float(evaluation[self.score.name]) for evaluation in self.evaluations]

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)

    @property
    def iteration(self) -> int:
        return int(self.evaluations[0]["iteration"])

    @property
    def where(self) -> str:
        """The iteration, or the range of iterations."""
        iterations = [int(evaluation["iteration"]) for evaluation in self.evaluations]
        first, last = number(min(iterations)), number(max(iterations))
        return f"at {first}" if first == last else f"at {first} to {last}"

    @property
    def stopped(self) -> bool:
        """Whether a seed was stopped before its end; a run that diverged has ended."""
        return any(run.status not in (RunStatus.FINISHED, RunStatus.DIVERGED) for run in self.runs)

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation over seeds; for one seed, over its sets of images, if the score has sets."""
        if len(self.evaluations) == 1:
            return deviation_of(self.evaluations[0], self.score.name)
        return statistics.stdev(self.values) if all(map(math.isfinite, self.values)) else math.nan

    @property
    def deviation_over(self) -> str | None:
        """What the deviation is taken over: seeds or sets."""
        return None if self.deviation is None else "seeds" if len(self.evaluations) > 1 else "sets"

    @property
    def text(self) -> str:
        sets = " (sets)" if self.deviation_over == "sets" else ""
        return score_to_text(self.score.name, self.mean, self.deviation) + sets


def runs_to_groups(runs: Sequence[RunRecord]) -> list[Group]:
    """Group runs by config, in order of first appearance.

    A seed that occurs twice starts another group, and a run without a config is a group of its own.
    """
    members: dict[tuple[str, int], list[RunRecord]] = {}
    for place, run in enumerate(runs):
        settings = {key: value for key, value in flattened(run.config).items() if key not in _FREE}
        key, again = json.dumps(settings, sort_keys=True, default=str) if settings else f"run {place}", 0
        while any(other.seed == run.seed for other in members.get((key, again), ())):
            again += 1
        members.setdefault((key, again), []).append(run)
    names = [_common_name(group) for group in members.values()]
    if len(set(names)) < len(names):
        names = [group[0].name for group in members.values()]
    return [Group(name, tuple(group)) for name, group in zip(names, members.values(), strict=True)]


def _common_name(runs: Sequence[RunRecord]) -> str:
    """The beginning that the names share, without a trailing "seed"."""
    if len(runs) == 1:
        return runs[0].name
    letters = takewhile(lambda each: len(set(each)) == 1, zip(*(run.name for run in runs), strict=False))
    common = "".join(each[0] for each in letters)
    return _SEED_AT_THE_END.sub("", common) or runs[0].variant or runs[0].name


def measure(runs: Sequence[RunRecord], score: Score, iteration: int | None = None) -> Measured | None:
    """A score over the seeds that got furthest, under the protocol of the first of them; None if no seed has it.

    Args:
        runs: one per seed.
        score: the score.
        iteration: where to look; None for the last iteration.
    """
    found = []
    for run in runs:
        wanted = _last_iteration(run) if iteration is None else iteration
        records = [record for record in run.evaluations if record["iteration"] == wanted]
        found += [(run, record) for record in records if score.of(record) is not None][-1:]  # measured last
    if not found:
        return None
    furthest = max(record["iteration"] for _, record in found)
    key = next(score_key(record, score.name) for _, record in found if record["iteration"] == furthest)
    chosen: list[tuple[RunRecord, Record]] = []
    left_out = []
    for run, record in found:
        if record["iteration"] != furthest:
            left_out.append(f"seed {run.seed} is at iteration {number(record['iteration'])}, not {number(furthest)}")
        elif score_key(record, score.name) != key:
            left_out.append(f"seed {run.seed} was measured under another protocol")
        else:
            chosen.append((run, record))
    return Measured(score, *_columns(chosen), tuple(left_out))


def measure_best(runs: Sequence[RunRecord], score: Score) -> Measured | None:
    """A score over the seeds that got furthest, each at its best evaluation, under the protocol of the first of them.

    None if no evaluation has a finite value, or if it is unknown whether lower or higher is better.
    """
    lower = is_lower_better(score.name)
    found = [(run, [record for record in run.evaluations if score.of(record) is not None]) for run in runs]
    found = [(run, records) for run, records in found if records]
    if lower is None or not found:
        return None
    furthest = max(records[-1]["iteration"] for _, records in found)
    key = next(score_key(records[-1], score.name) for _, records in found if records[-1]["iteration"] == furthest)
    chosen = []
    for run, records in found:
        finite = [record for record in comparable(run, score, key) if math.isfinite(record[score.name])]
        if records[-1]["iteration"] == furthest and finite:
            chosen.append((run, (min if lower else max)(finite, key=lambda record: record[score.name])))
    return Measured(score, *_columns(chosen)) if chosen else None


def comparable(run: RunRecord, score: Score, key: str) -> list[Record]:
    """The evaluations of a run whose scores compare (`score_key`); of each iteration, the one that was made last."""
    scored = [record for record in run.evaluations if score.of(record) is not None]
    return list({record["iteration"]: record for record in scored if score_key(record, score.name) == key}.values())


def _columns(chosen: Sequence[tuple[RunRecord, Record]]) -> tuple[tuple[RunRecord, ...], tuple[Record, ...]]:
    return tuple(run for run, _ in chosen), tuple(record for _, record in chosen)


def _last_iteration(run: RunRecord) -> int | None:
    """The end of a finished run, else its last evaluation."""
    if run.status is RunStatus.FINISHED:
        return run.iteration
    return run.evaluations[-1]["iteration"] if run.evaluations else None


@dataclass(frozen=True)
class WelchTest:
    """Result of Welch's t-test, for two samples whose variances may differ."""

    difference: float
    """First mean minus second mean."""
    low: float
    """Lower end of the 95% confidence interval of the difference."""
    high: float
    """Upper end."""
    p: float
    """Two-sided p value."""


@dataclass(frozen=True)
class PairTest:
    """The test of two samples, given by their indices; None if they cannot be tested."""

    first: int
    second: int
    test: WelchTest | None
    corrected: float | None
    """The p value, corrected for the number of tests."""


def welch_test(first: Sequence[float], second: Sequence[float]) -> WelchTest | None:
    """Welch's t-test; None for fewer than two values, values that are not finite, or two samples without variance.

    Example:
        >>> test = welch_test([1.0, 2.0, 3.0], [4.0, 5.0, 7.0])
        >>> round(test.difference, 3), round(test.p, 3)
        (-3.333, 0.042)
    """
    samples = (first, second)
    if min(map(len, samples)) < 2 or not all(math.isfinite(value) for sample in samples for value in sample):
        return None
    if not any(statistics.variance(sample) for sample in samples):
        return None
    from scipy import stats  # type: ignore[import-untyped]  # half a second, and few pages need it

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one sample may have no variance
        test = stats.ttest_ind(first, second, equal_var=False)
        interval = test.confidence_interval(CONFIDENCE)
    difference = statistics.fmean(first) - statistics.fmean(second)
    return WelchTest(difference, float(interval.low), float(interval.high), float(test.pvalue))


def holm(values: Sequence[float]) -> list[float]:
    """p values corrected by Holm's method: the smallest times their number, the next times one less, and so on.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    corrected, highest = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=lambda place: values[place])):
        highest = max(highest, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = highest
    return corrected


def compare_pairs(samples: Sequence[Sequence[float]], kinds: Sequence[str] | None = None) -> list[PairTest]:
    """Test every pair of samples, of one kind if kinds are given; p values are corrected for the number of tests."""
    pairs = [pair for pair in combinations(range(len(samples)), 2) if not kinds or kinds[pair[0]] == kinds[pair[1]]]
    tests = [welch_test(samples[first], samples[second]) for first, second in pairs]
    corrected = iter(holm([test.p for test in tests if test]))
    return [PairTest(*pair, test, next(corrected) if test else None) for pair, test in zip(pairs, tests, strict=True)]
