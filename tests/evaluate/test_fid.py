"""The Frechet distance against closed forms and an independent matrix square root, and its streaming moments."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.linalg
import torch

from wcgan.evaluate.fid import (
    Moments,
    RunningMoments,
    _factor_by_eigenvectors,
    _trace_by_eigenvalues,
    _trace_by_singular_values,
    covariance_to_factor,
    features_to_moments,
    frechet_distance,
)

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def features(n, f, seed=0, offset=0.0):
    """Correlated features of different scales."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(f, f, generator=generator, dtype=torch.float64)
    return torch.randn(n, f, generator=generator, dtype=torch.float64) @ mixing + offset


class TwoRanks:
    """Sums what two threads hand in, as `Rank.total` does for two processes."""

    count = 2

    def __init__(self):
        self.handed_in, self.barrier = {}, threading.Barrier(2)

    def total(self, value):
        self.handed_in[threading.get_ident()] = value
        self.barrier.wait(10)
        total = sum(self.handed_in.values())
        self.barrier.wait(10)
        return total


def by_sqrtm(first, second):
    """The textbook formula, with scipy's square root of a matrix that is not symmetric."""
    root = scipy.linalg.sqrtm((first.covariance @ second.covariance).numpy())
    difference = (first.mean - second.mean).numpy()
    return float(difference @ difference + np.trace(first.covariance + second.covariance) - 2 * np.trace(np.real(root)))


@pytest.mark.parametrize(("n", "f"), [(200, 16), (2000, 64), (2, 1)])
def test_a_set_is_at_distance_zero_from_itself(n, f):
    moments = features_to_moments(features(n, f))
    assert frechet_distance(moments, moments) <= 1e-13 * float(moments.covariance.trace())


def test_a_set_of_fewer_images_than_features_is_at_distance_zero_from_itself():
    moments = features_to_moments(features(10, 64))
    assert frechet_distance(moments, moments) <= 1e-13 * float(moments.covariance.trace())


@pytest.mark.parametrize("seed", range(8))
def test_rounding_makes_no_distance_negative(seed):
    moments = features_to_moments(features(200, 16, seed))
    assert frechet_distance(moments, moments) >= 0


def test_moments_in_float32_are_computed_with_in_float64():
    narrow = [Moments(*(part.float() for part in features_to_moments(features(100, 12, seed)))) for seed in (0, 1)]
    wide = [Moments(*(part.double() for part in moments)) for moments in narrow]
    assert frechet_distance(*narrow) == frechet_distance(*wide)


def test_gaussians_on_a_line_follow_the_closed_form():
    first = Moments(torch.tensor([1.0]).double(), torch.tensor([[9.0]]).double())
    second = Moments(torch.tensor([5.0]).double(), torch.tensor([[4.0]]).double())
    assert frechet_distance(first, second) == pytest.approx((1 - 5) ** 2 + (3 - 2) ** 2, rel=1e-13)


def test_gaussians_with_common_axes_follow_the_closed_form():
    generator = torch.Generator().manual_seed(1)
    axes = torch.linalg.qr(torch.randn(8, 8, generator=generator, dtype=torch.float64)).Q
    a, b = torch.rand(2, 8, generator=generator, dtype=torch.float64) * 5
    mean = torch.randn(2, 8, generator=generator, dtype=torch.float64)
    first, second = (Moments(m, axes @ torch.diag(s**2) @ axes.mT) for m, s in zip(mean, (a, b), strict=True))
    expected = float((mean[0] - mean[1]).square().sum() + (a - b).square().sum())
    assert frechet_distance(first, second) == pytest.approx(expected, rel=1e-12)


def test_orthogonal_rank_one_covariances_are_as_far_apart_as_their_traces_add_up_to():
    first = Moments(torch.zeros(3).double(), torch.diag(torch.tensor([4.0, 0, 0]).double()))
    second = Moments(torch.zeros(3).double(), torch.diag(torch.tensor([0, 9.0, 0]).double()))
    assert frechet_distance(first, second) == pytest.approx(13.0, rel=1e-13)


