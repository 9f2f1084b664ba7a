"""Preference, agreement and tests: against loops, exact sums and a synthetic study whose answer is known."""

import json
import math
import random
import re
import statistics
from dataclasses import replace

import numpy as np
import pytest
from tests.web.study.cases import make_study, open_store, write_side

from wcgan.web.study import create_study, read_study, write_study_report
from wcgan.web.study.analysis import (
    alpha_to_grade,
    binomial_test,
    bootstrap,
    cronbach_alpha,
    user_averaged_preference,
    votes_to_analysis,
)
from wcgan.web.study.config import CHOICES, new_token, study_to_trials, token_to_id
from wcgan.web.study.pages import analysis_to_rows

PARTICIPANTS, CLASSES = 21, 50
# How many of the 21 chose b, class by class: 714 votes, and 34 classes for each participant.
FOR_B = [18] * 32 + [11] * 6 + [6] * 12


def synthetic():
    """(21, 50): the votes for b are dealt to the participants in turn, so that all have as many."""
    choices, turn = np.zeros((PARTICIPANTS, CLASSES)), 0
    for column, count in enumerate(FOR_B):
        for _ in range(count):
            choices[turn % PARTICIPANTS, column] = 1
            turn += 1
    return choices


def random_choices(people, classes, seed):
    """Participants who agree more or less, on classes that are more or less clear."""
    chance = np.random.default_rng(seed)
    return (chance.random((people, classes)) < chance.beta(1, 0.6, classes)).astype(float)


def exact_p(successes, of):
    """Both tails of a fair coin, by counting."""
    return min(1.0, 2 * sum(math.comb(of, k) for k in range(min(successes, of - successes) + 1)) / 2**of)


def vote_all(store, study, sides, checks="aaaa", finish=True):
    """A participant who chooses the given sides of the pairs and of the checks."""
    token = new_token()
    store.join(token_to_id(token), 1000, consented=True)
    wanted = [*sides, *checks]
    for trial in study_to_trials(study, token)[: None if finish else -1]:
        choice = next(choice for choice in CHOICES if trial.side(choice) == wanted[trial.pair])
        store.vote(token_to_id(token), trial, choice)


@pytest.fixture(scope="module")
def voted(tmp_path_factory):
    """The synthetic study in a real store, with three more who fail a check or do not finish."""
    place = tmp_path_factory.mktemp("voted")
    a = write_side(place / "cBN", classes=CLASSES, images=1, side=2)
    b = write_side(place / "cWC_sa", classes=CLASSES, images=1, side=2, seed=1)
    study = create_study(a, b, place / "study", images=1)
    store = open_store(place / "study")
    for row in synthetic():
        vote_all(store, study, ["ab"[int(value)] for value in row])
    vote_all(store, study, "a" * CLASSES, checks="aaab")
    vote_all(store, study, "a" * CLASSES, checks="bbbb")
    vote_all(store, study, "a" * CLASSES, finish=False)
    store.database.close()
    return place / "study"


def test_the_papers_analysis_finds_the_known_answer_of_21_participants_and_50_classes(voted):
    rows, page, values = write_study_report(voted)
    found = json.loads(values.read_text())
    # All participants have the same share p, so that their variances add up to k p (1 - p) C / (C - 1).
    variances = 21 * 0.68 * 0.32 * 50 / 49
    alpha = 21 / 20 * (1 - variances / statistics.variance(FOR_B))
    assert found["preference"] == pytest.approx(0.68, abs=1e-12)
    assert found["alpha"] == pytest.approx(alpha, abs=1e-12)
    assert found["grade"] == "good"
    assert (found["joined"], found["failed"], found["unfinished"]) == (24, 2, 1)
    assert found["by_class"] == {"for_b": 38, "of": 50, "p": pytest.approx(exact_p(38, 50))}
    assert found["by_participant"] == {"for_b": 21, "of": 21, "p": pytest.approx(2 / 2**21)}
    assert sorted(found["classes"].values()) == pytest.approx([count / 21 for count in sorted(FOR_B)])
    assert dict(rows)["Preference for cWC_sa, averaged over participants"] == "68.00%"
    assert dict(rows)["Agreement between participants (Cronbach's alpha)"] == "0.87 (good)"
    assert dict(rows)["Participants counted"] == "21 of 24"
    assert page.read_text().count('class="part"') == CLASSES


