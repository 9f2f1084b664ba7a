"""Layers inside a discriminator under gradient penalty: second derivatives equal those of plain autodiff."""

import pytest
import torch
from tests.norm.cases import CHANNELS, VARIANTS, make_batch, make_labels, make_layer, oracle_train, snapshot
from torch import nn

TIGHT = {"rtol": 1e-8, "atol": 1e-8}


class Discriminator(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.first = nn.Conv2d(3, CHANNELS, 2, dtype=torch.float64)
        self.norm = make_layer(name)
        self.last = nn.Linear(CHANNELS, 1, dtype=torch.float64)

    def forward(self, x, labels, norm):
        labels = (labels,) if hasattr(self.norm, "classes") else ()
        features = torch.tanh(norm(self.first(x), *labels))
        return self.last(features.sum((2, 3)))

    def by_layer(self, x, labels):
        return self(x, labels, self.norm)

    def by_oracle(self, x, labels):
        return self(x, labels, lambda features, *labels: oracle_train(self.norm, features, *labels))


def penalty_and_gradients(score, model, x, labels):
    """The two-sided gradient penalty, and its gradient to the images and all parameters."""
    x = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(score(x, labels).sum(), x, create_graph=True)
    penalty = (slope.flatten(1).norm(dim=1) - 1).square().mean()
    leaves = [x, *model.parameters()]
    found = torch.autograd.grad(penalty, leaves, allow_unused=True)
    return penalty, [
        torch.zeros_like(leaf) if gradient is None else gradient for gradient, leaf in zip(found, leaves, strict=True)
    ]


@pytest.mark.parametrize("name", VARIANTS)
def test_the_gradient_penalty_of_a_discriminator_equals_plain_autodiff(name):
    torch.manual_seed(0)
    model = Discriminator(name)
    x, labels = make_batch(4, 3, 3, 3), make_labels(4)
    penalty, found = penalty_and_gradients(model.by_layer, model, x, labels)
    expected_penalty, expected = penalty_and_gradients(model.by_oracle, model, x, labels)
    assert penalty > 1e-3
    torch.testing.assert_close(penalty, expected_penalty, **TIGHT)
    torch.testing.assert_close(found, expected, **TIGHT)


@pytest.mark.parametrize("name", ["WC", "cWC", "BN"])
def test_the_gradient_penalty_works_in_evaluation(name):
    torch.manual_seed(0)
    model = Discriminator(name).eval()
    before = snapshot(model)
    _, found = penalty_and_gradients(model.by_layer, model, make_batch(4, 3, 3, 3), make_labels(4))
    assert all(gradient.isfinite().all() for gradient in found)
    assert any(gradient.count_nonzero() for gradient in found)
    torch.testing.assert_close(snapshot(model), before, rtol=0, atol=0)


def test_first_derivatives_are_the_same_with_and_without_a_graph_of_them():
    torch.manual_seed(0)
    model = Discriminator("cWC")
    x, labels = make_batch(4, 3, 3, 3).requires_grad_(), make_labels(4)
    leaves = [x, *model.parameters()]
    plain = torch.autograd.grad(model.by_layer(x, labels).sum(), leaves)
    recorded = torch.autograd.grad(model.by_layer(x, labels).sum(), leaves, create_graph=True)
    torch.testing.assert_close(plain, tuple(gradient.detach() for gradient in recorded), **TIGHT)
