"""Protocols: the published numbers of images, and a name that says every change of them."""

import pytest

from wcgan.evaluate.protocol import PROTOCOLS, facts_to_name, find_protocol, protocol_to_plan

COUNTS = {
    # real images' split, real, generated, sets of the Inception Score, images in all of them
    "paper-5k": ("test", 10_000, 5_000, 10, 50_000),
    "paper-10k": ("test", 10_000, 10_000, 10, 50_000),
    "50k-train": ("train", 50_000, 50_000, 10, 50_000),
}


@pytest.mark.parametrize("name", COUNTS)
def test_a_published_protocol_has_the_published_counts_and_its_plain_name(name):
    plan = protocol_to_plan(PROTOCOLS[name], reference=60_000)
    assert (PROTOCOLS[name].split, plan.reference, plan.generated, plan.sets, plan.scored) == COUNTS[name]
    assert plan.name == name


def test_the_distances_alone_need_no_images_for_the_score():
    plan = protocol_to_plan(PROTOCOLS["paper-5k"], 10_000)
    assert [plan.images(m) for m in (("fid",), ("is",), ("is", "fid", "kid"))] == [5_000, 50_000, 50_000]
    assert protocol_to_plan(PROTOCOLS["paper-5k"], 10_000, 5_000, metrics=("fid", "kid")).name == "paper-5k"


@pytest.mark.parametrize(
    ("arguments", "name", "counts"),
    [
        (("paper-10k", 359, None, 2000), "paper-10k, 2,000 generated against 359, 10 sets of 200", (359, 2000, 2000)),
        (("paper-10k", 90_000, None, 10_000), "paper-10k, 10 sets of 1,000", (10_000, 10_000, 10_000)),
        (("paper-5k", 359, None, 5000), "paper-5k, 5,000 generated against 359, 10 sets of 500", (359, 5000, 5000)),
        (("all", 30, 40, None), "all, 40 generated against 30, 10 sets of 4", (30, 40, 40)),
        (("all", 30, 40, 20), "all, 20 generated against 30, 10 sets of 2", (30, 20, 20)),
        (("all", 30, 7, None), "all, 7 generated against 30, 3 sets of 2", (30, 7, 7)),
    ],
)
def test_a_change_of_counts_is_in_the_name(arguments, name, counts):
    protocol, *numbers = arguments
    plan = protocol_to_plan(PROTOCOLS[protocol], *numbers)
    assert plan.name == name
    assert (plan.reference, plan.generated, plan.scored) == counts


def test_a_name_speaks_only_of_what_is_measured():
    arguments = (PROTOCOLS["all"], 30, 40, None)
    assert protocol_to_plan(*arguments, metrics=("fid",)).name == "all, 40 generated against 30"
    assert protocol_to_plan(*arguments, metrics=("is",)).name == "all, 10 sets of 4"


def test_is_alone_needs_no_number_of_real_images():
    plan = protocol_to_plan(PROTOCOLS["paper-10k"], reference=359, metrics=("is",))
    assert (plan.name, plan.reference, plan.scored) == ("paper-10k", 359, 50_000)


def recorded(plan):
    counts = {"reference": {"images": plan.reference}, "generated": plan.generated}
    return {"name": plan.name, **counts, "splits": plan.sets, "scored_by_IS": plan.scored}


def test_a_recorded_score_is_named_by_the_counts_that_concern_it():
    facts = recorded(protocol_to_plan(PROTOCOLS["all"], 30, 40))
    assert facts["name"] == "all, 40 generated against 30, 10 sets of 4"
    assert [facts_to_name(score, facts) for score in ("FID", "KID(classifier)")] == ["all, 40 generated against 30"] * 2
    assert [facts_to_name(score, facts) for score in ("IS", "is", "IS(classifier)")] == ["all, 10 sets of 4"] * 3
    assert facts_to_name("FID", recorded(protocol_to_plan(PROTOCOLS["paper-5k"], 10_000))) == "paper-5k"


@pytest.mark.parametrize("facts", [{}, {"splits": 0, "scored_by_IS": 10}, {"splits": "10", "scored_by_IS": 5}])
def test_a_record_without_its_counts_keeps_its_name(facts):
    assert facts_to_name("IS", {"name": "paper-10k, 3 sets of 5", **facts}) == "paper-10k, 3 sets of 5"
    assert facts_to_name("error", {"name": "test split, by hand", **facts}) == "test split, by hand"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("paper-10k", 9_999), "'paper-10k' needs 10,000 real images and there are 9,999.*or give --images N"),
        (
            ("paper-10k", 10_000, 9_999, None, ("fid",)),
            "needs 10,000 images to score and there are 9,999.*protocol all",
        ),
        (("paper-5k", 10_000, 5_000), "needs 50,000 images to score and there are 5,000"),
        (("paper-5k", 10_000, 50, 60), "needs 60 images to score and there are 50"),
        (("all", 10), "the protocol 'all' has no number of images for a generator: give --images N"),
        (("all", 1, 20), "needs 2 real images and there are 1"),
        (("all", 10, 1), "needs 2 images to score and there are 1"),
        (("all", 10, 20, 9), "--images must be at least 10, got 9"),
    ],
)
def test_too_few_images_are_refused(arguments, message):
    name, *numbers = arguments
    with pytest.raises(ValueError, match=message):
        protocol_to_plan(PROTOCOLS[name], *numbers)


def test_an_unknown_protocol_is_said_with_those_there_are():
    with pytest.raises(ValueError, match="unknown protocol '10k'; choose one of paper-5k, paper-10k, 50k-train, all"):
        find_protocol("10k")


@pytest.mark.parametrize("score", ["FID", "IS"])
@pytest.mark.parametrize("fact", [{"statistics": "of batches of 64"}, {"generator": "not averaged"}])
def test_an_unusual_use_of_the_generator_is_in_the_name_of_a_recorded_score(fact, score):
    ((key, value),) = fact.items()
    facts = recorded(protocol_to_plan(PROTOCOLS["paper-10k"], 10_000)) | fact
    assert facts_to_name(score, facts) == f"paper-10k, {key} {value}"
    without_counts = {"name": "paper-10k", **fact}
    assert facts_to_name(score, without_counts) == f"paper-10k, {key} {value}"