def test_each_class_has_its_own_share(voted):
    study, store = read_study(voted), open_store(voted)
    analysis = votes_to_analysis(study, store.participants(), store.votes())
    store.database.close()
    assert analysis.classes == pytest.approx([count / 21 for count in FOR_B])
    assert analysis.labels == tuple(pair.label for pair in study.pairs if not pair.check)


def test_who_fails_more_checks_than_may_be_is_dropped_and_counted(voted):
    kept = {most: json.loads(write_study_report(voted, most_failed=most)[2].read_text()) for most in (0, 1, 3, 4)}
    assert [(len(found["people"]), found["failed"]) for found in kept.values()] == [(21, 2), (22, 1), (22, 1), (23, 0)]
    assert sorted(person["checks_failed"] for person in kept[4]["people"]) == [0] * 21 + [1, 4]
    with pytest.raises(ValueError, match="most_failed must be a whole number from 0 to 4, got 5"):
        write_study_report(voted, most_failed=5)


def test_the_page_needs_nothing_else_and_names_nobody(voted, tmp_path):
    _, page, values = write_study_report(voted, tmp_path / "out")
    assert (page.parent, values.parent) == (tmp_path / "out", tmp_path / "out")
    assert re.findall(r"(?:src|href)=|https?://|url\(|<script", page.read_text()) == []
    store = open_store(voted)
    known = [*store.participants(), read_study(voted).key, read_study(voted).join]
    store.database.close()
    assert [name for name in known if name in page.read_text() + values.read_text()] == []


def test_a_name_is_never_markup(tmp_path):
    a = write_side(tmp_path / "a", classes=3)
    b = write_side(tmp_path / "<b>bold<", classes=3, seed=1)
    for side in (a, b):
        (side / "class 0").rename(side / "<script>")
    study = create_study(a, b, tmp_path / "study", images=1)
    store = open_store(tmp_path / "study")
    for _ in range(2):
        vote_all(store, study, "aba")
    store.database.close()
    page = write_study_report(tmp_path / "study")[1].read_text()
    assert "&lt;script&gt;" in page
    assert re.search(r"<script|<b>", page) is None


def test_a_break_does_not_count_as_time_for_a_pair_and_ties_are_said(tmp_path):
    study, store = read_study(make_study(tmp_path)), open_store(tmp_path / "study")
    for sides in ("bbab", "aabb"):
        vote_all(store, study, sides, checks="aa")
    minutes = ("09:00:00", "09:00:04", "09:00:07", "19:00:00", "19:00:05", "19:00:09")
    votes = [replace(vote, time=f"2026-01-01T{minutes[vote.number - 1]}+00:00") for vote in store.votes()]
    analysis = votes_to_analysis(study, store.participants(), votes)
    store.database.close()
    assert [person.seconds_per_pair for person in analysis.people] == [4.0, 4.0]
    rows = dict(analysis_to_rows(study, analysis))
    assert rows[f"Classes in which most chose {study.b}"] == "1 of 1, 3 tied (p = 1.0000)"


@pytest.mark.parametrize("seed", range(5))
def test_preference_and_alpha_are_those_of_plain_loops(seed):
    choices = random_choices(7 + seed, 20, seed)
    people = [list(row) for row in choices]
    totals = [sum(row[c] for row in people) for c in range(20)]
    k = len(people)
    alpha = k / (k - 1) * (1 - sum(statistics.variance(row) for row in people) / statistics.variance(totals))
    assert cronbach_alpha(choices) == pytest.approx(alpha, abs=1e-12)
    preference = statistics.fmean(sum(row) / len(row) for row in people)
    assert user_averaged_preference(choices) == pytest.approx(preference, abs=1e-12)


def test_alpha_is_not_defined_for_one_participant_or_a_unanimous_set():
    assert cronbach_alpha(np.ones((1, 5))) is None
    assert cronbach_alpha(np.ones((4, 5))) is None
    assert cronbach_alpha(np.ones((4, 1))) is None
    assert alpha_to_grade(None) == "not defined"


def test_participants_who_vote_at_random_do_not_agree():
    choices = (np.random.default_rng(0).random((40, 2000)) < 0.5).astype(float)
    assert abs(cronbach_alpha(choices)) < 0.15
    assert alpha_to_grade(cronbach_alpha(choices)) == "unacceptable"


