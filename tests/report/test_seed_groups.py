"""Runs that differ only in the seed: groups, means and significance tests."""

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.report.cases import FID, config, evaluations, event, published, training, write_run
from tests.report.reader import read_page, rows, section

from wcgan.report import read_runs, write_report
from wcgan.report.scores import Score
from wcgan.report.sections import TOO_FEW
from wcgan.report.seed_groups import compare_pairs, holm, measure, measure_best, runs_to_groups, welch_test

FID_10K = Score("FID", "paper-10k")
values = st.integers(-1000, 1000).map(lambda n: n / 10)
samples = st.lists(values, min_size=2, max_size=6).filter(lambda sample: len(set(sample)) > 1)
shares = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def seed_run(folder, seed, variant="cWC", scale=1.0, until=1000):
    records = [event(0, "started"), *training(until), *evaluations(until, scale=scale, seed=seed)]
    return write_run(folder, config(variant, seed=seed), records, samples=())


def scored(folder, seed, *records, last=1000):
    return write_run(folder, config(seed=seed), [*training(last), *records, event(last, "stopped")], samples=())


@pytest.fixture
def four(tmp_path):
    """Two configs with two seeds each, in mixed order."""
    scales = {"cWC": (1.0, 1.1), "cBN": (1.8, 2.0)}
    return [seed_run(tmp_path / v / f"seed-{s}", s, v, scales[v][s]) for s in (0, 1) for v in ("cWC", "cBN")]


def test_runs_that_differ_in_seed_and_folders_are_one_group(tmp_path):
    settings = [config(seed=0), config(seed=1), config(seed=2, batch=32)]
    settings[1]["data"]["folder"] = "elsewhere"
    runs = [write_run(tmp_path / f"run-s{n}", each) for n, each in enumerate(settings)]
    groups = runs_to_groups(read_runs(runs))
    assert [(group.name, [run.seed for run in group.runs]) for group in groups] == [("run", [0, 1]), ("run-s2", [2])]


def test_one_run_twice_is_not_two_seeds(tmp_path):
    run = write_run(tmp_path / "run")
    assert [len(group.runs) for group in runs_to_groups(read_runs([run, run]))] == [1, 1]


def test_of_measurements_at_one_iteration_the_one_that_was_made_last_counts(tmp_path):
    first, other, again = (published(1000, FID=value) for value in (9.0, 8.0, 7.0))
    other["protocol"]["inception"] = {"weights": "others"}
    found = measure(read_runs([scored(tmp_path / "run", 0, first, other, again)]), FID_10K)
    assert found.values == [7.0]


def test_runs_without_a_config_are_not_grouped(tmp_path):
    runs = [write_run(tmp_path / name, {}) for name in "ab"]
    assert [len(group.runs) for group in runs_to_groups(read_runs(runs))] == [1, 1]


@pytest.mark.parametrize(
    ("names", "name"),
    [
        (("cWC/seed-0", "cWC/seed-1"), "cWC"),
        (("cWC-s1", "cWC-s10"), "cWC"),
        (("digits/0", "digits/1"), "digits"),
        (("cifar10_seed0", "cifar10_seed1"), "cifar10"),
    ],
)
def test_a_group_is_named_by_what_its_runs_share(tmp_path, names, name):
    runs = [write_run(tmp_path / each, config(seed=n)) for n, each in enumerate(names)]
    beside = write_run(tmp_path / "other" / names[0].split("/")[-1], config("BN"))
    assert runs_to_groups(read_runs([*runs, beside]))[0].name.removeprefix(f"{tmp_path.name}/") == name


def test_a_group_whose_runs_share_no_name_is_named_by_its_variant(tmp_path):
    runs = [write_run(tmp_path / each, config(seed=n)) for n, each in enumerate("ab")]
    assert [group.name for group in runs_to_groups(read_runs(runs))] == ["cWC"]


def test_a_score_over_seeds_is_their_mean_and_sample_deviation(tmp_path):
    runs = [scored(tmp_path / str(s), s, published(1000, FID=value)) for s, value in enumerate((17.0, 18.0, 20.0))]
    found = measure(read_runs(runs), FID_10K)
    assert found is not None
    assert found.mean == pytest.approx(55 / 3)
    assert (found.deviation, found.deviation_over) == (pytest.approx(statistics.stdev([17, 18, 20])), "seeds")
    assert (found.text, found.left_out) == ("18.33 \u00b1 1.5", ())


