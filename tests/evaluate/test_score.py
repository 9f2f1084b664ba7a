"""Scores: their names, what they measure, their protocol, what is refused."""

import re
from dataclasses import replace

import pytest
import torch
from tests.evaluate.cases import Replay, digits, pictures, pictures_of, plan, stripes

import wcgan
from wcgan.evaluate.fid import features_to_moments, frechet_distance
from wcgan.evaluate.metrics import inception_score, precision_recall
from wcgan.evaluate.protocol import PROTOCOLS, protocol_to_plan
from wcgan.evaluate.score import evaluate_generator, evaluate_images

FID, IS, KID, ACCURACY = "FID(classifier)", "IS(classifier)", "KID(classifier)", "accuracy(classifier)"


def noise(n, labels, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (n, 1, 16, 16), dtype=torch.uint8, generator=generator)


def score_digits(sample, classifier, count=1000, **options):
    chosen = protocol_to_plan(PROTOCOLS["paper-10k"], 359, images=count)
    return evaluate_generator(sample, digits("test"), [classifier], chosen, classes=10, **options)


@pytest.fixture(scope="module")
def replayed(digit_classifier, tmp_path_factory):
    """Real digits of the class asked for, scored as if they were generated."""
    return score_digits(Replay(digits("train")), digit_classifier, seed=1, cache=tmp_path_factory.mktemp("cache"))


def test_every_score_is_named_after_its_features(replayed):
    assert list(replayed) == [FID, IS, ACCURACY, "protocol", "seconds", "device", "versions"]
    assert replayed["protocol"]["features"] == "classifier"


def test_real_digits_are_near_and_noise_is_far(replayed, digit_classifier):
    far = score_digits(noise, digit_classifier)
    assert replayed[FID] < 1 < 20 < far[FID]
    assert replayed[IS] > 8 > 2 > far[IS]
    assert replayed[ACCURACY] > 0.97 > 0.2 > far[ACCURACY]


def test_one_digit_only_scores_worse_than_all_ten(replayed, digit_classifier):
    train = digits("train")
    threes = Replay(replace(train, images=train.images[train.labels == 3], labels=None))
    collapsed = score_digits(lambda n, labels, seed: threes(n, None, seed), digit_classifier, 500)
    assert collapsed[FID] > 5 * replayed[FID]
    assert collapsed[IS] < 1.5


@pytest.mark.parametrize(("generated", "scored"), [(50, 300), (300, 48)])
def test_each_score_takes_the_images_its_protocol_has(generated, scored, stripe_classifier):
    replay, reference = Replay(stripes()), stripes(30, split="test", seed=2)
    chosen = plan(30, generated, sets=4, scored=scored)
    scores = evaluate_generator(replay, reference, [stripe_classifier], chosen, classes=2, batch=40)
    images = torch.cat([replay(*call) for call in list(replay.calls)])[:300]
    wanted = torch.cat([labels for _, labels, _ in replay.calls[:2]])[:300]
    features, logits = stripe_classifier.predict(images)
    moments = [features_to_moments(f) for f in (features[:generated], stripe_classifier.features(reference.images))]
    assert scores[FID] == pytest.approx(frechet_distance(*moments), rel=1e-6)
    mean, deviation = inception_score(logits[:scored], 4)
    assert (scores[IS], scores["protocol"]["std"][IS]) == (
        pytest.approx(mean, rel=1e-6),
        pytest.approx(deviation, rel=1e-5),
    )
    assert scores[ACCURACY] == float((logits.argmax(1) == wanted).double().mean())


def test_precision_and_recall_are_not_exchanged(stripe_classifier):
    images, real = stripes(60, seed=1), stripes(40)
    across = replace(images, images=images.images[images.labels == 0], labels=None)
    scores = evaluate_images(across, real, [stripe_classifier], plan(40, 30), metrics=("pr",))
    precision, recall = precision_recall(*(stripe_classifier.features(each.images) for each in (across, real)))
    assert recall < precision  # one of the two classes
    assert (scores["precision(classifier)"], scores["recall(classifier)"]) == (precision, recall)


def test_progress_counts_the_images_that_are_scored(stripe_classifier):
    told = []
    options = {"batch": 16, "progress": lambda *what: told.append(what)}
    evaluate_images(stripes(), stripes(), [stripe_classifier], plan(40, 40), **options)
    scored = [(done, there) for what, done, there in told if what == "images to score"]
    assert scored == [(16, 40), (32, 40), (40, 40)]


def test_a_set_against_itself_is_at_distance_zero(digit_classifier, inception):
    test = digits("test")
    assert evaluate_images(test, test, [digit_classifier], plan(359, 359), metrics=("fid",))[FID] < 1e-12
    images = pictures_of(pictures(6))
    scores = evaluate_images(images, images, [inception], plan(6, 6), metrics=("fid", "kid"), kid_subset_size=6)
    spread = float(features_to_moments(inception.predict(images.images)[0]).covariance.trace())
    assert scores["FID"] < 1e-12 * spread
    assert scores["protocol"]["std"]["KID"] == pytest.approx(0, abs=1e-10)


