"""The networks in the paper's three tables of architectures, one entry per row and dataset.

The paper's notation: D_k is a dense layer of k outputs, P_h a reshaping to an h x h grid, R_d a residual block and C_d
a convolution block of d filters that doubles (U), halves (D) or keeps (S) the side, G the global sum, F flattening.
"""

from wcgan.nets.config import DiscriminatorConfig, GeneratorConfig

_DCGAN_WIDTHS = (512, 256, 128)  # C_512^U-C_256^U-C_128^U
_DCGAN_CRITIC_WIDTHS = (64, 128, 256, 512)  # C_64^S-C_128^D-C_128^S-C_256^D-C_256^S-C_512^D-C_512^S


def _acgan(classes: int) -> tuple[GeneratorConfig, DiscriminatorConfig]:
    """cWC GP + ACGAN on CIFAR."""
    return (
        GeneratorConfig(widths=(128,) * 3, normalization="cWC", classes=classes),
        DiscriminatorConfig(widths=(128,) * 4, head="acgan", spectral_norm=False, classes=classes),
    )


def _projection(classes: int) -> tuple[GeneratorConfig, DiscriminatorConfig]:
    """cWC SN + Proj. Discr. on CIFAR."""
    return (
        GeneratorConfig(widths=(128,) * 3, normalization="cWC", classes=classes),
        DiscriminatorConfig(widths=(256,) * 4, head="projection", classes=classes),
    )


def _mnist() -> tuple[GeneratorConfig, DiscriminatorConfig]:
    """WC in MNIST's table, with one channel, although the table says C_3."""
    return (
        GeneratorConfig(base=7, widths=(256,) * 2, channels=1),
        DiscriminatorConfig(widths=(128,) * 4, channels=1, resolution=28),
    )


def _conditional_mnist() -> tuple[GeneratorConfig, DiscriminatorConfig]:
    """cWC in MNIST's table. The table names no head; everywhere else in the paper, cWC with SN has projection."""
    return (
        GeneratorConfig(base=7, widths=(128,) * 2, normalization="cWC", channels=1, classes=10),
        DiscriminatorConfig(widths=(128,) * 4, head="projection", channels=1, classes=10, resolution=28),
    )


ARCHITECTURES: dict[str, tuple[GeneratorConfig, DiscriminatorConfig]] = {
    # Unconditional image generation
    "cifar10/WC GP + ResNet": (
        GeneratorConfig(widths=(128,) * 3),
        DiscriminatorConfig(widths=(128,) * 4, spectral_norm=False),
    ),
    "cifar10/WC SN + DCGAN": (
        GeneratorConfig(kind="dcgan", widths=_DCGAN_WIDTHS),
        DiscriminatorConfig(kind="dcgan", widths=_DCGAN_CRITIC_WIDTHS),
    ),
    "cifar10/WC SN + ResNet": (
        GeneratorConfig(widths=(256,) * 3),
        DiscriminatorConfig(widths=(128,) * 4),
    ),
    "stl10/WC SN + DCGAN": (
        GeneratorConfig(kind="dcgan", base=6, widths=_DCGAN_WIDTHS),
        DiscriminatorConfig(kind="dcgan", widths=_DCGAN_CRITIC_WIDTHS, resolution=48),
    ),
    "stl10/WC SN + ResNet": (
        GeneratorConfig(base=6, widths=(256,) * 3),
        DiscriminatorConfig(widths=(128,) * 4, resolution=48),
    ),
    # Conditional image generation
    "cifar10/cWC GP + ACGAN": _acgan(10),
    "cifar100/cWC GP + ACGAN": _acgan(100),
    "cifar10/cWC SN + Proj. Discr.": _projection(10),
    "cifar100/cWC SN + Proj. Discr.": _projection(100),
    "tiny-imagenet/cWC SN + Proj. Discr.": (
        GeneratorConfig(widths=(128,) * 4, normalization="cWC", classes=200),
        DiscriminatorConfig(
            widths=(64, 128, 256, 512, 1024), downsample=3, head="projection", classes=200, resolution=64
        ),
    ),
    # The table says cWC and four blocks, but its 6M parameters are those of cWC_sa, and 128x128 needs five blocks.
    "imagenet/cWC_sa SN + Proj. Discr.": (
        GeneratorConfig(widths=(128, 128, 128, 64, 32), normalization="cWC_sa", classes=1000),
        DiscriminatorConfig(
            widths=(64, 128, 256, 512, 1024, 1024), downsample=5, head="projection", classes=1000, resolution=128
        ),
    ),
    # MNIST and Fashion-MNIST
    "mnist/WC": _mnist(),
    "fashion-mnist/WC": _mnist(),
    "mnist/cWC": _conditional_mnist(),
    "fashion-mnist/cWC": _conditional_mnist(),
}
