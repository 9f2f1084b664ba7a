"""Statistics of the real images: computed once for each content and network, and never trusted when damaged."""

from dataclasses import replace

import pytest
import torch
from tests.evaluate.cases import stripes

from wcgan.evaluate.fid import features_to_moments
from wcgan.evaluate.image_sets import content_order
from wcgan.evaluate.reference import load_reference


class Counted:
    """A classifier that counts the images it is shown."""

    def __init__(self, classifier, fingerprint=None):
        self.classifier, self.shown = classifier, 0
        self.name, self.size, self.classes = classifier.name, classifier.size, classifier.classes
        self.device, self.batch = classifier.device, classifier.batch
        self.fingerprint = fingerprint or classifier.fingerprint

    def predict(self, images):
        self.shown += len(images)
        return self.classifier.predict(images)


@pytest.fixture
def load(stripe_classifier, tmp_path):
    """Loads statistics with a fresh cache -> (statistics, images shown to the network for them)."""

    def call(dataset=None, count=30, metrics=("fid",), fingerprint=None, **options):
        network = Counted(stripe_classifier, fingerprint)
        return load_reference(dataset or stripes(), count, network, metrics, cache=tmp_path, **options), network.shown

    return call


def test_statistics_are_those_of_the_images(load, stripe_classifier):
    reference, _ = load(count=40, metrics=("fid", "kid"))
    features = stripe_classifier.features(stripes().images)
    mean, covariance = features_to_moments(features)
    torch.testing.assert_close(reference.moments.mean, mean)
    torch.testing.assert_close(reference.moments.covariance, covariance)
    torch.testing.assert_close(reference.factor @ reference.factor.mT, covariance)
    torch.testing.assert_close(reference.features, features[content_order(stripes().images)])


def test_statistics_are_computed_once_and_come_back_the_same(load):
    (first, shown), (second, shown_again) = load(metrics=("fid", "kid")), load(metrics=("fid", "kid"))
    assert (shown, shown_again) == (30, 0)
    assert torch.equal(first.moments.covariance, second.moments.covariance)
    assert torch.equal(first.features, second.features)
    assert load(metrics=("fid",))[0].features is None
    kept, shown = load(metrics=("pr",))  # KID's features are those of precision and recall
    assert (shown, kept.moments) == (0, None)
    assert torch.equal(kept.features, first.features)


def test_other_images_counts_and_networks_have_statistics_of_their_own(load):
    load()
    assert load(stripes(seed=7))[1] == 30
    assert load(count=29)[1] == 29
    assert load(fingerprint="another network")[1] == 30
    assert load(metrics=("kid",))[1] == 30
    assert load(replace(stripes(), name="another name"))[1] == 0


def test_neither_batches_nor_the_order_of_the_images_change_them(load):
    dataset = stripes()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    shuffled = replace(dataset, images=dataset.images[order], fingerprint="shuffled")
    first, second = load(count=25)[0], load(shuffled, count=25, batch=7)[0]
    torch.testing.assert_close(first.moments.covariance, second.moments.covariance, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("suffix", [".safetensors", ".json"])
@pytest.mark.parametrize("damage", [b"", b"{}", None], ids=["empty", "other", "missing"])
def test_damaged_statistics_are_computed_again(load, tmp_path, suffix, damage):
    good, _ = load()
    (file,) = (tmp_path / "statistics").glob(f"*{suffix}")
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage)
    again, shown = load()
    assert shown == 30
    assert torch.equal(again.moments.covariance, good.moments.covariance)
    assert load()[1] == 0


def test_progress_is_told_to_the_end(load):
    told = []
    load(batch=16, progress=lambda *state: told.append(state))
    assert told == [("stripes8x1 train through the classifier", done, 30) for done in (16, 30)]
