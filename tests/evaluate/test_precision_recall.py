"""Precision and recall against an oracle in NumPy, torch-fidelity's, and what must hold for any two sets."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from wcgan.evaluate import metrics
from wcgan.evaluate.inception import import_torchvision
from wcgan.evaluate.metrics import precision_recall


def features(n, f=8, seed=0, shift=0.0, scale=1.0):
    drawn = torch.randn(n, f, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return scale * drawn + shift


def oracle(generated, real, k):
    """The definition, one image at a time."""

    def share(points, centres):
        reach = [sorted(np.linalg.norm(centres - c, axis=1))[k] for c in centres]
        near = [any(np.linalg.norm(p - c) <= r for c, r in zip(centres, reach, strict=True)) for p in points]
        return sum(near) / len(points)

    return share(generated, real), share(real, generated)


CASES = {
    "alike": (features(60), features(50, seed=1)),
    "narrow": (features(60, scale=0.3), features(50, seed=1)),
    "wide": (features(40, scale=3.0), features(50, seed=1)),
    "beside": (features(30, shift=1.0), features(50, seed=1)),
}


@pytest.mark.parametrize("neighbours", [1, 3, 5])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chunk", [7, 1000])
def test_the_shares_are_those_of_the_definition(name, neighbours, chunk, monkeypatch):
    monkeypatch.setattr(metrics, "CHUNK", chunk)
    generated, real = CASES[name]
    assert precision_recall(generated, real, neighbours) == oracle(generated.numpy(), real.numpy(), neighbours)


def test_features_in_float32_far_from_zero_keep_their_neighbours():
    generated, real = ((each + 3000).float() for each in CASES["alike"])
    assert precision_recall(generated, real) == oracle(generated.double().numpy(), real.double().numpy(), 3)


class ThreadRank:
    """One of two threads that share the work as two processes do."""

    count, barrier, handed_in = 2, threading.Barrier(2), {}

    def __init__(self, index):
        self.index = index

    def total(self, value):
        self.handed_in[self.index] = value
        self.barrier.wait(10)
        total = sum(self.handed_in.values())
        self.barrier.wait(10)
        return total


@pytest.mark.parametrize("name", CASES)
def test_two_processes_find_the_shares_of_one(name, monkeypatch):
    monkeypatch.setattr(metrics, "CHUNK", 7)
    with ThreadPoolExecutor(2) as threads:
        shares = list(threads.map(lambda index: precision_recall(*CASES[name], rank=ThreadRank(index)), range(2)))
    assert shares == 2 * [precision_recall(*CASES[name])]


def test_the_shares_are_torch_fidelitys():
    import_torchvision()
    from torch_fidelity.metric_prc import prc_features_to_metric

    generated, real = features(300, shift=0.3).float(), features(250, seed=1).float()
    theirs = prc_features_to_metric(generated, real, prc_neighborhood=3, verbose=False)
    precision, recall = precision_recall(generated, real)
    assert 0.1 < recall < precision < 1 or 0.1 < precision < recall < 1
    assert (precision, recall) == pytest.approx((theirs["precision"], theirs["recall"]), abs=0.5 / 250)


def test_fewer_kinds_of_images_cost_recall_and_not_precision():
    real = torch.cat([features(200, f=2, seed=1), features(200, f=2, seed=2, shift=50.0)])
    precision, recall = precision_recall(features(200, f=2, seed=3), real)
    assert precision > 0.9
    assert 0.4 < recall <= 0.5


def test_images_that_look_like_none_cost_precision_and_not_recall():
    real = features(50, seed=1)
    precision, recall = precision_recall(torch.cat([real, features(150, seed=2, shift=50.0)]), real)
    assert (precision, recall) == (0.25, 1.0)


def test_a_set_is_all_of_itself():
    images = features(40)
    assert precision_recall(images, images) == (1.0, 1.0)


@pytest.mark.parametrize(("n", "f"), [(30, 64), (37, 2048), (501, 8)])
def test_copies_of_an_image_lie_in_its_neighbourhood_whatever_is_rounded(n, f):
    real = features(n, f).repeat(5, 1)
    for scale in (1.0, 1e3):
        assert precision_recall(scale * real[:n].repeat(3, 1), scale * real) == (1.0, 1.0)


def test_images_without_any_features_are_copies_of_each_other():
    assert precision_recall(torch.zeros(5, 8), torch.zeros(6, 8)) == (1.0, 1.0)


def test_exchanging_the_sets_exchanges_the_shares():
    generated, real = CASES["narrow"]
    assert precision_recall(real, generated) == precision_recall(generated, real)[::-1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((features(3), features(9)), "need more than 3 images of each set, got 3"),
        ((features(9), features(9), 0), "at least 1 neighbour, got 0"),
        ((features(9), features(9, f=7)), r"of one network, got shapes \(9, 8\) and \(9, 7\)"),
        ((features(9), features(9) * torch.nan), "NaN or infinite"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        precision_recall(*arguments)
