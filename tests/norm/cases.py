"""Layers, batches and their counterparts in the oracle, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.functional.cases import make_batch
from tests.reference import oracle
from torch import Tensor, nn

import wcgan
from wcgan.norm import FoldedMap
from wcgan.norm._running import COUNTERS, RunningStatistics

CHANNELS = 4
CLASSES = 3
VARIANTS = tuple(wcgan.VARIANTS)
CONDITIONAL = tuple(name for name, variant in wcgan.VARIANTS.items() if variant.conditional)
UNCONDITIONAL = tuple(name for name in VARIANTS if name not in CONDITIONAL)
WHITENED = tuple(name for name, variant in wcgan.VARIANTS.items() if variant.whitening != "none")
GROUPED = ("DBN", "IterNorm")
# One variant for each path through the code, for claims about what all layers share; values are tested for all of them.
# std-C is the only one here that multiplies a diagonal whitening by a full coloring.
PATHS = ("BN", "W-only", "C-only", "std-C", "WC", "DBN", "IterNorm", "cBN", "cWC-diag", "cWC_sa")
WHITENED_PATHS = tuple(name for name in PATHS if name in WHITENED)
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def make_layer(name: str, channels: int = CHANNELS, dtype: torch.dtype = torch.float64, **options: Any) -> nn.Module:
    """A variant with random parameters, so that no term of its coloring is 0 or 1; two groups where it groups."""
    if name in CONDITIONAL:
        options.setdefault("classes", CLASSES)
    if name in GROUPED and channels % 2 == 0:
        options.setdefault("groups", 2)
    layer = wcgan.normalization(name, channels, dtype=dtype, **options)
    randomize(layer)
    return layer


@torch.no_grad()
def randomize(module: nn.Module, seed: int = 1) -> None:
    """Draws every parameter from the standard normal distribution."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))


def make_labels(samples: int, classes: int = CLASSES, seed: int = 2) -> Tensor:
    return torch.randint(0, classes, (samples,), generator=torch.Generator().manual_seed(seed))


def make_inputs(layer: nn.Module, *shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    """What the layer is called with: a batch, and labels if it is conditional."""
    x = make_batch(*shape, seed=seed, dtype=dtype)
    return (x, make_labels(shape[0], layer.classes)) if hasattr(layer, "classes") else (x,)


def oracle_coloring(layer: nn.Module, labels: Tensor | None = None) -> oracle.Coloring:
    """The layer's coloring, made of its own parameters by the paper's equations."""
    if labels is None:
        return oracle.coloring(layer.weight, layer.bias)
    class_weight, class_bias = layer.class_weight, layer.class_bias
    if layer.dictionary is not None:
        class_weight = oracle.soft_assignment(layer.assignment, layer.dictionary, layer.normalize_assignment)
    if labels.is_floating_point():  # each sample is a class of its own, whose coloring is the weighted sum of theirs
        class_weight, class_bias = (
            torch.stack([_weighted_sum(row, table) for row in labels]) for table in (class_weight, class_bias)
        )
        labels = torch.arange(len(labels))
    return oracle.conditional_coloring(labels, class_weight, class_bias, layer.weight, layer.bias)


def _weighted_sum(weights: Tensor, table: Tensor) -> Tensor:
    return sum(weight * entry for weight, entry in zip(weights, table, strict=True))


def oracle_options(layer: nn.Module) -> dict[str, Any]:
    return {"whitening": layer.whitening, "eps": layer.eps, "iterations": layer.iterations}


def oracle_train(layer: nn.Module, x: Tensor, labels: Tensor | None = None) -> Tensor:
    """The layer's output in training, by the oracle."""
    return oracle.normalize(x, oracle_coloring(layer, labels), groups=layer.groups, **oracle_options(layer))


def oracle_averages(layer: nn.Module) -> oracle.RunningAverages:
    """Fresh running averages of the layer's kind."""
    groups = layer.num_features if layer.whitening == "standardize" else layer.groups
    return oracle.RunningAverages(layer.num_features, layer.momentum, groups)


def running_covariance(layer: nn.Module) -> Tensor:
    """The running second moment as the oracle keeps it, `(g, p, p)`."""
    if layer.whitening == "standardize":
        return layer.running_var.reshape(-1, 1, 1)
    p = layer.num_features // layer.groups
    return layer.running_covariance.reshape(layer.groups, p, p)


def gradients(output: Tensor, *leaves: Tensor, seed: int = 9) -> tuple[Tensor, ...]:
    """Gradients of a random linear function of the output."""
    generator = torch.Generator().manual_seed(seed)
    cotangent = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)
    return torch.autograd.grad(output, leaves, cotangent)


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    """A copy of every parameter and buffer, the counters that are not saved included."""
    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, RunningStatistics)}
    counters = {f"{name}.{counter}": getattr(layer, counter) for name, layer in layers.items() for counter in COUNTERS}
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers()), **counters}
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def assert_unchanged(module: nn.Module, before: dict[str, Tensor]) -> None:
    after = snapshot(module)
    assert after.keys() == before.keys()
    changed = [name for name in before if not torch.equal(after[name], before[name])]
    assert changed == []


class Model(nn.Module):
    """Any function of an input and of named layers."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def folded_maps(model: nn.Module, kind: type[nn.Module] = FoldedMap) -> dict[str, nn.Module]:
    """What folding left of the normalisations, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, kind)}