def test_the_deviation_of_one_seed_is_named_that_of_its_sets(tmp_path):
    (run,) = read_runs([scored(tmp_path / "run", 0, published(1000, IS=8.5))])
    found = measure([run], Score("IS", "paper-10k"))
    assert found is not None
    assert (found.text, found.deviation_over) == ("8.500 \u00b1 0.11 (sets)", "sets")


def test_seeds_that_are_not_as_far_are_left_out_and_said_to_be(tmp_path):
    ends = {0: (1000, 17.0), 1: (400, 40.0), 2: (1000, 18.0)}
    runs = [scored(tmp_path / str(s), s, published(i, FID=v), last=i) for s, (i, v) in ends.items()]
    found = measure(read_runs(runs), FID_10K)
    assert found is not None
    assert (found.values, found.left_out) == ([17.0, 18.0], ("seed 1 is at iteration 400, not 1,000",))


def test_seeds_of_another_protocol_are_left_out_and_said_to_be(tmp_path):
    other = published(1000, FID=3.0)
    other["protocol"]["inception"]["weights"] = "another"
    records = read_runs([scored(tmp_path / "a", 0, published(1000, FID=17.0)), scored(tmp_path / "b", 1, other)])
    found = measure(records, FID_10K)
    assert found is not None
    assert (found.values, found.left_out) == ([17.0], ("seed 1 was measured under another protocol",))


def test_the_protocol_is_that_of_a_seed_that_got_furthest(tmp_path):
    other = published(500, FID=20.0)
    other["protocol"]["inception"]["weights"] = "another"
    behind = scored(tmp_path / "a", 0, other, last=500)
    records = read_runs([behind, scored(tmp_path / "b", 1, published(500, FID=19.0), published(1000, FID=17.0))])
    found, best = measure(records, FID_10K), measure_best(records, FID_10K)
    assert found is not None
    assert best is not None
    assert (found.values, found.left_out) == ([17.0], ("seed 0 is at iteration 500, not 1,000",))
    assert ([run.seed for run in best.runs], best.values) == ([1], [17.0])


def test_seeds_that_measured_other_scores_besides_compare(tmp_path):
    also_kid = published(1000, FID=18.0, KID=0.004)
    also_kid["protocol"] |= {"kid_subset_size": 1000, "features": "inception and classifier", "splits": 5}
    records = read_runs([scored(tmp_path / "a", 0, published(1000, FID=17.0)), scored(tmp_path / "b", 1, also_kid)])
    found = measure(records, FID_10K)
    assert found is not None
    assert (found.values, found.left_out) == ([17.0, 18.0], ())


def test_a_finished_run_counts_with_its_last_state_alone(tmp_path):
    finished = [*training(), published(800, FID=17.0), event(1000, "finished")]
    (run,) = read_runs([write_run(tmp_path / "run", records=finished)])
    assert measure([run], FID_10K) is None
    found = measure([run], FID_10K, 800)
    assert found is not None
    assert found.mean == 17.0


def test_the_page_shows_means_over_seeds(four, tmp_path):
    page = read_page(write_report(four, tmp_path / "page.html"))
    first, second = rows(page, "seeds")
    values = [r.evaluations[-1][FID] for r in read_runs(four)]
    assert (first["Config"], first["Seeds"]) == ("cWC", "0, 1")
    assert float(first[FID].partition(" ")[0]) == pytest.approx((values[0] + values[2]) / 2, abs=1e-3)
    assert second["Config"] == "cBN"


def test_the_page_tests_pairs_of_configs(four, tmp_path):
    page = read_page(write_report(four, tmp_path / "page.html"))
    tests = rows(page, "tests")
    values = [r.evaluations[-1][FID] for r in read_runs(four)]
    wanted = welch_test([values[0], values[2]], [values[1], values[3]])
    assert [test["Score"] for test in tests] == [FID, "IS(classifier)", "accuracy(classifier)"]
    assert tests[0]["Pair"] == "cWC \u2212 cBN"
    assert wanted is not None
    assert tests[0]["p"] == tests[0]["p, corrected"] == f"{wanted.p:.3f}"
    assert float(tests[0]["Difference"].replace("\u2212", "-")) == pytest.approx(wanted.difference, abs=1e-3)
    assert tests[0]["Seeds"] == "2 and 2"


