"""Weights as drawn at the start: uniform, of variance c / (k^2 (cin + cout)), biases 0."""

import math

import pytest
import torch
from tests.nets.cases import KINDS, make_discriminator, make_generator
from torch import nn

WEIGHTED = (nn.Conv2d, nn.ConvTranspose2d, nn.Linear, nn.Embedding)
# Of n uniform draws, the sample variance has a relative standard error sqrt(0.8 / n).
STANDARD_ERRORS = 5
FEWEST = 300  # so that 5 standard errors are 26%: far less than the factor of 2 between the two constants


def layers(network):
    """Name -> weight before any spectral normalisation, and bias."""
    for name, module in network.named_modules():
        if isinstance(module, WEIGHTED):
            original = getattr(module, "parametrizations", None)
            yield name, module.weight if original is None else original.weight.original, getattr(module, "bias", None)


def make(network, kind, head="projection"):
    if network == "generator":
        return make_generator("BN", kind=kind, widths=(16, 32), noise=32, channels=4)
    fields = {"widths": (16, 16, 32), "resolution": 32, "channels": 8, "classes": 40}
    return make_discriminator(head, kind=kind, **fields)


def constant(name, kind):
    """4 in the blocks and shortcuts of a ResNet; 2, which is Glorot's, everywhere else."""
    return 4 if kind == "resnet" and name.startswith("blocks") else 2


CASES = [
    (network, kind, head)
    for kind in KINDS
    for network, head in (("generator", None), ("discriminator", "projection"), ("discriminator", "acgan"))
]


@pytest.mark.parametrize(("network", "kind", "head"), CASES)
def test_weights_are_uniform_with_the_stated_variance(network, kind, head):
    measured = 0
    for name, weight, _ in layers(make(network, kind, head)):
        outputs, inputs, *kernel = weight.shape  # swapped in transposed convolutions, and the sum is the same
        variance = constant(name, kind) / (math.prod(kernel) * (inputs + outputs))
        assert weight.abs().max() <= math.sqrt(3 * variance), name
        if weight.numel() >= FEWEST:
            measured += 1
            bound = STANDARD_ERRORS * math.sqrt(0.8 / weight.numel())
            assert weight.square().mean().item() == pytest.approx(variance, rel=bound), name
    assert measured >= 4


def test_the_authors_embedding_starts_uniform_within_a_twentieth_and_nothing_else_changes():
    ours, theirs = (
        make_discriminator("projection", widths=(16, 16, 32), classes=40, embedding_init=init)
        for init in ("glorot", "uniform")
    )
    embedding = theirs.head.embedding.parametrizations.weight.original  # (40, 32)
    assert 0.049 < embedding.abs().max() <= 0.05
    assert embedding.square().mean().item() == pytest.approx(0.05**2 / 3, rel=5 * math.sqrt(0.8 / embedding.numel()))
    changed = [n for n, p in ours.named_parameters() if not torch.equal(p, theirs.get_parameter(n))]
    assert changed == ["head.embedding.parametrizations.weight.original"]


@pytest.mark.parametrize(("network", "kind", "head"), CASES)
def test_biases_start_at_zero(network, kind, head):
    biased = {name: bias for name, _, bias in layers(make(network, kind, head)) if bias is not None}
    assert len(biased) >= 4
    assert [name for name, bias in biased.items() if bias.any()] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_draws_the_same_networks(kind):
    for make_network in (make_generator, make_discriminator):
        first, second, other = (make_network(kind=kind, seed=seed).state_dict() for seed in (0, 0, 1))
        assert all(torch.equal(first[name], second[name]) for name in first)
        assert not all(torch.equal(first[name], other[name]) for name in first)
