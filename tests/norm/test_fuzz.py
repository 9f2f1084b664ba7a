"""Random calls of random layers beside the oracle in float64: hundreds in `make test`, thousands in `make attack`."""

import random
from contextlib import nullcontext

import torch
from tests.attack.tally import quick_and_long
from tests.norm.cases import (
    VARIANTS,
    make_batch,
    oracle_averages,
    oracle_coloring,
    oracle_options,
    oracle_train,
    randomize,
)

import wcgan
from wcgan.norm import sub_batches

QUICK = 300


def draw_layer(rng):
    """A layer in float64 or float32, with options drawn at random."""
    name, dim, channels = rng.choice(VARIANTS), rng.choice((1, 2)), rng.choice((1, 2, 3, 4, 6, 8))
    variant = wcgan.VARIANTS[name]
    options = {
        "eps": rng.choice((1e-1, 1e-2, 1e-3)),
        "momentum": rng.choice((None, 0.0, 0.01, 0.5, 1.0)),
        "iterations": rng.choice((1, 3, 5)),  # the oracle's form of the iteration loses digits with more
        "track_running_stats": rng.random() < 0.8,
        "init": rng.choice(("glorot", "orthogonal", "identity")),
        "dtype": rng.choice((torch.float64, torch.float64, torch.float32)),
    }
    if options["dtype"] == torch.float32:
        options["eps"] = 0.1  # so that rounding leaves something to compare
    if variant.whitening in ("cholesky", "zca", "newton"):
        options["groups"] = rng.choice([g for g in range(1, channels + 1) if channels % g == 0])
    if variant.conditional:
        options["classes"] = rng.choice((1, 2, 5, 11))
        options["normalize_assignment"] = rng.random() < 0.3
        if variant.soft:
            options["dictionary"] = rng.choice(("auto", 1, 4))
    layer = wcgan.normalization(name, channels, dim=dim, **options)
    if rng.random() < 0.8:
        randomize(layer, rng.randrange(10**6))
    return layer


def draw_shape(rng, layer, parts):
    samples = parts * rng.choice((2, 3, 5, 8))
    places = {1: [(), (1,), (4,)], 2: [(1, 1), (2, 3), (4, 1)]}[1 if 2 in layer._ranks else 2]
    return (samples, layer.num_features, *rng.choice(places))


def draw_batch(rng, layer, shape):
    """Correlated channels of some mean and scale, in some memory layout."""
    x = make_batch(*shape, seed=rng.randrange(10**6)) * rng.choice((0.1, 1.0, 5.0)) + rng.choice((0.0, 3.0))
    x = x.to(next(iter(float_tensors(layer)), x).dtype)
    layout = rng.choice(("contiguous", "channels last", "strided"))
    if layout == "channels last":
        return x.movedim(1, -1).contiguous().movedim(-1, 1)
    if layout == "strided":
        return torch.stack([x, -x], -1)[..., 0]
    return x


def float_tensors(layer):
    return [t for t in (*layer.parameters(), *layer.buffers()) if t.is_floating_point()]


def draw_labels(rng, layer, samples):
    if not hasattr(layer, "classes"):
        return ()
    labels = torch.tensor([rng.randrange(layer.classes) for _ in range(samples)])
    kind = rng.choice(("integers", "small integers", "one-hot", "weights"))
    if kind == "small integers":
        return (labels.to(torch.int32),)
    if kind == "one-hot":
        return (torch.nn.functional.one_hot(labels, layer.classes).double(),)
    if kind == "weights":
        return (torch.rand(samples, layer.classes, generator=torch.Generator().manual_seed(int(labels[0]))).double(),)
    return (labels,)


class Twin:
    """The layer in float64 as the oracle knows it: its parameters and options, and averages of its own."""

    def __init__(self, layer):
        self.layer = layer
        self.wide = {name: p.detach().double() for name, p in layer.named_parameters()}
        self.averages = oracle_averages(layer)

    def __getattr__(self, name):
        return self.wide[name] if name in self.wide else getattr(self.layer, name)

    def call(self, x, labels, parts, training):
        x = x.double()
        label = labels[0] if labels else None
        if not training and (self.track_running_stats or self.whitening == "none"):
            return self.averages.normalize(x, oracle_coloring(self, label), **oracle_options(self))
        size = len(x) // parts
        outs = []
        for start in range(0, len(x), size):
            part = x[start : start + size]
            outs.append(oracle_train(self, part, None if label is None else label[start : start + size]))
            if training and self.track_running_stats:
                self.averages.update(part)
        return torch.cat(outs)


def tolerance(twin, x, expected):
    """Rounding, magnified by the condition number of what is inverted, or by the whitening of nearly constant x."""
    if twin.whitening == "none":
        condition = 1.0
    else:
        of_batch, averaged = x.double().var(), twin.averages.covariance.diagonal(dim1=1, dim2=2).max()
        condition = max(1 + twin.num_features * max(of_batch, averaged).item() / twin.eps, twin.eps**-0.5)
    return 20 * torch.finfo(x.dtype).eps * condition * max(1.0, expected.abs().max().item(), x.abs().max().item())


def run(seed):
    rng = random.Random(seed)
    layer = draw_layer(rng)
    twin = Twin(layer)
    for _ in range(rng.randrange(1, 4)):
        training = rng.random() < 0.7
        layer.train(training)
        parts = rng.choice((1, 1, 2, 3)) if training else 1
        x = draw_batch(rng, layer, draw_shape(rng, layer, parts))
        labels = draw_labels(rng, layer, len(x))
        relu, gradients = rng.random() < 0.3, rng.random() < 0.5
        with sub_batches(layer, parts) if parts > 1 else nullcontext(), torch.set_grad_enabled(gradients):
            out = layer(x, *labels, relu=relu)
        expected = twin.call(x, labels, parts, training)
        expected = expected.relu() if relu else expected
        bound = tolerance(twin, x, expected)
        assert (out.dtype, out.shape) == (x.dtype, x.shape)
        error = (out.double() - expected).abs().max().item()
        assert error <= bound, f"seed {seed}: off by {error}, where rounding accounts for {bound}"
    assert (layer.num_retried, layer.num_nonfinite) == (0, 0)


@quick_and_long(QUICK, 5_000)
def test_random_calls_agree_with_the_oracle(attack, cases):
    for seed in range(cases):
        with attack.case():
            run(seed)


def test_the_draws_reach_every_variant():
    assert {random.Random(seed).choice(VARIANTS) for seed in range(QUICK)} == {*VARIANTS}
