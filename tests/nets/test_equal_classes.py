"""The penalty on classes of unequal size: its gradient, and that it makes them equal."""

import pytest
import torch
from tests.train.cases import tiny_config, tiny_players

from wcgan.nets.equal_classes import equal_classes
from wcgan.train.custom import Custom
from wcgan.train.gan import build_players

CLASSES = 5


def whiten(x):
    """By the eigenvalues of the batch's covariance, which are constants here."""
    rows = x.detach().movedim(1, -1).flatten(0, 2)
    values, vectors = torch.linalg.eigh((1 - 1e-3) * rows.T.cov() + 1e-3 * torch.eye(x.shape[1], dtype=x.dtype))
    return torch.einsum("ij,njhw->nihw", values.rsqrt().diag() @ vectors.T, x - x.mean((0, 2, 3), keepdim=True))


def penalty(x, labels, whitened=False):
    """As the docstring has it, class by class."""
    centred = whiten(x) if whitened else x - x.mean((0, 2, 3), keepdim=True)
    size = centred.square().mean((1, 2, 3))
    terms = [
        (labels == y).double().mean() * (size[labels == y].mean() / size.mean()).log().square() for y in labels.unique()
    ]
    return sum(terms)


@pytest.fixture
def batch():
    """Samples of four of five classes, of different size, and their labels."""
    torch.manual_seed(0)
    labels = torch.tensor([0, 0, 1, 1, 1, 2, 4, 4, 4, 4])
    x = torch.randn(10, 3, 4, 4, dtype=torch.float64) * (1 + labels).view(-1, 1, 1, 1) + 2
    return x, labels


@pytest.mark.parametrize("whitened", [False, True])
def test_values_stay_and_the_gradient_is_that_of_the_penalty_on_top(batch, whitened):
    x, labels = batch
    x.requires_grad_()
    out = equal_classes(x, labels, CLASSES, 0.7, whitened)
    assert torch.equal(out, x)
    own = torch.randn_like(x)
    (found,) = torch.autograd.grad(out, x, own)
    (expected,) = torch.autograd.grad(0.7 * penalty(x, labels, whitened), x)
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(found, own + expected, rtol=1e-9, atol=1e-12)


def test_descent_makes_the_classes_equal_whatever_the_size_of_all(batch):
    x, labels = batch
    for _ in range(400):
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(equal_classes(x, labels, CLASSES, 1.0), x, torch.zeros_like(x))
        assert abs((gradient * (x - x.mean((0, 2, 3), keepdim=True))).sum()) < 1e-9  # the size of all is free
        x = x - 100 * gradient
    assert penalty(x, labels) < 1e-6


def test_a_large_direction_that_all_classes_share_hides_nothing_after_whitening(batch):
    x, labels = batch
    shared = 1000 * torch.randn(len(x), 1, 4, 4, dtype=x.dtype) * torch.tensor([1.0, 2.0, -1.0]).view(1, 3, 1, 1)
    plain, found = (penalty(x + shared, labels, whitened) for whitened in (False, True))
    assert plain < 0.2 < found

    def size_of_step(whitened):
        given = (x + shared).requires_grad_()
        step = equal_classes(given, labels, CLASSES, 1.0, whitened)
        return torch.autograd.grad(step, given, torch.zeros_like(given))[0].norm()

    assert size_of_step(True) > 100 * size_of_step(False)


@pytest.mark.parametrize("whitened", [False, True])
def test_a_batch_without_variance_has_a_finite_gradient(whitened):
    x = torch.ones(4, 3, 4, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(equal_classes(x, torch.tensor([0, 1, 1, 2]), CLASSES, 1.0, whitened).sum(), x)
    assert torch.equal(gradient, torch.ones_like(x))


@pytest.mark.parametrize("whitened", [False, True])
def test_sizes_of_half_precision_are_taken_in_full(batch, whitened):
    x, labels = batch[0].bfloat16(), batch[1]

    def of_penalty(given):
        out = equal_classes(given.requires_grad_(), labels, CLASSES, 0.7, whitened)
        return torch.autograd.grad(out, given, torch.zeros_like(given))[0]

    assert torch.equal(of_penalty(x), of_penalty(x.detach().float()).bfloat16())


@pytest.mark.parametrize("whitened", [False, True])
def test_compiled_it_is_the_same(batch, whitened):
    x, labels = batch
    x.requires_grad_()
    compiled = torch.compile(equal_classes, fullgraph=True)
    (found,) = torch.autograd.grad(compiled(x, labels, CLASSES, 0.7, whitened).sum(), x)
    (expected,) = torch.autograd.grad(equal_classes(x, labels, CLASSES, 0.7, whitened).sum(), x)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("whitened", [False, True])
def test_a_generator_has_it_after_each_block_in_training_alone(whitened):
    torch.manual_seed(0)
    config = tiny_config("cWC", equal_classes=3.0, equal_classes_whitened=whitened)
    generator = tiny_players(config).generator.double()
    z, labels = torch.randn(12, 6, dtype=torch.float64), torch.arange(12) % 2
    outputs = []
    generator.blocks[-1].register_forward_hook(lambda _, __, out: outputs.append(out))
    weight = generator.blocks[-1].conv2.weight
    (found,) = torch.autograd.grad(generator(z, labels).sum(), weight)
    generator.equal_classes = 0.0
    total = generator(z, labels).sum()
    (plain,) = torch.autograd.grad(total + 3 * penalty(outputs[-1], labels, whitened), weight)
    torch.testing.assert_close(found, plain, rtol=1e-6, atol=1e-9)
    generator.eval().equal_classes = 3.0
    (evaluated,) = torch.autograd.grad(generator(z, labels).sum(), weight)
    generator.equal_classes = 0.0
    (same,) = torch.autograd.grad(generator(z, labels).sum(), weight)
    assert torch.equal(evaluated, same)


def test_where_it_cannot_be_had_is_an_error():
    for head in ("plain", "projection"):
        with pytest.raises(ValueError, match=r"needs a generator with classes, not generator\.normalization=WC"):
            tiny_config("WC", head, equal_classes=0.1)
    with pytest.raises(ValueError, match=r"needs train\.equal_classes, the weight, above 0"):
        tiny_config("cWC", equal_classes_whitened=True)
    config = tiny_config("cWC", equal_classes=0.1)
    with pytest.raises(ValueError, match="for the package's generators"):
        build_players(config, torch.device("cpu"), custom=Custom(generator=torch.nn.Linear(1, 1)))
