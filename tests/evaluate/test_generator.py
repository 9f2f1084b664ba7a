"""A generator's scores: their names, what they measure, their protocol, what is refused."""

import re
from dataclasses import replace

import pytest
import torch
from tests.evaluate.cases import Replay, digits, stripes

from wcgan.evaluate import evaluate_generator, features_to_moments, frechet_distance, inception_score

FID, IS, ACCURACY = "FID(classifier)", "IS(classifier)", "accuracy(classifier)"


def noise(n, labels, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (n, 1, 16, 16), dtype=torch.uint8, generator=generator)


@pytest.fixture(scope="module")
def replayed(digit_classifier):
    """Real digits of the class asked for, scored as if they were generated."""
    return evaluate_generator(Replay(digits("train")), digits("test"), 1000, digit_classifier, seed=1)


def test_every_score_is_named_after_its_features(replayed):
    assert list(replayed) == [FID, IS, ACCURACY, "protocol"]
    assert replayed["protocol"]["features"] == "classifier"


def test_real_digits_are_near_and_noise_is_far(replayed, digit_classifier):
    far = evaluate_generator(noise, digits("test"), 1000, digit_classifier)
    assert replayed[FID] < 1 < 20 < far[FID]
    assert replayed[IS] > 8 > 2 > far[IS]
    assert replayed[ACCURACY] > 0.97 > 0.2 > far[ACCURACY]


def test_one_digit_only_scores_worse_than_all_ten(replayed, digit_classifier):
    train = digits("train")
    threes = Replay(replace(train, images=train.images[train.labels == 3], labels=None))
    collapsed = evaluate_generator(lambda n, labels, seed: threes(n, None, seed), digits("test"), 500, digit_classifier)
    assert collapsed[FID] > 5 * replayed[FID]
    assert collapsed[IS] < 1.5


def test_the_scores_are_those_of_the_images_that_were_sampled(stripe_classifier):
    reference, replay = stripes(30, split="test", seed=2), Replay(stripes())
    scores = evaluate_generator(replay, reference, 50, stripe_classifier, batch=20, splits=2)
    images = torch.cat([replay(*call) for call in list(replay.calls)])
    wanted = torch.cat([labels for _, labels, _ in replay.calls[:3]])
    features, logits = stripe_classifier.predict(images)
    moments = [features_to_moments(f) for f in (features, stripe_classifier.features(reference.images))]
    assert scores[FID] == pytest.approx(frechet_distance(*moments), rel=1e-6)
    assert scores[IS] == pytest.approx(inception_score(logits, 2)[0], rel=1e-6)
    assert scores["protocol"]["IS_std"] == pytest.approx(inception_score(logits, 2)[1], rel=1e-6)
    assert scores[ACCURACY] == float((logits.argmax(1) == wanted).double().mean())


def test_the_seed_decides_every_score(stripe_classifier):
    first, again, other = (
        evaluate_generator(Replay(stripes()), stripes(30, split="test", seed=2), 50, stripe_classifier, seed=seed)
        for seed in (0, 0, 1)
    )
    assert first == again
    assert first[FID] != other[FID]


def test_images_are_asked_for_in_batches_with_labels_and_a_seed_of_their_own(stripe_classifier):
    replay = Replay(stripes())
    evaluate_generator(replay, stripes(), 50, stripe_classifier, batch=20)
    assert [n for n, _, _ in replay.calls] == [20, 20, 10]
    assert [len(labels) for _, labels, _ in replay.calls] == [20, 20, 10]
    assert len({seed for _, _, seed in replay.calls}) == 3


def test_labels_are_uniform_over_the_classes(digit_classifier):
    replay = Replay(digits("train"))
    evaluate_generator(replay, digits("test"), 2000, digit_classifier)
    counts = torch.cat([labels for _, labels, _ in replay.calls]).bincount(minlength=10)
    assert counts.sum() == 2000
    # Chi-squared with 9 degrees of freedom: 27.9 is exceeded once in a thousand seeds, and this one is fixed.
    assert float(((counts - 200.0) ** 2 / 200).sum()) < 27.9