def test_a_grade_begins_at_its_own_bound():
    grades = ["excellent", "good", "acceptable", "questionable", "poor", "unacceptable"]
    bounds = (0.9, 0.8, 0.7, 0.6, 0.5)
    assert [alpha_to_grade(bound) for bound in bounds] == grades[:-1]
    assert [alpha_to_grade(bound - 1e-9) for bound in bounds] == grades[1:]


def test_agreement_is_reported_in_words(voted):
    study, store = read_study(voted), open_store(voted)
    analysis = votes_to_analysis(study, store.participants(), store.votes())
    store.database.close()
    said = {}
    for alpha in (None, -0.62, -0.004, 0.004, 0.31, 0.87):
        rows = analysis_to_rows(study, replace(analysis, alpha=alpha, grade=alpha_to_grade(alpha)))
        said[alpha] = dict(rows)["Agreement between participants (Cronbach's alpha)"]
    assert said == {
        None: "not defined",
        -0.62: "-0.62 (no agreement)",
        -0.004: "0.00 (no agreement)",
        0.004: "0.00 (no agreement)",
        0.31: "0.31 (unacceptable)",
        0.87: "0.87 (good)",
    }


@pytest.mark.parametrize("classes", [False, True])
def test_the_bootstrap_is_that_of_a_plain_loop(classes):
    choices, chance = random_choices(12, 15, 3), random.Random(0)
    means = []
    for _ in range(10_000):
        rows = chance.choices(range(12), k=12)
        columns = chance.choices(range(15), k=15) if classes else range(15)
        means.append(np.mean(choices[np.ix_(rows, columns)]))
    found = bootstrap(choices, 0, classes)
    step = 1 / (12 * 15)  # between two values that a mean can have
    assert abs(found.low - np.quantile(means, 0.025)) <= 2 * step
    assert abs(found.high - np.quantile(means, 0.975)) <= 2 * step
    assert found.low < choices.mean() < found.high


def test_the_same_seed_gives_the_same_interval():
    choices = random_choices(12, 15, 3)
    assert bootstrap(choices, 1, True) == bootstrap(choices, 1, True) != bootstrap(choices, 2, True)


@pytest.mark.parametrize("classes", [False, True])
def test_resamples_of_many_participants_are_drawn_in_parts_and_give_the_same_interval(classes, monkeypatch):
    choices = random_choices(12, 15, 3)
    whole = bootstrap(choices, 1, classes)
    monkeypatch.setattr("wcgan.web.study.analysis._MOST_AT_ONCE", 12 * 7)
    parts = bootstrap(choices, 1, classes)
    assert (parts.low, parts.high) == pytest.approx((whole.low, whole.high), rel=1e-12)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    chance, covered = np.random.default_rng(0), 0
    for _ in range(200):
        shares = chance.uniform(0.4, 1, 60)  # of participants: 0.7 on average
        choices = (chance.random((60, 20)) < shares[:, None]).astype(float)
        found = bootstrap(choices, 0, classes=False, resamples=400)
        covered += found.low <= 0.7 <= found.high
    assert 0.88 <= covered / 200 <= 0.99


def test_the_binomial_test_is_exact_and_two_sided():
    for of in range(1, 40):
        for successes in range(of + 1):
            assert binomial_test(successes, of) == pytest.approx(exact_p(successes, of), rel=1e-12)
    assert binomial_test(0, 0) == 1


def test_a_tie_counts_for_neither_side(tmp_path):
    folder = make_study(tmp_path, classes=4)
    study, store = read_study(folder), open_store(folder)
    vote_all(store, study, "bbab", "aa")
    vote_all(store, study, "bbaa", "aa")
    analysis = votes_to_analysis(study, store.participants(), store.votes())
    store.database.close()
    assert (analysis.by_class.for_b, analysis.by_class.of) == (2, 3)
    assert (analysis.by_participant.for_b, analysis.by_participant.of) == (1, 1)


def test_a_study_with_nobody_to_count_says_how_many_there_were(tmp_path):
    folder = make_study(tmp_path)
    with pytest.raises(ValueError, match="has no votes yet: collect them with `wcgan study serve"):
        write_study_report(folder)
    store = open_store(folder)
    vote_all(store, read_study(folder), "aaaa", "ab")
    vote_all(store, read_study(folder), "aaaa", "aa", finish=False)
    store.database.close()
    with pytest.raises(ValueError, match="2 joined, 1 did not finish, 1 failed the checks"):
        write_study_report(folder)
    assert not (folder / "report.html").exists()
