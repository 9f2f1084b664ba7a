"""Generator: noise, and labels if it is conditional, to images."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from wcgan.nets.blocks import Deconvolution, UpBlock, normalize_relu, prepare
from wcgan.nets.config import GeneratorConfig
from wcgan.norm import VARIANTS


class Generator(nn.Module):
    """A ResNet or DCGAN generator. Create one with `build_generator`.

    Args:
        config: the architecture; available as the attribute `config`.

    Shape:
        Noise `(N, noise)` and, if the normalisation is conditional, integer labels `(N,)` or weights of the classes
        `(N, classes)`. Output `(N, channels, resolution, resolution)` in [-1, 1], in the type of the noise.

    Raises:
        ValueError: for noise of another shape, missing labels, or labels for an unconditional generator.
    """

    def __init__(self, config: GeneratorConfig) -> None:
        super().__init__()
        self.config = config
        first, last = config.widths[0], config.widths[-1]
        make_norm = partial(config.normalization_layer, config.normalization)
        block: Any = {"resnet": UpBlock, "dcgan": Deconvolution}[config.kind]
        self.dense = prepare(nn.Linear(config.noise, first * config.base**2), 2)
        inputs = (first, *config.widths[:-1])
        self.blocks = nn.ModuleList(block(i, o, make_norm) for i, o in zip(inputs, config.widths, strict=True))
        self.norm = config.normalization_layer(config.final_normalization, last)
        self.conv = prepare(nn.Conv2d(last, config.channels, 3, padding=1), 2)
        self._labels_in_blocks = VARIANTS[config.normalization].conditional
        self._labels_at_end = VARIANTS[config.final_normalization].conditional

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        config = self.config
        if z.dim() != 2 or z.shape[1] != config.noise:
            raise ValueError(f"noise must be (N, {config.noise}), got shape {tuple(z.shape)}")
        if (labels is None) == config.conditional:
            how = "depends on the class: call it with" if config.conditional else "has no classes: call it without"
            raise ValueError(f"a generator with {config.normalization} {how} labels")
        h = self.dense(z).view(-1, config.widths[0], config.base, config.base)
        for block in self.blocks:
            h = block(h, labels if self._labels_in_blocks else None)
        h = self.conv(normalize_relu(self.norm, h, labels if self._labels_at_end else None))
        return torch.tanh(h.to(z.dtype))  # full precision even under autocast


def build_generator(config: GeneratorConfig) -> Generator:
    """Builds a generator with the paper's initialisation.

    Args:
        config: the architecture.

    Returns:
        A `Generator`; see there for shapes and errors.

    Example:
        >>> import torch
        >>> from wcgan.nets import GeneratorConfig, build_generator
        >>> generator = build_generator(GeneratorConfig(widths=(16, 8), normalization="cWC", classes=10))
        >>> generator(torch.randn(6, 128), torch.arange(6)).shape
        torch.Size([6, 3, 16, 16])

    Reference:
        Siarohin, Sangineto and Sebe, "Whitening and Coloring batch transform for GANs", ICLR 2019, appendix.
    """
    return Generator(config)