def test_a_constant_set_is_as_far_from_another_as_that_ones_spread_and_mean():
    spread = features_to_moments(features(100, 5, offset=2.0))
    constant = Moments(torch.zeros(5).double(), torch.zeros(5, 5).double())
    expected = float(spread.mean.square().sum() + spread.covariance.trace())
    assert frechet_distance(constant, spread) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("seed", range(5))
def test_the_distance_agrees_with_scipys_matrix_square_root(seed):
    first = features_to_moments(features(300, 24, seed))
    second = features_to_moments(features(300, 24, seed + 100, offset=0.5))
    assert frechet_distance(first, second) == pytest.approx(by_sqrtm(first, second), rel=1e-10)


def test_rank_deficient_sets_agree_with_the_eigenvalues_of_the_small_gram_matrix():
    a, b = features(6, 40, seed=1), features(9, 40, seed=2)
    # tr (S1 S2)^(1/2) is also the sum of the singular values of the centred data's cross product: (6, 40) (40, 9).
    cross = (a - a.mean(0)) @ (b - b.mean(0)).mT / (5 * 8) ** 0.5
    first, second = features_to_moments(a), features_to_moments(b)
    expected = (
        (first.mean - second.mean).square().sum()
        + first.covariance.trace()
        + second.covariance.trace()
        - 2 * torch.linalg.svdvals(cross).sum()
    )
    assert frechet_distance(first, second) == pytest.approx(float(expected), rel=1e-12)


def test_the_distance_is_symmetric_and_scales_with_the_square_of_the_features():
    a, b = features(100, 8, seed=1), features(100, 8, seed=2)
    there = frechet_distance(features_to_moments(a), features_to_moments(b))
    back = frechet_distance(features_to_moments(b), features_to_moments(a))
    tripled = frechet_distance(features_to_moments(3 * a), features_to_moments(3 * b))
    assert back == pytest.approx(there, rel=1e-12)
    assert tripled == pytest.approx(9 * there, rel=1e-12)


@pytest.mark.parametrize("batch", [1, 7, 64, 1000])
def test_streaming_moments_equal_those_of_all_the_features_at_once(batch):
    data = features(200, 12, offset=3.0)
    running = RunningMoments(12)
    for part in data.split(batch):
        running.update(part)
    mean, covariance = running.moments()
    torch.testing.assert_close(mean, data.mean(0), **EXACT)
    torch.testing.assert_close(covariance, torch.cov(data.mT), **EXACT)
    assert running.count == 200


def test_a_large_common_offset_costs_no_precision():
    data = torch.randn(500, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    running = RunningMoments(4)
    for part in (data + 1e7).split(50):
        running.update(part)
    # The offset itself rounds the data to 1e-9; sums of squares without centring would be off by 1e-2.
    torch.testing.assert_close(running.moments().covariance, torch.cov(data.mT), rtol=0, atol=1e-8)


def test_moments_keep_no_graph_of_the_features():
    running = RunningMoments(3)
    running.update(features(5, 3).requires_grad_())
    assert not any(part.requires_grad for part in running.moments())


def test_an_empty_batch_changes_nothing():
    running = RunningMoments(3)
    running.update(features(5, 3))
    before = running.moments()
    running.update(torch.zeros(0, 3))
    assert torch.equal(before.covariance, running.moments().covariance)


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_images_are_refused_with_their_number(n):
    with pytest.raises(ValueError, match=f"at least 2 images, got {n}"):
        features_to_moments(features(n, 3))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_features_that_are_not_finite_are_refused_and_not_added(value):
    running = RunningMoments(3)
    running.update(features(10, 3))
    broken = features(4, 3)
    broken[1, 2] = value
    with pytest.raises(ValueError, match="features of 1 of 4 images are NaN or infinite"):
        running.update(broken)
    assert running.count == 10


def test_moments_that_are_not_finite_are_refused():
    good = features_to_moments(features(10, 3))
    with pytest.raises(ValueError, match="NaN or infinite"):
        frechet_distance(good, Moments(good.mean, good.covariance * float("nan")))


def test_sets_with_different_numbers_of_features_are_refused():
    with pytest.raises(ValueError, match="3 and 4 features"):
        frechet_distance(features_to_moments(features(10, 3)), features_to_moments(features(10, 4)))


def test_features_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"must be \(n, 3\), got shape \(5, 4\)"):
        RunningMoments(3).update(torch.zeros(5, 4))