def test_an_unconditional_generator_gets_no_labels_and_has_no_accuracy(stripe_classifier):
    replay = Replay(stripes())
    scores = evaluate_generator(replay, stripes(), 50, stripe_classifier, conditional=False)
    assert {labels for _, labels, _ in replay.calls} == {None}
    assert scores[ACCURACY] is None
    assert scores["protocol"]["labels"] is None


def test_the_protocol_says_all_that_must_be_equal(replayed, digit_classifier):
    protocol = {key: value for key, value in replayed["protocol"].items() if key != "IS_std"}
    assert protocol == {
        "features": "classifier",
        "classifier": {
            "trained_on": "digits train",
            "images": 1438,
            "tested_on": "digits test",
            "accuracy": digit_classifier.facts.accuracy,
            "weights": digit_classifier.facts.weights,
        },
        "reference": {"dataset": "digits", "split": "test", "images": 359, "fingerprint": digits("test").fingerprint},
        "generated": 1000,
        "labels": "uniform",
        "splits": 10,
        "seed": 1,
        "batch": 256,
    }


def test_a_handful_of_images_gets_fewer_splits(stripe_classifier):
    counts = (2, 5, 19, 20, 50)
    scores = [evaluate_generator(Replay(stripes()), stripes(), count, stripe_classifier) for count in counts]
    assert [s["protocol"]["splits"] for s in scores] == [1, 2, 9, 10, 10]


def test_by_default_the_classifier_comes_from_the_cache(quick, tmp_path):
    epochs = []
    options = {"device": "cpu", "settings": quick, "cache": tmp_path, "progress": lambda *done: epochs.append(done)}
    test, train = stripes(20, split="test", seed=1), stripes()
    first = evaluate_generator(Replay(train), test, 30, training=train, **options)
    second = evaluate_generator(Replay(train), test, 30, training=train, **options)
    assert first == second
    assert len(epochs) == quick.epochs
    assert first["protocol"]["classifier"]["tested_on"] == "stripes8x1 test"


def test_a_training_split_can_be_the_reference_too(quick, tmp_path):
    scores = evaluate_generator(Replay(stripes()), stripes(), 30, device="cpu", settings=quick, cache=tmp_path)
    assert scores["protocol"]["classifier"]["images"] == 36
    assert scores["protocol"]["reference"]["images"] == 40


def test_the_classifier_never_learns_from_a_test_split():
    with pytest.raises(ValueError, match=r"the split 'test' .* give its training split as training="):
        evaluate_generator(Replay(stripes()), stripes(split="test"), 30)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 1}, "count must be at least 2 images, got 1"),
        ({"batch": 0}, "batch must be at least 1 image, got 0"),
        ({"count": 5, "splits": 6}, "splits must be from 1 to the number of images, 5, got 6"),
        ({"features": "inception"}, "features must be 'classifier' or a Classifier, got 'inception'"),
        ({"reference": stripes(1)}, "must have at least 2 images, got 1"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(stripe_classifier, options, message):
    arguments = {"sample": Replay(stripes()), "reference": stripes(), "count": 50, "features": stripe_classifier}
    with pytest.raises(ValueError, match=re.escape(message)):
        evaluate_generator(**{**arguments, **options})


def test_images_of_another_size_are_refused(stripe_classifier):
    with pytest.raises(ValueError, match=r"the images are 16x16 grey, but .* trained on 8x8 grey"):
        evaluate_generator(noise, stripes(), 50, stripe_classifier)


def test_a_reference_of_another_mode_is_refused(stripe_classifier):
    with pytest.raises(ValueError, match=r"the images are 8x8 RGB, but .* trained on 8x8 grey"):
        evaluate_generator(Replay(stripes()), stripes(channels=3), 50, stripe_classifier)


def test_fewer_images_than_asked_for_are_refused(stripe_classifier):
    with pytest.raises(ValueError, match="sample must return the 50 images asked for, got 3"):
        evaluate_generator(lambda n, labels, seed: stripes(3).images, stripes(), 50, stripe_classifier)


def test_features_that_are_nan_are_refused(quick, stripe_classifier):
    broken = type(stripe_classifier)(
        stripe_classifier.network.__class__(1, 8, 2, quick.width), stripe_classifier.facts, torch.device("cpu")
    )
    broken.network.body[0][0].weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="features of 50 of 50 images are NaN or infinite"):
        evaluate_generator(Replay(stripes()), stripes(), 50, broken)
