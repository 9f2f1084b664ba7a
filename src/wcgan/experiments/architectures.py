"""The paper's tables of architectures, written from the presets in the paper's notation."""

from __future__ import annotations

from wcgan.experiments.presets import preset
from wcgan.nets import DiscriminatorConfig, GeneratorConfig

# Number of the paper's table -> the presets of its rows.
TABLES: dict[int, tuple[str, ...]] = {
    9: (
        *(f"cifar10/WC {row}" for row in ("GP + ResNet", "SN + DCGAN", "SN + ResNet")),
        *(f"stl10/WC {row}" for row in ("SN + DCGAN", "SN + ResNet")),
    ),
    10: (
        *(f"{data}/cWC {row}" for row in ("GP + ACGAN", "SN + Proj. Discr.") for data in ("cifar10", "cifar100")),
        "tiny-imagenet/cWC SN + Proj. Discr.",
        "imagenet/cWC_sa SN + Proj. Discr.",
    ),
    12: tuple(f"{data}/{row}" for row in ("WC", "cWC") for data in ("mnist", "fashion-mnist")),
}
# Where the presets are not what the paper's table has.
NOTES: dict[int, str] = {
    10: "ImageNet: the paper lists four blocks in the generator, which give images of 64x64; 128x128 needs five.",
    12: "The paper writes C_3^S; images of MNIST and Fashion-MNIST have one channel.",
}
NOTATION = (
    "D_k is a dense layer of k outputs, P_h a reshaping to an h x h grid, R_d a residual block and C_d a convolution "
    "block of d filters that doubles (U), halves (D) or keeps (S) the side, G the global sum, F flattening."
)


def architectures_to_lines(number: int) -> list[str]:
    """A table of the paper in Markdown, and what is to be said of it."""
    lines = [f"# Table {number}: architectures", "", "| Row | Generator | Discriminator |", "| --- | --- | --- |"]
    for name in TABLES[number]:
        config = preset(name)
        generator, critic = generator_to_notation(config.generator), discriminator_to_notation(config.discriminator)
        lines.append(f"| `{name}` | `{generator}` | `{critic}` |")
    return [*lines, "", NOTATION, *([NOTES[number]] if number in NOTES else [])]


def generator_to_notation(config: GeneratorConfig) -> str:
    """A generator as the paper writes it; each ends with tanh.

    Example:
        >>> generator_to_notation(GeneratorConfig(widths=(128, 128, 128)))
        'D_2048-P_4-R_128^U-R_128^U-R_128^U-C_3^S'
    """
    block = "R" if config.kind == "resnet" else "C"
    blocks = [f"{block}_{width}^U" for width in config.widths]
    dense = config.base**2 * config.widths[0]
    return "-".join([f"D_{dense}", f"P_{config.base}", *blocks, f"C_{config.channels}^S"])


def discriminator_to_notation(config: DiscriminatorConfig) -> str:
    """A discriminator as the paper writes it, which leaves out what its head does with labels.

    Example:
        >>> discriminator_to_notation(DiscriminatorConfig())
        'R_128^D-R_128^D-R_128^S-R_128^S-G-D_1'
    """
    if config.kind == "dcgan":
        first, *rest = config.widths
        return "-".join([f"C_{first}^S", *(f"C_{width}^D-C_{width}^S" for width in rest), "F", "D_1"])
    sides = ["D" if place < config.downsample else "S" for place in range(len(config.widths))]
    return "-".join([*(f"R_{w}^{side}" for w, side in zip(config.widths, sides, strict=True)), "G", "D_1"])