def test_samples_of_two_gaussians_come_near_the_closed_form():
    scales, shift = torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor([2.0, 0.0, -1.0]).double()
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 200_000, 3, generator=generator, dtype=torch.float64)
    distance = frechet_distance(features_to_moments(first), features_to_moments(second * scales + shift))
    assert distance == pytest.approx(float(shift.square().sum() + (scales - 1).square().sum()), rel=0.01)


def test_a_factor_at_hand_gives_the_same_distance():
    first, second = features_to_moments(features(100, 12)), features_to_moments(features(100, 12, seed=1))
    assert frechet_distance(first, second, covariance_to_factor(second.covariance)) == frechet_distance(first, second)


@pytest.mark.parametrize("n", [2, 20, 500])
def test_the_factor_of_the_gpu_is_that_of_the_cpu_up_to_a_rotation(n):
    covariance = features_to_moments(features(n, 64)).covariance
    for factor in (covariance_to_factor(covariance), _factor_by_eigenvectors(covariance)):
        assert factor.shape == (64, min(n - 1, 64))
        torch.testing.assert_close(factor @ factor.mT, covariance, rtol=1e-12, atol=1e-13 * float(covariance.trace()))


def traces(n, f, reference=500):
    first, second = (features_to_moments(features(m, f, seed)).covariance for seed, m in enumerate((n, reference)))
    factor = covariance_to_factor(second)
    both = [float(trace(first, factor)) for trace in (_trace_by_singular_values, _trace_by_eigenvalues)]
    return *both, float(torch.linalg.eigvalsh(factor.mT @ first @ factor)[-1].sqrt())


def test_the_trace_of_the_gpu_is_that_of_the_cpu():
    singular, eigen, _ = traces(500, 64)
    assert eigen == pytest.approx(singular, rel=1e-12)


def test_a_negative_eigenvalue_adds_nothing_to_the_trace_of_the_gpu():
    covariance = torch.diag(torch.tensor([4.0, -1.0, 9.0]).double())
    assert float(_trace_by_eigenvalues(covariance, torch.eye(3).double())) == 5.0


def test_fewer_images_than_features_cost_the_trace_of_the_gpu_no_more_than_is_said():
    singular, eigen, largest = traces(20, 64)
    assert abs(eigen - singular) < 64 * 1e-8 * largest
    assert eigen != pytest.approx(singular, rel=1e-12)  # the loss is real, so that the slower way has its reason


def test_shared_moments_are_those_of_all_features():
    values = features(30, 4, offset=100.0)
    parts, rank = (RunningMoments(4), RunningMoments(4)), TwoRanks()
    for part, own in zip(parts, values.split([22, 8]), strict=True):
        part.update(own)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda part: part.share(rank), parts))
    for part in parts:
        torch.testing.assert_close(part.moments(), features_to_moments(values), **EXACT)


def test_processes_without_features_share_nothing_and_can_go_on():
    parts, rank = (RunningMoments(4), RunningMoments(4)), TwoRanks()
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda part: part.share(rank), parts))
    values = features(30, 4)
    parts[0].update(values)
    torch.testing.assert_close(parts[0].moments(), features_to_moments(values), **EXACT)
