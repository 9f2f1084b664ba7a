"""The layers and training iterations to compare, and the kinds of kernels in an iteration."""

import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import wcgan
from layers import AutodiffWhitening
from wcgan.core.device import deterministic_algorithms
from wcgan.functional import plain_passes
from wcgan.norm import WhiteningLayer
from wcgan.norm.convert import replace_modules
from wcgan.runs.config import TrainConfig
from wcgan.train.gan import Players
from wcgan.train.graph import one_stream

Passes = Callable[[], AbstractContextManager[None]]


def cholesky_without_wait(sigma: Tensor) -> Tensor:
    """`layers.cholesky_whitening` without its check for failure, which would sync with the GPU."""
    lower, _ = torch.linalg.cholesky_ex(sigma)
    return torch.linalg.solve_triangular(lower, torch.eye(sigma.shape[0], device=sigma.device), upper=False)


class PlainAutodiff(nn.Module):
    """Whitening and coloring with PyTorch operators and autograd, always in float32.

    Args:
        channels: of the input.
        parts: size of a batch -> sub-batches that have statistics of their own; one where it is not named.
    """

    def __init__(self, channels: int, parts: dict[int, int] | None = None) -> None:
        super().__init__()
        self.inner, self.parts = AutodiffWhitening(channels, cholesky_without_wait), parts or {}

    def forward(self, x: Tensor, relu: bool = False) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            outs = [self.inner(part.float()) for part in x.chunk(self.parts.get(x.shape[0], 1))]
            out = torch.cat(outs).to(x.dtype) if len(outs) > 1 else outs[0].to(x.dtype)
            return out.relu() if relu else out


# Name -> a layer of d channels and the passes it uses. IterNorm whitens groups of 64 channels with five Newton steps.
LAYERS: dict[str, tuple[Callable[[int], nn.Module], Passes]] = {
    "BN": (nn.BatchNorm2d, nullcontext),
    "WC": (wcgan.WhiteningColoring2d, nullcontext),
    "WC, plain passes": (wcgan.WhiteningColoring2d, plain_passes),
    "WC autodiff": (PlainAutodiff, nullcontext),
    "IterNorm": (lambda d: wcgan.normalization("IterNorm", d), nullcontext),
    "WzcaC": (lambda d: wcgan.normalization("WzcaC", d), nullcontext),
}


@dataclass(frozen=True)
class Variant:
    """A training iteration."""

    normalization: str
    """The generator's normalisation."""
    within: Callable[[], AbstractContextManager[None]] = nullcontext
    """The context in which it is built and recorded."""
    autodiff: bool = False
    """Whether to replace the layers with plain autodiff versions."""
    settings: tuple[str, ...] = ()
    """Of its training, beside the paper's."""


# The most important first, in case time runs out.
VARIANTS = {
    "BN": Variant("BN"),
    "WC": Variant("WC"),
    "WC, one stream": Variant("WC", one_stream),
    "BN, one stream": Variant("BN", one_stream),
    "cBN": Variant("cBN"),
    "cWC": Variant("cWC"),
    "cWC, deterministic": Variant(
        "cWC", lambda: deterministic_algorithms(torch.cuda.is_available()), settings=("train.deterministic=true",)
    ),
    "cWC_sa": Variant("cWC_sa"),
    "WC, plain passes": Variant("WC", plain_passes),
    "IterNorm": Variant("IterNorm"),
    "WC autodiff": Variant("WC", autodiff=True),
    "WzcaC": Variant("WzcaC"),
}


def use_autodiff(players: Players, train: TrainConfig) -> None:
    """Replaces the generator's layers with plain autodiff versions that share their parameters."""
    parts = {train.critic_steps * train.batch: train.critic_steps}
    peers: dict[nn.Module, nn.Module] = {}
    for layer in players.generator.modules():
        if isinstance(layer, wcgan.WhiteningColoring2d):
            assert isinstance(layer.weight, nn.Parameter)
            assert isinstance(layer.bias, nn.Parameter)
            peer = PlainAutodiff(layer.num_features, parts).to(layer.running_mean.device)
            peer.inner.weight, peer.inner.bias = layer.weight, layer.bias
            peers[layer] = peer
    replace_modules(players.generator, peers)
    assert not any(isinstance(module, WhiteningLayer) for module in players.generator.modules())


# Kind of kernel -> pattern in its name; the first match counts.
KERNELS = {
    "factorisation": r"^factorise",
    "passes of whitening": r"^(centre|cross|moments|products|fold|map)_kernel",
    "matrices of whitening": r"^(product|total|group|update)_kernel",
    "convolutions of images": r"^(expand|reduce|shift|outer)_kernel",
    "Adam": r"[Aa]dam|multi_tensor",
    "batch normalisation": r"batch_?norm|^(cudnn::)?bn_",
    "fused by the compiler": r"^triton_",
    "copies": r"^Mem(cpy|set)|copy",
    "convolutions and products": r"conv|xmma|cutlass|gemm|nvjet|fprop|dgrad|wgrad",
}


def kernels_to_shares(kernels: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Names of kernels, each with its time or its number of launches -> the sum by kind, with `other` and `all`."""
    shares = dict.fromkeys((*KERNELS, "other", "all"), 0.0)
    for name, value in kernels:
        kind = next((kind for kind, pattern in KERNELS.items() if re.search(pattern, name)), "other")
        shares[kind] += value
        shares["all"] += value
    return shares
