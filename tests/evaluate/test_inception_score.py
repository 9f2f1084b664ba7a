"""The formula of the Inception Score at its two ends, in between, and in splits."""

import math

import pytest
import torch

from wcgan.evaluate.metrics import RunningInceptionScore, inception_score


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_one_hot_predictions_over_all_classes_score_the_number_of_classes(classes):
    logits = torch.full((classes, classes), -math.inf).fill_diagonal_(0.0)
    assert inception_score(logits, splits=1)[0] == pytest.approx(classes, rel=1e-12)


def test_one_hot_predictions_of_one_class_score_one():
    logits = torch.zeros(20, 10)
    logits[:, 3] = 1e4
    assert inception_score(logits, splits=1)[0] == pytest.approx(1.0, rel=1e-12)


def test_uniform_predictions_score_one():
    assert inception_score(torch.zeros(50, 10), splits=5) == (pytest.approx(1.0, rel=1e-12), 0.0)


def test_the_score_is_the_exponential_of_the_mean_divergence_from_the_marginal():
    logits = torch.randn(40, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = logits.softmax(1)
    divergence = (p * (p.log() - p.mean(0).log())).sum(1)
    assert inception_score(logits, splits=1)[0] == pytest.approx(math.exp(divergence.mean()), rel=1e-12)


def test_splits_are_consecutive_and_give_mean_and_deviation():
    first, second = 1e4 * torch.eye(4), torch.zeros(4, 4)
    mean, deviation = inception_score(torch.cat([first, second]), splits=2)
    assert mean == pytest.approx((4 + 1) / 2, rel=1e-12)
    assert deviation == pytest.approx(1.5, rel=1e-12)


def test_every_image_counts_where_the_splits_do_not_divide_them():
    logits = torch.randn(11, 3, generator=torch.Generator().manual_seed(0))
    changed = logits.clone()
    changed[-1] += torch.tensor([5.0, 0.0, 0.0])
    assert inception_score(logits, splits=3)[0] != inception_score(changed, splits=3)[0]


@pytest.mark.parametrize(("n", "splits"), [(10, 3), (11, 3), (23, 4), (7, 7)])
def test_split_k_begins_at_image_k_n_over_splits(n, splits):
    logits = torch.randn(n, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts = [logits[k * n // splits : (k + 1) * n // splits].softmax(1) for k in range(splits)]
    scores = [math.exp((p * (p.log() - p.mean(0).log())).sum(1).mean()) for p in parts]
    deviation = math.sqrt(sum((score - sum(scores) / splits) ** 2 for score in scores) / splits)
    expected = pytest.approx((sum(scores) / splits, deviation), rel=1e-11, abs=1e-14)
    assert inception_score(logits, splits) == expected


def test_a_constant_added_to_an_images_logits_changes_nothing():
    logits = torch.randn(30, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert inception_score(logits + 7, splits=3)[0] == pytest.approx(inception_score(logits, splits=3)[0], rel=1e-12)


def test_the_score_of_predictions_in_float32_is_computed_in_float64():
    logits = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    assert inception_score(logits, splits=4) == inception_score(logits.double(), splits=4)


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_images_are_refused(n):
    with pytest.raises(ValueError, match=f"at least 2 images, got {n}"):
        inception_score(torch.zeros(n, 10), splits=1)


@pytest.mark.parametrize("splits", [0, 6])
def test_splits_that_cannot_be_filled_are_refused(splits):
    with pytest.raises(ValueError, match=f"from 1 to the number of images, 5, got {splits}"):
        inception_score(torch.zeros(5, 10), splits)


def test_predictions_that_are_nan_are_refused_with_their_number():
    logits = torch.zeros(5, 10)
    logits[2:4, 0] = float("nan")
    with pytest.raises(ValueError, match="predictions for 2 of 5 images are NaN"):
        inception_score(logits, splits=1)


@pytest.mark.parametrize("batch", [1, 4, 100])
def test_predictions_may_arrive_in_any_batches_and_order(batch):
    logits = torch.randn(23, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    running = RunningInceptionScore(23, 6, splits=4)
    for start in reversed(range(0, 23, batch)):
        running.update(start, logits[start : start + batch])
    assert running.score() == pytest.approx(inception_score(logits, splits=4), rel=1e-12)