def test_the_seed_decides_every_score(stripe_classifier):
    first, again, other = (
        evaluate_generator(Replay(stripes()), stripes(30), [stripe_classifier], plan(30, 50), classes=2, seed=seed)
        for seed in (0, 0, 1)
    )
    assert [first[name] for name in (FID, IS)] == [again[name] for name in (FID, IS)]
    assert first[FID] != other[FID]


@pytest.mark.parametrize("batch", [1, 13, 200])
def test_the_batch_changes_no_score(stripe_classifier, batch):
    whole, cut = (
        evaluate_generator(Replay(stripes()), stripes(30), [stripe_classifier], plan(30, 90), classes=2, batch=size)
        for size in (256, batch)
    )
    for name in (FID, IS, ACCURACY):
        assert cut[name] == pytest.approx(whole[name], rel=1e-5)


def test_without_labels_there_is_no_accuracy(stripe_classifier):
    scores = evaluate_generator(Replay(stripes()), stripes(), [stripe_classifier], plan(40, 50))
    assert ACCURACY not in scores
    assert scores["protocol"]["labels"] is None


def test_the_protocol_says_all_that_must_be_equal(replayed, digit_classifier):
    protocol = {key: value for key, value in replayed["protocol"].items() if key != "std"}
    assert protocol == {
        "name": "paper-10k, 1,000 generated against 359, 10 sets of 100",
        "features": "classifier",
        "classifier": {
            "trained_on": "digits train",
            "images": 1438,
            "tested_on": "digits test",
            "accuracy": digit_classifier.facts.accuracy,
            "weights": digit_classifier.facts.weights,
        },
        "reference": {
            "dataset": "digits",
            "split": "test",
            "images": 359,
            "of": 359,
            "fingerprint": digits("test").fingerprint,
        },
        "labels": "uniform",
        "generated": 1000,
        "splits": 10,
        "scored_by_IS": 1000,
        "seed": 1,
    }
    assert replayed["versions"] == {"wcgan": wcgan.__version__, "torch": torch.__version__}
    assert replayed["seconds"] > 0


def test_two_networks_score_the_same_images_side_by_side(stripe_classifier, inception):
    images = stripes(6)
    both = evaluate_images(images, stripes(5, seed=1), [inception, stripe_classifier], plan(5, 6))
    assert list(both)[:4] == ["FID", "IS", FID, IS]
    assert both["protocol"]["features"] == "inception and classifier"
    assert both["protocol"]["inception"] == {"weights": inception.fingerprint}
    alone = evaluate_images(images, stripes(5, seed=1), [stripe_classifier], plan(5, 6))
    assert (both[FID], both[IS]) == (pytest.approx(alone[FID]), pytest.approx(alone[IS]))
    assert both["versions"]["torch-fidelity"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": ("fid", "ppl")}, "metrics must be some of is, fid, kid, pr, got ppl"),
        ({"metrics": ()}, "metrics must be some of is, fid, kid, pr, got none"),
        ({"batch": 0}, "batch must be at least 1 image, got 0"),
        ({"metrics": ("kid",)}, "KID draws subsets of 1,000 images, and 40 are scored against 40"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(stripe_classifier, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        evaluate_images(stripes(), stripes(), [stripe_classifier], plan(40, 40), **options)


def test_too_few_images_for_a_neighbourhood_are_refused_before_any_is_looked_at(stripe_classifier):
    looked = []
    options = {"metrics": ("pr",), "progress": lambda *what: looked.append(what)}
    with pytest.raises(ValueError, match=r"need more than 3 images of each set, and 40 are scored against 3$"):
        evaluate_images(stripes(), stripes(), [stripe_classifier], plan(3, 40), **options)
    assert looked == []


@pytest.mark.parametrize(
    ("other", "message"),
    [(stripes(size=16), "16x16 grey and those of stripes8x1 8x8 grey"), (stripes(channels=3), "8x8 RGB and those of")],
    ids=["size", "mode"],
)
def test_sets_of_different_sizes_or_modes_are_refused(inception, other, message):
    with pytest.raises(ValueError, match=f"{message}.*--resolution and --channels"):
        evaluate_images(other, stripes(), [inception], plan(40, 40))


def test_generated_images_of_another_size_are_refused(stripe_classifier):
    with pytest.raises(ValueError, match=r"the images are 16x16 grey, but .* trained on 8x8 grey"):
        evaluate_generator(noise, stripes(), [stripe_classifier], plan(40, 50))


def test_features_that_are_nan_are_refused(quick, stripe_classifier):
    broken = type(stripe_classifier)(
        stripe_classifier.network.__class__(1, 8, 2, quick.width), stripe_classifier.facts, torch.device("cpu")
    )
    broken.network.body[0][0].weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="features of 40 of 40 images are NaN or infinite"):
        evaluate_images(stripes(), stripes(), [broken], plan(40, 40))