def test_p_values_are_corrected_for_all_tests_of_a_score_and_unequal_iterations_are_named(tmp_path):
    runs, protocols = [], {"BN": "a", "WC": "a", "cBN": "b", "cWC": "b"}
    for n, (variant, weights) in enumerate(protocols.items()):
        for seed in (0, 1):
            line = published(1000 - n, FID=10.0 * n + seed)
            line["protocol"]["inception"]["weights"] = weights
            records = [*training(), line]
            runs.append(write_run(tmp_path / variant / str(seed), config(variant, seed=seed), records, samples=()))
    tests = rows(read_page(write_report(runs, tmp_path / "page.html")), "tests")
    assert [test["Pair"] for test in tests] == ["BN \u2212 WC", "cBN \u2212 cWC"]
    for test in tests:
        assert float(test["p, corrected"]) == pytest.approx(2 * float(test["p"]), abs=2e-3)
    assert [test["Score"] for test in tests] == ["FIDat 1,000 and 999", "FIDat 998 and 997"]


def test_too_few_seeds_are_said_to_be(four, tmp_path):
    page = read_page(write_report([four[0], four[2], four[1]], tmp_path / "page.html"))
    assert f"{TOO_FEW} Not tested: cBN/seed-0" in section(page, "Mean over seeds")
    assert page.all("table", "tests") == []


def test_single_runs_have_no_section_on_seeds(four, tmp_path):
    page = read_page(write_report(four[:2], tmp_path / "page.html"))
    assert "Mean over seeds" not in [heading.text for heading in page.all("h2")]


def test_scores_of_different_protocols_are_not_tested(tmp_path):
    runs = []
    for variant, generated in (("cWC", 1000), ("cBN", 50)):
        for seed in (0, 1):
            counts = {"generated": generated, "scored_by_IS": generated}
            records = [*training(), *evaluations(scale=1 + seed, seed=seed, **counts)]
            runs.append(write_run(tmp_path / variant / str(seed), config(variant, seed=seed), records, samples=()))
    page = read_page(write_report(runs, tmp_path / "page.html"))
    assert TOO_FEW in section(page, "Mean over seeds")


def test_many_tests_are_folded_away(tmp_path):
    runs = [seed_run(tmp_path / v / str(s), s, v, 1 + s / 10) for v in ("BN", "WC", "cBN", "cWC") for s in (0, 1)]
    page = read_page(write_report(runs, tmp_path / "page.html"))
    assert "18 tests" in [summary.text for summary in page.all("summary")]


@settings(deadline=None)
@given(samples, samples)
def test_welchs_test_is_the_textbooks(first, second):
    parts = [statistics.variance(sample) / len(sample) for sample in (first, second)]  # variances of the means
    freedom = sum(parts) ** 2 / sum(p**2 / (len(s) - 1) for p, s in zip(parts, (first, second), strict=True))
    difference, error = statistics.fmean(first) - statistics.fmean(second), math.sqrt(sum(parts))
    margin = stats.t.ppf(0.975, freedom) * error
    found = welch_test(first, second)
    assert found is not None
    assert found.difference == pytest.approx(difference)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(difference) / error, freedom), rel=1e-9, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((difference - margin, difference + margin), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("second", [[], [1.0], [1.0, math.nan], [1.0, math.inf]])
def test_too_little_is_not_tested(second):
    assert welch_test([1.0, 2.0], second) is None
    assert welch_test(second, [1.0, 2.0]) is None


def test_samples_without_any_variance_are_not_tested():
    assert welch_test([1.0, 1.0], [2.0, 2.0]) is None
    assert welch_test([1.0, 1.0], [2.0, 2.1]) is not None


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
    (single,) = compare_pairs([near, far])
    with_lone = compare_pairs([near, far, [3.0]])
    assert single.test is not None
    assert single.corrected == single.test.p
    assert [(c.first, c.second, c.corrected) for c in with_lone] == [
        (0, 1, single.corrected),
        (0, 2, None),
        (1, 2, None),
    ]
