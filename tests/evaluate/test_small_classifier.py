"""The small classifier: how good it is, that a seed decides it, what it refuses."""

from dataclasses import replace

import pytest
import torch
from tests.evaluate.cases import digits, stripes
from torch.nn.functional import pad
from torch.optim.optimizer import register_optimizer_step_pre_hook

from wcgan.evaluate.small_classifier import ClassifierSettings, pixels_to_input
from wcgan.evaluate.train_small_classifier import _shifted, train_small_classifier


def test_it_knows_97_percent_of_the_digits_it_has_not_seen(digit_classifier):
    test = digits("test")
    predicted = digit_classifier.logits(test.images).argmax(1)
    accuracy = float((predicted == test.labels).double().mean())
    assert accuracy >= 0.97
    assert digit_classifier.facts.accuracy == accuracy


@pytest.mark.parametrize(("size", "channels"), [(16, 1), (28, 1), (32, 3), (64, 3)])
def test_it_has_50_to_100_thousand_parameters(size, channels):
    settings = ClassifierSettings(epochs=1, batch=2)
    classifier = train_small_classifier(stripes(2, size, channels), stripes(2, size, channels, "test"), settings)
    assert 50_000 <= sum(p.numel() for p in classifier.network.parameters()) <= 100_000


def test_it_says_what_it_was_trained_on_and_tested_with(digit_classifier):
    facts = digit_classifier.facts
    assert (facts.trained_on, facts.tested_on) == ("digits train", "digits test")
    assert (facts.images, facts.shape, facts.classes) == (1438, (1, 16, 16), tuple("0123456789"))


def test_features_and_logits_have_a_row_per_image_in_float32(digit_classifier):
    images = digits("test").images[:5]
    features, logits = digit_classifier.features(images), digit_classifier.logits(images)
    assert (tuple(features.shape), features.dtype) == ((5, digit_classifier.size), torch.float32)
    assert (tuple(logits.shape), logits.dtype) == ((5, 10), torch.float32)


def test_an_images_features_do_not_depend_on_the_others_in_its_batch(digit_classifier):
    images = digits("test").images[:40]
    together = digit_classifier.features(images)
    alone = torch.cat([digit_classifier.features(image[None]) for image in images])
    torch.testing.assert_close(alone, together, rtol=1e-5, atol=1e-5)


def test_black_is_minus_1_to_the_network_and_white_1():
    assert pixels_to_input(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-1, 1]


def test_no_images_give_no_features(stripe_classifier):
    assert tuple(stripe_classifier.features(stripes().images[:0]).shape) == (0, stripe_classifier.size)


