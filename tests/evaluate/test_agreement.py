"""The figures are those of torch-fidelity and torchmetrics, on the same images and weights."""

import pytest
import torch
from tests.evaluate.cases import pictures, pictures_of, plan, stripes, write_pictures
from torch import nn

from wcgan.data import load
from wcgan.evaluate.inception import import_torchvision
from wcgan.evaluate.score import evaluate_images

import_torchvision()


class Shown(nn.Module):
    """A classifier's features, as torchmetrics asks for them."""

    def __init__(self, classifier):
        super().__init__()
        self.classifier, self.num_features = classifier, classifier.size

    def forward(self, images):
        return self.classifier.features(images)


@pytest.fixture(scope="module")
def sets():
    return stripes(60), stripes(50, seed=3)


def test_fid_is_that_of_torchmetrics(stripe_classifier, sets):
    from torchmetrics.image.fid import FrechetInceptionDistance

    metric = FrechetInceptionDistance(Shown(stripe_classifier), input_img_size=(1, 8, 8)).set_dtype(torch.float64)
    metric.update(sets[0].images, real=False)
    metric.update(sets[1].images, real=True)
    scores = evaluate_images(*sets, [stripe_classifier], plan(50, 60), metrics=("fid",))
    assert scores["FID(classifier)"] == pytest.approx(float(metric.compute()), rel=1e-4)


@pytest.mark.filterwarnings("ignore:Metric `Kernel Inception Distance` will save all extracted features")
def test_kid_is_that_of_torchmetrics(stripe_classifier, sets):
    from torchmetrics.image.kid import KernelInceptionDistance

    metric = KernelInceptionDistance(Shown(stripe_classifier), subsets=1, subset_size=50)
    images = sets[0].images[:50]
    metric.update(images, real=False)
    metric.update(sets[1].images, real=True)
    options = {"metrics": ("kid",), "kid_subset_size": 50}  # all of both: nothing is left to choose
    scores = evaluate_images(pictures_of(images), sets[1], [stripe_classifier], plan(50, 50), **options)
    assert scores["KID(classifier)"] == pytest.approx(float(metric.compute()[0]), rel=1e-3, abs=1e-6)


def test_scores_are_what_torch_fidelity_makes_of_the_same_features(stripe_classifier, sets):
    from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric
    from torch_fidelity.metric_isc import isc_features_to_metric

    features = [fid_features_to_statistics(stripe_classifier.features(each.images).double()) for each in sets]
    scores = evaluate_images(*sets, [stripe_classifier], plan(50, 60))
    fid = fid_statistics_to_metric(*features, verbose=False)["frechet_inception_distance"]
    assert scores["FID(classifier)"] == pytest.approx(fid, rel=1e-5)
    score = isc_features_to_metric(stripe_classifier.logits(sets[0].images), splits=1, shuffle=False)
    assert scores["IS(classifier)"] == pytest.approx(score["inception_score_mean"], rel=1e-6)


@pytest.mark.slow
def test_two_folders_score_what_torch_fidelitys_own_command_says(inception, weights_file, tmp_path):
    from torch_fidelity import calculate_metrics

    folders = [
        write_pictures(tmp_path / "generated", pictures(30, size=16)),
        write_pictures(tmp_path / "real", pictures(25, seed=1, size=16, brightness=40)),
    ]
    theirs = calculate_metrics(
        input1=str(folders[0]),
        input2=str(folders[1]),
        feature_extractor_weights_path=str(weights_file),
        cuda=False,
        fid=True,
        kid=True,
        isc=True,
        isc_splits=1,
        kid_subsets=100,
        kid_subset_size=20,
        batch_size=8,
        save_cpu_ram=True,
        cache=False,
        verbose=False,
    )
    ours = evaluate_images(
        *map(load, folders), [inception], plan(25, 30), metrics=["is", "fid", "kid"], kid_subset_size=20
    )
    assert ours["FID"] == pytest.approx(theirs["frechet_inception_distance"], rel=1e-3)
    assert ours["IS"] == pytest.approx(theirs["inception_score_mean"], rel=1e-4)
    noise = theirs["kernel_inception_distance_std"] / 100**0.5
    assert ours["KID"] == pytest.approx(theirs["kernel_inception_distance_mean"], abs=4 * noise)
