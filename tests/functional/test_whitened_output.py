"""What whitening promises of its output: mean 0 and covariance (I - eps W W^T) / (1 - eps)."""

import math

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.reference import oracle

from wcgan.functional import covariance_to_whitening, moments, whiten


@st.composite
def batches(draw):
    """Strongly correlated batches: one mixing matrix of condition up to 100, any scale, means of a few spreads."""
    groups, p = draw(st.sampled_from([1, 1, 2, 3])), draw(st.integers(1, 6))
    d = groups * p
    samples = draw(st.integers(2, 12))
    places = draw(st.sampled_from([(), (1,), (5,), (4, 3), (7, 7)]))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    scale = 10 ** draw(st.floats(-6, 6))
    condition = 10 ** draw(st.floats(0, 2))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))

    def random(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    left, right = torch.linalg.qr(random(d, d))[0], torch.linalg.qr(random(d, d))[0]
    mixing = left * torch.logspace(0, -math.log10(condition), d, dtype=torch.float64) @ right
    x = torch.einsum("cd,nd...->nc...", mixing, random(samples, d, *places))
    x = x + draw(st.floats(0, 3)) * random(d).reshape(-1, *[1] * len(places))
    x = (scale * x).to(dtype)
    if len(places) == 2 and draw(st.booleans()):
        x = x.contiguous(memory_format=torch.channels_last)
    return x, groups


@settings(max_examples=150, deadline=None)
@given(batch=batches(), whitening=st.sampled_from(["cholesky", "zca"]), eps=st.sampled_from([1e-4, 1e-3, 0.1]))
def test_output_has_zero_mean_and_the_covariance_that_shrinkage_leaves(batch, whitening, eps):
    x, groups = batch
    positions = x.double().transpose(0, 1).flatten(1)  # (d, m)
    p = x.shape[1] // groups
    u = torch.finfo(x.dtype).eps / 2
    sigmas = [oracle.shrink(c.cov().reshape(p, p), eps) for c in positions.split(p)]
    condition = max(float(torch.linalg.cond(sigma)) for sigma in sigmas)
    # A sum of m products is off by sqrt(m) u and a factorisation by some p u, both of |Sigma|, which W and W^T on
    # either side turn into cond(Sigma).
    tolerance = (16 * p + 2 * math.sqrt(positions.shape[1])) * u * condition
    assume(tolerance < 0.05)  # beyond, the factorisation may rightly be retried
    _, covariance = moments(x, groups)
    w = covariance_to_whitening(covariance, whitening, eps).double().reshape(groups, p, p)
    y = whiten(x, whitening, eps, groups)
    assert y.shape == x.shape
    assert y.dtype == x.dtype
    whitened = y.double().transpose(0, 1).flatten(1)
    for block, matrix in zip(whitened.split(p), w, strict=True):
        expected = (torch.eye(p, dtype=torch.float64) - eps * matrix @ matrix.T) / (1 - eps)
        assert (block.cov().reshape(p, p) - expected).abs().max() <= tolerance
    # The mean is known to a few u of the largest |x|, and W stretches that by 1 / sqrt(smallest eigenvalue) at most.
    smallest = min(float(torch.linalg.eigvalsh(sigma)[0]) for sigma in sigmas)
    reach = float(positions.abs().max()) / math.sqrt(smallest)
    assert whitened.mean(1).abs().max() <= 4 * (p + 2) * u * max(reach, 1.0)


@settings(max_examples=40, deadline=None)
@given(batch=batches(), eps=st.sampled_from([1e-3, 1e-2]))
def test_standardized_output_has_the_variance_that_eps_leaves(batch, eps):
    x, groups = batch
    positions = x.double().transpose(0, 1).flatten(1)
    biased = positions.var(1, correction=0)
    u = torch.finfo(x.dtype).eps / 2
    size = positions.abs().amax(1) / (biased + eps).sqrt()
    variance = whiten(x, "standardize", eps, groups).double().transpose(0, 1).flatten(1).var(1, correction=0)
    assert ((variance - biased / (biased + eps)).abs() <= 16 * u * (1 + size) * (1 + size)).all()