def test_the_seed_decides_the_weights(quick):
    first, again, other = (
        train_small_classifier(stripes(), settings=replace(quick, seed=seed), device="cpu").facts.weights
        for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other


def test_the_weights_do_not_depend_on_the_callers_random_numbers(quick, stripe_classifier):
    torch.manual_seed(1234)
    again = train_small_classifier(stripes(), stripes(20, split="test", seed=1), quick, device="cpu")
    assert again.facts.weights == stripe_classifier.facts.weights


def test_autocast_changes_neither_weights_nor_predictions(quick, stripe_classifier):
    images = stripes().images
    with torch.autocast("cpu", torch.bfloat16):
        again = train_small_classifier(stripes(), stripes(20, split="test", seed=1), quick, device="cpu")
        features, logits = stripe_classifier.predict(images)
    assert again.facts.weights == stripe_classifier.facts.weights
    assert torch.equal(features, stripe_classifier.features(images))
    assert torch.equal(logits, stripe_classifier.logits(images))


def test_training_leaves_the_callers_random_numbers_as_they_were(quick):
    torch.manual_seed(1234)
    before = torch.get_rng_state()
    train_small_classifier(stripes(), settings=quick, device="cpu")
    assert torch.equal(before, torch.get_rng_state())


def test_without_a_test_split_every_tenth_image_is_kept_out(quick):
    data = stripes(40)
    flipped = data.labels.clone()
    flipped[9::10] = 1 - flipped[9::10]
    usual = train_small_classifier(data, settings=quick, device="cpu")
    other = train_small_classifier(replace(data, labels=flipped), settings=quick, device="cpu")
    assert usual.facts.images == 36
    assert usual.facts.weights == other.facts.weights
    assert other.facts.accuracy == pytest.approx(1 - usual.facts.accuracy)


def test_training_images_are_shifted_each_way_by_up_to_a_pixel_and_their_border_fills_the_gap():
    images = torch.arange(200 * 2 * 4 * 5).view(200, 2, 4, 5)
    shifted = _shifted(images, 1, torch.Generator().manual_seed(0))
    wide = pad(images.double(), (1, 1, 1, 1), mode="replicate")
    windows = torch.stack([wide[..., row : row + 4, column : column + 5] for row in range(3) for column in range(3)])
    matches = (windows == shifted).flatten(2).all(2)  # (9, n)
    assert (matches.sum(0) == 1).all()
    assert matches.any(1).all()


def test_the_rate_rises_for_three_tenths_of_the_steps_and_falls_to_0(quick):
    rates = []
    hook = register_optimizer_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    train_small_classifier(stripes(40), settings=replace(quick, epochs=5, batch=9, learning_rate=0.01), device="cpu")
    hook.remove()
    assert rates[:6] == pytest.approx(torch.linspace(0, 0.01, 7)[1:].tolist())  # of 20 steps: 36 images are learnt
    assert [*rates[6:], 0] == pytest.approx(torch.linspace(0.01, 0, 15).tolist(), abs=1e-8)


def test_colour_images_are_learnt_too():
    data, test = stripes(60, 32, 3), stripes(20, 32, 3, "test", seed=1)
    classifier = train_small_classifier(data, test, ClassifierSettings(width=4, epochs=6, batch=10), device="cpu")
    assert classifier.facts.accuracy == 1.0


def test_progress_is_told_of_each_epoch(quick):
    seen = []
    train_small_classifier(stripes(), settings=quick, device="cpu", progress=lambda done, of: seen.append((done, of)))
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("size", "channels", "words"),
    [(16, 1, "16x16 grey"), (8, 3, "8x8 RGB"), (8, 4, "8x8 RGBA"), (8, 2, "8x8 2-channel")],
)
def test_images_of_another_size_or_mode_are_refused_with_both(stripe_classifier, size, channels, words):
    with pytest.raises(ValueError, match=rf"the images are {words}, but .* trained on 8x8 grey images"):
        stripe_classifier.features(stripes(4, size, channels).images)


@pytest.mark.parametrize("images", [torch.zeros(2, 1, 8, 8), torch.zeros(1, 8, 8, dtype=torch.uint8), [1, 2]])
def test_anything_but_a_batch_of_uint8_images_is_refused(stripe_classifier, images):
    with pytest.raises(ValueError, match="images must be a uint8 tensor"):
        stripe_classifier.features(images)


def test_a_dataset_without_labels_is_refused():
    with pytest.raises(ValueError, match="has no labels"):
        train_small_classifier(replace(stripes(), labels=None, classes=()))


def test_a_dataset_with_one_class_is_refused():
    with pytest.raises(ValueError, match=r"has 1 class: a classifier needs at least 2"):
        train_small_classifier(replace(stripes(), labels=torch.zeros(40, dtype=torch.int64), classes=("only",)))


def test_a_dataset_with_too_few_images_is_refused():
    with pytest.raises(ValueError, match=r"has 9 images: a classifier needs at least 10"):
        train_small_classifier(stripes(9))


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (replace(stripes(split="test"), labels=None), "no labelled images in its split 'test'"),
        (replace(stripes(split="test"), classes=("a", "b")), "must be splits of one dataset"),
        (stripes(4, size=16, split="test"), "load both at one resolution"),
    ],
)
def test_a_test_split_that_does_not_match_is_refused(test, message):
    with pytest.raises(ValueError, match=message):
        train_small_classifier(stripes(), test)


@pytest.mark.parametrize(
    ("field", "value"), [("width", 0), ("epochs", 0), ("batch", 1), ("shift", -1), ("learning_rate", 0.0)]
)
def test_a_setting_out_of_range_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=f"^{field} must be .*, got {value}"):
        ClassifierSettings(**{field: value})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(quick):
    with pytest.raises(ValueError, match="there is no GPU cuda"):
        train_small_classifier(stripes(), settings=quick, device="cuda")
