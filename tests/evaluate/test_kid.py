"""The kernel distance against an oracle in NumPy, torch-fidelity's, and what an unbiased estimate must do."""

import numpy as np
import pytest
import torch

from wcgan.evaluate.inception import import_torchvision
from wcgan.evaluate.metrics import kernel_distance


def features(n, f=16, seed=0, shift=0.0):
    return torch.randn(n, f, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + shift


def oracle(x, y):
    """The definition, one pair of images at a time."""
    n, f = x.shape

    def k(a, b):
        return (float(np.dot(a, b)) / f + 1) ** 3

    same = sum(k(a[i], a[j]) for a in (x, y) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    return same - 2 * sum(k(a, b) for a in x for b in y) / n**2


def test_a_subset_of_all_images_gives_the_definition():
    x, y = features(12), features(12, seed=1, shift=0.3)
    mean, deviation = kernel_distance(x, y, subsets=3, size=12)
    assert mean == pytest.approx(oracle(x.numpy(), y.numpy()), rel=1e-12)
    assert deviation == pytest.approx(0.0, abs=1e-12)


def test_two_halves_of_one_set_are_at_distance_zero_on_average():
    values = []
    for seed in range(200):
        both = features(40, f=4, seed=seed)
        values.append(kernel_distance(both[:20], both[20:], subsets=1, size=20)[0])
    error = float(np.std(values)) / len(values) ** 0.5
    assert abs(np.mean(values)) < 3 * error
    assert error < 0.03  # pairs of an image with itself would add 2 (E k(x, x) - E k(x, x')) / 20, more than 0.5
    assert min(values) < 0 < max(values)


def test_the_distance_grows_with_the_shift_between_the_sets():
    x = features(200)
    near, far = (kernel_distance(x, features(200, seed=1, shift=s), subsets=10, size=100)[0] for s in (0.1, 0.5))
    assert abs(kernel_distance(x, features(200, seed=1), subsets=10, size=100)[0]) < near < far


def test_the_distance_is_torch_fidelitys_up_to_the_choice_of_subsets():
    import_torchvision()
    from torch_fidelity.metric_kid import kid_features_to_metric

    x, y = features(300).float(), features(300, seed=1, shift=0.2).float()
    theirs = kid_features_to_metric(x, y, kid_subsets=50, kid_subset_size=100, rng_seed=1, verbose=False)
    mean, deviation = kernel_distance(x, y, subsets=50, size=100)
    noise = theirs["kernel_inception_distance_std"] / 50**0.5
    assert abs(mean - theirs["kernel_inception_distance_mean"]) < 3 * noise
    assert deviation == pytest.approx(theirs["kernel_inception_distance_std"], rel=0.3)
    whole = kid_features_to_metric(x, y, kid_subsets=1, kid_subset_size=300, rng_seed=1, verbose=False)
    assert kernel_distance(x, y, 1, 300)[0] == pytest.approx(whole["kernel_inception_distance_mean"], rel=1e-4)


def test_a_set_is_at_distance_zero_from_itself_on_average():
    x, subsets = features(400, f=4), 200
    mean, deviation = kernel_distance(x, x, subsets=subsets, size=20)
    assert deviation / subsets**0.5 < 0.03
    assert abs(mean) < 3 * deviation / subsets**0.5  # subsets of the same images would take 0.5 off, as above


def test_the_deviation_is_that_of_the_subsets_themselves():
    x, y = features(50), features(50, seed=1)
    first, _ = kernel_distance(x, y, subsets=1, size=10)
    mean, deviation = kernel_distance(x, y, subsets=2, size=10)
    assert deviation == pytest.approx(abs(first - mean), rel=1e-9)
    assert deviation > 1e-3


def test_the_distance_of_features_in_float32_is_computed_in_float64():
    x, y = features(50).float(), features(50, seed=1).float()
    assert kernel_distance(x, y, subsets=3, size=20) == kernel_distance(x.double(), y.double(), subsets=3, size=20)


def test_the_seed_decides_the_subsets():
    x, y = features(50), features(50, seed=1)
    first, again, other = (kernel_distance(x, y, subsets=5, size=10, seed=seed) for seed in (0, 0, 1))
    assert first == again != other


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((features(9), features(20), 5, 10), "subsets of 10 images and one of the sets has 9.*--kid-subset-size 9"),
        ((features(9), features(9, f=3), 5, 5), r"one network, got shapes \(9, 16\) and \(9, 3\)"),
        ((features(9), features(9) * float("nan"), 5, 5), "NaN or infinite"),
        ((features(9), features(9), 0, 5), "at least 1 subset of at least 2 images, got 0 of 5"),
        ((features(9), features(9), 1, 1), "at least 1 subset of at least 2 images, got 1 of 1"),
    ],
)
def test_what_has_no_distance_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        kernel_distance(*arguments)
