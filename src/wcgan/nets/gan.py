"""Generator: noise, and labels if it is conditional, to images. Discriminator: images, and labels, to scores."""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from wcgan.nets.blocks import (
    Deconvolution,
    DownBlock,
    LeakyConvolution,
    SameBlock,
    SelfAttention,
    ToImageConv2d,
    UpBlock,
    is_channels_last,
    normalize_relu,
    normalize_weights,
    prepare,
)
from wcgan.nets.config import DiscriminatorConfig, GeneratorConfig
from wcgan.nets.equal_classes import equal_classes
from wcgan.norm import VARIANTS
from wcgan.norm.conditional import is_compiled_inference
from wcgan.norm.labels import check_label_shape, check_labels


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
        self.dense = prepare(nn.Linear(config.noise, first * config.base**2), 2)
        self.blocks = nn.ModuleList(_generator_blocks(config))
        self.norm = config.normalization_layer(config.final_normalization, last)
        self.conv = prepare(ToImageConv2d(last, config.channels), 2)
        self._labels_in_blocks = VARIANTS[config.normalization].conditional
        self._labels_at_end = VARIANTS[config.final_normalization].conditional
        self.equal_classes = 0.0
        """Weight of a penalty on classes of unequal size after each block; set by the training."""
        self.equal_classes_whitened = False
        """Whether that size is measured after whitening."""

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        config = self.config
        if z.dim() != 2 or z.shape[1] != config.noise:
            raise ValueError(f"noise must be (N, {config.noise}), got shape {tuple(z.shape)}")
        if (labels is None) == config.conditional:
            how = "depends on the class: call it with" if config.conditional else "has no classes: call it without"
            raise ValueError(f"a generator with {config.normalization} {how} labels")
        h = self.dense(z).view(-1, config.widths[0], config.base, config.base)
        if is_compiled_inference() and is_channels_last(self.conv.weight):
            h = h.contiguous(memory_format=torch.channels_last)  # here once, not before each convolution
        for block in self.blocks:
            h = block(h, labels if self._labels_in_blocks else None)
            if self.equal_classes and labels is not None and config.classes is not None and self.training:
                weight, whitened = self.equal_classes, self.equal_classes_whitened
                h = equal_classes(h, labels, config.classes, weight, whitened, self.norm.sync_group())
        h = self.conv(normalize_relu(self.norm, h, labels if self._labels_at_end else None))
        return torch.tanh(h.to(z.dtype))  # full precision even under autocast

    def redundant_biases(self) -> list[nn.Parameter]:
        """Biases without effect in training: a later normalisation subtracts them with the mean of the batch.

        Their gradients are rounding errors. A block's second normalisation subtracts the first bias. The others shift
        the output of the block, and through shortcuts the outputs of later blocks, until the last normalisation
        subtracts the shift; self-attention in between would depend on it.
        """
        if any(VARIANTS[n].whitening == "none" for n in (self.config.normalization, self.config.final_normalization)):
            return []
        found, names = [], ["conv1", "conv2", "shortcut", "conv"]
        for block in reversed(self.blocks):
            if isinstance(block, SelfAttention):
                names = ["conv1"]
            layers = [getattr(block, name, None) for name in names]
            found += [bias for layer in layers if isinstance(bias := getattr(layer, "bias", None), nn.Parameter)]
        return found


def _generator_blocks(config: GeneratorConfig) -> list[nn.Module]:
    """For each width a block that doubles the side, further ones that keep it, and attention at its side."""
    make_norm = partial(config.normalization_layer, config.normalization)
    up: Any = {"resnet": UpBlock, "dcgan": Deconvolution}[config.kind]
    blocks: list[nn.Module] = []
    for inputs, width, side in zip((config.widths[0], *config.widths), config.widths, config.sides, strict=False):
        blocks += [up(inputs, width, make_norm), *(SameBlock(width, make_norm) for _ in range(config.depth - 1))]
        if side == config.attention:
            blocks.append(SelfAttention(width))
    return blocks


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


class Scores(NamedTuple):
    """The output of a discriminator."""

    realness: Tensor
    """`(N,)`: larger for images that look real."""
    logits: Tensor | None
    """`(N, classes)` from an ACGAN head, else None."""


