"""Analyses the votes of a study: preference, agreement between participants, and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from wcgan.web.study.config import Study
from wcgan.web.study.store import Vote

CONFIDENCE = 0.95
RESAMPLES = 10_000
_MOST_AT_ONCE = 1 << 24  # participants in the resamples that are drawn at once, which bounds memory
# The lowest alpha of each grade, best grade first.
GRADES = ((0.9, "excellent"), (0.8, "good"), (0.7, "acceptable"), (0.6, "questionable"), (0.5, "poor"))
WORST_GRADE = "unacceptable"

Choices = NDArray[np.float64]
"""`(participants, classes)`: 1 where b was chosen, 0 where a was."""


@dataclass(frozen=True)
class Interval:
    """A bootstrap interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Binomial:
    """An exact two-sided binomial test of whether as many prefer b as prefer a."""

    for_b: int
    of: int
    """Without ties."""
    p: float


@dataclass(frozen=True)
class Person:
    """A participant who voted on every pair."""

    preference: float
    """The share of classes in which b was chosen."""
    checks_failed: int
    first_chosen: float
    """The share of votes for the set shown first. Far from a half, they voted for the place, not for the images."""
    seconds_per_pair: float
    """The median time between two votes, which a break does not change."""


@dataclass(frozen=True)
class Analysis:
    """The result of a study."""

    joined: int
    unfinished: int
    """Participants who did not vote on every pair; not counted."""
    failed: int
    """Participants who finished but failed the attention checks; not counted."""
    people: tuple[Person, ...]
    """The participants who are counted."""
    labels: tuple[str, ...]
    classes: tuple[float, ...]
    """For each class, the share of participants who chose b."""
    preference: float
    """The user-averaged class-based preference for b."""
    over_participants: Interval
    """The range of the preference if other participants judged the same classes."""
    over_both: Interval
    """The range of the preference if other participants judged other classes."""
    alpha: float | None
    """Cronbach's alpha between participants; None where it is not defined."""
    grade: str
    by_class: Binomial
    """The test over classes, each decided by the majority of participants."""
    by_participant: Binomial
    """The test over participants, each decided by the majority of their choices."""


def votes_to_analysis(
    study: Study, joined: Sequence[str], votes: Sequence[Vote], most_failed: int = 0, seed: int = 0
) -> Analysis:
    """Analyses the votes of participants who finished and did not fail the checks.

    Args:
        study: the study that was voted on.
        joined: the ids of all who joined.
        votes: all votes.
        most_failed: attention checks that a participant may fail and still be counted.
        seed: seed of the bootstrap.

    Raises:
        ValueError: if nobody is left to count.
    """
    own: dict[str, dict[int, Vote]] = {participant: {} for participant in joined}
    for vote in votes:
        if vote.participant not in own or not 0 <= vote.pair < len(study.pairs):
            raise ValueError(
                f"there is a vote on pair {vote.pair} that nobody can have cast: are these the study's votes?"
            )
        own[vote.participant][vote.pair] = vote
    finished = {name: chosen for name, chosen in own.items() if len(chosen) == len(study.pairs)}
    wrong = {name: sum(chosen[pair].side == "b" for pair in study.checks) for name, chosen in finished.items()}
    counted = [name for name in finished if wrong[name] <= most_failed]
    unfinished, failed = len(own) - len(finished), len(finished) - len(counted)
    if not counted:
        raise ValueError(
            f"there is nobody to count: {len(own)} joined, {unfinished} did not finish, {failed} failed the checks"
        )
    places = [place for place in range(len(study.pairs)) if place not in study.checks]
    choices = np.array([[float(finished[name][place].side == "b") for place in places] for name in counted])
    alpha = cronbach_alpha(choices)
    return Analysis(
        joined=len(own),
        unfinished=unfinished,
        failed=failed,
        people=tuple(_person(row, finished[name], wrong[name]) for name, row in zip(counted, choices, strict=True)),
        labels=tuple(study.pairs[place].label for place in places),
        classes=tuple(choices.mean(0).tolist()),
        preference=user_averaged_preference(choices),
        over_participants=bootstrap(choices, seed, classes=False),
        over_both=bootstrap(choices, seed, classes=True),
        alpha=alpha,
        grade=alpha_to_grade(alpha),
        by_class=_test_majorities(choices.mean(0)),
        by_participant=_test_majorities(choices.mean(1)),
    )


