"""Runs that differ in nothing but their seed, and what they measured together."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, takewhile

from wcgan.report.compare import Score, deviation_of, figure_to_text, flattened, is_lower_better
from wcgan.report.numbers import number
from wcgan.report.read import Record, RunRecord, protocol_key, score_key
from wcgan.runs.status import RunStatus

# What runs of one group may differ in.
_FREE = {"train.seed", "data.folder"}
_SEED_AT_THE_END = re.compile(r"([-_/. ]*seed|[-_/. ]s)?[-_/. ]*\d*$")


@dataclass(frozen=True)
class Group:
    """One config, with each of some seeds."""

    name: str
    runs: tuple[RunRecord, ...]


@dataclass(frozen=True)
class Measured:
    """A score of a group: the mean over its seeds, by one protocol."""

    score: Score
    runs: tuple[RunRecord, ...]
    """The seeds in it."""
    evaluations: tuple[Record, ...]
    """One for each of them: all at one iteration, or each seed's best."""
    left_out: tuple[str, ...] = ()
    """Why other seeds are not in it."""

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
        """The iteration, or the range of the seeds' own."""
        iterations = [int(evaluation["iteration"]) for evaluation in self.evaluations]
        first, last = number(min(iterations)), number(max(iterations))
        return f"at {first}" if first == last else f"at {first} to {last}"

    @property
    def stopped(self) -> bool:
        """Whether a seed was not trained to its end; one that diverged has come to it."""
        return any(run.status not in (RunStatus.FINISHED, RunStatus.DIVERGED) for run in self.runs)

    @property
    def deviation(self) -> float | None:
        """The sample's, over seeds; of one seed, that over its sets of images, where the score has sets."""
        several = len(self.evaluations) > 1
        return _deviation(self.values) if several else deviation_of(self.evaluations[0], self.score.name)

    @property
    def deviation_over(self) -> str | None:
        """What the deviation is taken over: seeds or sets."""
        return None if self.deviation is None else "seeds" if len(self.evaluations) > 1 else "sets"

    @property
    def text(self) -> str:
        sets = " (sets)" if self.deviation_over == "sets" else ""
        return figure_to_text(self.score.name, self.mean, self.deviation) + sets


def runs_to_groups(runs: Sequence[RunRecord]) -> list[Group]:
    """Runs of one config together, in the order of their first; a seed that comes again begins another group.

    A run twice is not two seeds, and one without a config is a group of its own.
    """
    members: dict[tuple[str, int], list[RunRecord]] = {}
    for place, run in enumerate(runs):
        settings = {key: value for key, value in flattened(run.config).items() if key not in _FREE}
        key, again = json.dumps(settings, sort_keys=True, default=str) if settings else f"run {place}", 0
        while any(other.seed == run.seed for other in members.get((key, again), ())):
            again += 1
        members.setdefault((key, again), []).append(run)
    names = [_name(group) for group in members.values()]
    if len(set(names)) < len(names):
        names = [group[0].name for group in members.values()]
    return [Group(name, tuple(group)) for name, group in zip(names, members.values(), strict=True)]


def measure(runs: Sequence[RunRecord], score: Score, iteration: int | None = None) -> Measured | None:
    """A score over seeds: of those that are furthest, by the protocol of the first of them. None where none has it.

    Args:
        runs: one for each seed.
        score: what is wanted.
        iteration: where to look, in place of the last.
    """
    found = []
    for run in runs:
        wanted = _last_iteration(run) if iteration is None else iteration
        records = [record for record in run.evaluations if record["iteration"] == wanted]
        found += [(run, record) for record in records if score.of(record) is not None][-1:]  # measured last
    if not found:
        return None
    furthest = max(record["iteration"] for _, record in found)
    protocol = next(protocol_key(record) for _, record in found if record["iteration"] == furthest)
    chosen: list[tuple[RunRecord, Record]] = []
    left_out = []
    for run, record in found:
        if record["iteration"] != furthest:
            left_out.append(f"seed {run.seed} is at iteration {number(record['iteration'])}, not {number(furthest)}")
        elif protocol_key(record) != protocol:
            left_out.append(f"seed {run.seed} was measured by another protocol")
        else:
            chosen.append((run, record))
    return Measured(score, *_columns(chosen), tuple(left_out))


def measure_best(runs: Sequence[RunRecord], score: Score) -> Measured | None:
    """A score over seeds, each at its best evaluation: of those that are furthest, by the protocol of their first.

    None where no evaluation has a finite value, or where nobody knows which way the score improves.
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
        comparable = [r for r in records if score_key(r, score.name) == key and math.isfinite(r[score.name])]
        if records[-1]["iteration"] == furthest and comparable:
            chosen.append((run, (min if lower else max)(comparable, key=lambda record: record[score.name])))
    return Measured(score, *_columns(chosen)) if chosen else None


def _columns(chosen: Sequence[tuple[RunRecord, Record]]) -> tuple[tuple[RunRecord, ...], tuple[Record, ...]]:
    return tuple(run for run, _ in chosen), tuple(record for _, record in chosen)


def _last_iteration(run: RunRecord) -> int | None:
    """Where the state is that stands for a run: the end of a finished one, else the last that was evaluated."""
    if run.status is RunStatus.FINISHED:
        return run.iteration
    return run.evaluations[-1]["iteration"] if run.evaluations else None


def _name(runs: Sequence[RunRecord]) -> str:
    """What the names have in common, without the word for a seed at its end."""
    if len(runs) == 1:
        return runs[0].name
    letters = takewhile(lambda each: len(set(each)) == 1, zip(*(run.name for run in runs), strict=False))
    common = "".join(each[0] for each in letters)
    return _SEED_AT_THE_END.sub("", common) or runs[0].variant or runs[0].name


def _deviation(values: list[float]) -> float:
    """The sample's standard deviation; not a number where a value is not finite."""
    return statistics.stdev(values) if all(map(math.isfinite, values)) else math.nan


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