class Head(nn.Module):
    r"""Features `(N, f)` to scores, in the precision of the parameters even under autocast.

    Plain: :math:`s = v^\top h + b`. Projection: :math:`s + e_y^\top h`, with an embedding :math:`e_y` of each class.
    ACGAN: s, and class logits :math:`U h + c`, which are not spectrally normalised.
    """

    def __init__(self, features: int, config: DiscriminatorConfig) -> None:
        super().__init__()
        spectral, classes = config.spectral_norm, config.classes or 0
        self.classes = classes
        self.dense = prepare(nn.Linear(features, 1), 2, spectral)
        self.embedding = self.classifier = None
        if config.head == "projection":
            bound = 0.05 if config.embedding_init == "uniform" else None
            self.embedding = prepare(nn.Embedding(classes, features), 2, spectral, bound)
        elif config.head == "acgan":
            self.classifier = prepare(nn.Linear(features, classes), 2)

    def forward(self, features: Tensor, labels: Tensor | None = None) -> Scores:
        with torch.autocast(features.device.type, enabled=False):
            features = features.to(self.dense.bias.dtype)
            realness = self.dense(features).squeeze(1)  # (N, 1) -> (N,)
            if self.embedding is not None:
                realness = realness + self._projection(features, labels)
            return Scores(realness, None if self.classifier is None else self.classifier(features))

    def _projection(self, features: Tensor, labels: Tensor | None) -> Tensor:
        assert self.embedding is not None
        if labels is None:
            raise ValueError("a projection head depends on the class: call the discriminator with labels")
        check_label_shape(labels, features.shape[0], self.classes)
        labels = labels.to(features.device)
        if labels.is_floating_point():
            return ((labels.to(features.dtype) @ self.embedding.weight) * features).sum(1)
        index, poison = check_labels(labels, self.classes)
        return (self.embedding(index) * features).sum(1) + poison.to(features.dtype)


class Discriminator(nn.Module):
    """A ResNet or DCGAN discriminator. Create one with `build_discriminator`.

    Args:
        config: the architecture; available as the attribute `config`.

    Shape:
        Images `(N, channels, resolution, resolution)` and, for the projection head, integer labels `(N,)` or weights of
        the classes `(N, classes)`; other heads ignore labels. Output: `Scores`.

    Raises:
        ValueError: for images of another shape, or missing labels with a projection head.
    """

    def __init__(self, config: DiscriminatorConfig) -> None:
        super().__init__()
        self.config = config
        self.blocks = nn.Sequential(*(_resnet_blocks if config.kind == "resnet" else _dcgan_blocks)(config))
        side = 1 if config.kind == "resnet" else config.resolution // 2**config.halvings
        self.head = Head(config.widths[-1] * side**2, config)

    def features(self, images: Tensor) -> Tensor:
        """The features that the head scores. ResNet: global sums of the last maps. DCGAN: the last maps, flattened."""
        config, expected = self.config, (self.config.channels, self.config.resolution, self.config.resolution)
        if tuple(images.shape[1:]) != expected:
            raise ValueError(f"images must be (N, {', '.join(map(str, expected))}), got shape {tuple(images.shape)}")
        h = self.blocks(images)
        return relu(h).sum((2, 3)) if config.kind == "resnet" else h.flatten(1)

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Scores:
        normalized = normalize_weights(self)
        try:
            scores: Scores = self.head(self.features(images), labels)
        finally:
            for norm in normalized:
                norm.ready = None
        return scores


def _resnet_blocks(config: DiscriminatorConfig) -> list[nn.Module]:
    """A block of each width, and attention after the first one with its side."""
    inputs, spectral = (config.channels, *config.widths[:-1]), config.spectral_norm
    blocks: list[nn.Module] = []
    for k, (i, o) in enumerate(zip(inputs, config.widths, strict=True)):
        blocks.append(DownBlock(i, o, down=k < config.downsample, first=k == 0, spectral=spectral))
        if config.attention and k == config.sides.index(config.attention):
            blocks.append(SelfAttention(o, spectral))
    return blocks


def _dcgan_blocks(config: DiscriminatorConfig) -> list[nn.Module]:
    """C_w^S of the first width, then C_w^D and C_w^S of each further width."""
    width = config.widths[0]
    stages = [(config.channels, width, False)]
    for wider in config.widths[1:]:
        stages += [(width, wider, True), (wider, wider, False)]
        width = wider
    return [
        LeakyConvolution(i, o, down=down, slope=config.slope, spectral=config.spectral_norm) for i, o, down in stages
    ]


def build_discriminator(config: DiscriminatorConfig) -> Discriminator:
    """Builds a discriminator with the paper's initialisation.

    Args:
        config: the architecture.

    Returns:
        A `Discriminator`; see there for shapes and errors.

    Example:
        >>> import torch
        >>> from wcgan.nets import DiscriminatorConfig, build_discriminator
        >>> config = DiscriminatorConfig(widths=(8, 16), downsample=1, head="projection", classes=10, resolution=16)
        >>> build_discriminator(config)(torch.randn(6, 3, 16, 16), torch.arange(6)).realness.shape
        torch.Size([6])

    Reference:
        Siarohin, Sangineto and Sebe, "Whitening and Coloring batch transform for GANs", ICLR 2019, appendix.
    """
    return Discriminator(config)