def user_averaged_preference(choices: Choices) -> float:
    """The share of classes in which a participant chose b, averaged over participants.

    Example:
        >>> user_averaged_preference(np.array([[1.0, 1.0, 0.0, 1.0], [0.0, 1.0, 0.0, 1.0]]))
        0.625
    """
    return float(choices.mean(1).mean())  # (participants, classes) -> (participants,) -> one


def cronbach_alpha(choices: Choices) -> float | None:
    r"""Agreement between participants: participants are the items, and classes the cases.

    .. math:: \alpha = \frac{k}{k - 1} \left(1 - \frac{\sum_i \sigma_i^2}{\sigma^2}\right)

    Args:
        choices: `(k, classes)`; :math:`\sigma_i^2` is the variance of a row, :math:`\sigma^2` that of the sum of rows.

    Returns:
        Alpha; None for fewer than two participants or classes, or if the sum does not vary.

    Example:
        >>> cronbach_alpha(np.array([[0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0]]))
        1.0
    """
    k, classes = choices.shape
    if k < 2 or classes < 2:
        return None
    total = choices.sum(0).var(ddof=1)
    if total == 0:
        return None
    return float(k / (k - 1) * (1 - choices.var(axis=1, ddof=1).sum() / total))


def alpha_to_grade(alpha: float | None) -> str:
    """The usual name for a value of alpha.

    Example:
        >>> [alpha_to_grade(alpha) for alpha in (0.9, 0.87, 0.49, None)]
        ['excellent', 'good', 'unacceptable', 'not defined']
    """
    if alpha is None:
        return "not defined"
    return next((grade for least, grade in GRADES if alpha >= least), WORST_GRADE)


def bootstrap(choices: Choices, seed: int, classes: bool, resamples: int = RESAMPLES) -> Interval:
    """The percentile interval of the preference; resamples participants and, if `classes`, classes too."""
    chance = np.random.default_rng(seed)
    people, columns = choices.shape
    step = max(1, _MOST_AT_ONCE // people)
    shares = np.concatenate(
        [
            chance.multinomial(people, np.full(people, 1 / people), min(step, resamples - done)) / people @ choices
            for done in range(0, resamples, step)
        ]
    )  # (R, classes)
    if classes:
        shares *= chance.multinomial(columns, np.full(columns, 1 / columns), resamples)
    means = shares.mean(1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist()
    return Interval(low, high)


def binomial_test(successes: int, of: int) -> float:
    """The p-value of an exact two-sided test against one half; 1 for no trials.

    Example:
        >>> round(binomial_test(9, 10), 6), binomial_test(5, 10)
        (0.021484, 1.0)
    """
    from scipy.stats import binomtest  # type: ignore[import-untyped]  # slow to import, and only a report needs it

    return float(binomtest(successes, of).pvalue) if of else 1.0


def _test_majorities(shares: Choices) -> Binomial:
    for_b, against = int((shares > 0.5).sum()), int((shares < 0.5).sum())
    return Binomial(for_b, for_b + against, binomial_test(for_b, for_b + against))


def _person(row: Choices, votes: dict[int, Vote], checks_failed: int) -> Person:
    times = sorted(datetime.fromisoformat(vote.time).timestamp() for vote in votes.values())
    return Person(
        preference=float(row.mean()),
        checks_failed=checks_failed,
        first_chosen=sum(vote.choice == "1" for vote in votes.values()) / len(votes),
        seconds_per_pair=float(np.median(np.diff(times))),
    )
