"""What the paper prints: the figures of its tables of results, and the networks of its tables of architectures.

In each table the first line names the dataset of a column (blank: the same as to the left) and the second line its
measure; "IS 100k" is the IS after 100,000 iterations. A dash is a dash in the paper. A row that is blank for a dataset
is not in the paper.

The paper's notation: D_k is a dense layer of k outputs, P_h a reshaping to an h x h grid, R_d a residual block and C_d
a convolution block of d filters that doubles (U), halves (D) or keeps (S) the side, G the global sum, F flattening.
"""

from wcgan.nets.config import DiscriminatorConfig, GeneratorConfig

PRINTED: dict[str, str] = {
    "unconditional": """
               | cifar10   |        |         | stl10     |        |
               | IS        | FID 5k | FID 10k | IS        | FID 5k | FID 10k
GP + ResNet    | 7.86±0.07 | -      | -       | -         | -      | -
WC GP + ResNet | 8.20±0.08 | -      | 20.4    | -         | -      | -
SN + DCGAN     | 7.58±0.12 | 25.5   | -       | 8.79±0.14 | 43.2   | -
WC SN + DCGAN  | 7.84±0.10 | 25.5   | 23.0    | 9.45±0.18 | 40.1   | 37.9
SN + ResNet    | 8.22±0.05 | 21.7   | -       | 9.10±0.04 | 40.1   | -
WC SN + ResNet | 8.66±0.11 | 20.2   | 17.2    | 9.93±0.13 | 38.7   | 36.4
""",
    "state-of-the-art": """
                           | cifar10
                           | IS
WC SN + ResNet             | 8.66±0.11
cWC SN + Proj. Discr. drop | 9.06±0.13
cWC_sa SN + Proj. Discr.   | 8.85±0.10
""",
    "ablation-WC": """
        | cifar10   |
        | IS        | FID 10k
W-only  | 6.63±0.07 | 36.8
WC-diag | 7.00±0.09 | 34.1
C-only  | 7.86±0.08 | 23.17
std-C   | 8.34±0.08 | 18.02
WzcaC   | 8.29±0.08 | 18.57
WC      | 8.66±0.11 | 17.2
""",
    "tiny-imagenet": """
       | tiny-imagenet |
       | IS            | FID 10k
cBN    | 9.27±0.14     | 39.9
cWC    | 10.43±0.13    | 35.7
cWC_sa | 11.78±0.25    | 27.7
""",
    "conditional": """
                         | cifar10   |        |         | cifar100  |        |
                         | IS        | FID 5k | FID 10k | IS        | FID 5k | FID 10k
GP + ACGAN               | 8.42±0.10 | -      | -       | -         | -      | -
cWC GP + ACGAN           | 8.80±0.13 | -      | 17.2    | -         | -      | -
cWC_sa GP + ACGAN        | 8.69±0.13 | -      | 16.8    | -         | -      | -
SN + Proj. Discr.        | 8.62      | 17.5   | -       | 9.04      | 23.2   | -
cWC SN + Proj. Discr.    | 8.97±0.11 | 16.0   | 13.5    | 9.52±0.07 | 20.5   | 17.2
cWC_sa SN + Proj. Discr. | 8.85±0.10 | 16.5   | 13.5    | 9.80±0.17 | 20.6   | 17.4
""",
    "imagenet": """
                         | imagenet   |            |            |
                         | IS 100k    | IS 200k    | IS 300k    | IS
SN + Proj. Discr.        | 17.5       | 21.0       | 23.5       | 29.7±0.61
cWC_sa SN + Proj. Discr. | 21.39±0.37 | 26.11±0.40 | 29.20±0.87 | 34.36±0.67
""",
    "ablation-cWC": """
                | cifar10   |         | cifar100  |
                | IS        | FID 10k | IS        | FID 10k
cBN             | 7.68±0.13 | 22.1    | 8.08±0.08 | 26.5
c-std-C         | 7.92±0.11 | 24.37   | 7.67±0.08 | 46.46
c-std-C_sa      | 7.93±0.11 | 26.75   | 8.23±0.10 | 27.59
cWC-cls-only    | 8.10±0.09 | 28.0    | 7.10±0.06 | 75.4
cWC_sa-cls-only | 8.20±0.09 | 23.5    | 7.88±0.12 | 33.4
cWC-diag        | 8.90±0.09 | 14.2    | 8.82±0.12 | 20.8
cWC             | 8.97±0.11 | 13.5    | 9.52±0.07 | 17.2
cWC_sa          | 8.85±0.10 | 13.5    | 9.80±0.17 | 17.4
""",
    "classification": """
              | cifar10 | cifar100
              | error   | error
ResNet-32 BN  | 7.31    | 31.41
ResNet-32 WC  | 7.00    | 31.25
ResNet-32 DBN | 6.94    |
ResNet-56 BN  | 7.21    | 30.68
ResNet-56 WC  | 6.60    | 30.40
ResNet-56 DBN | 6.49    |
""",
    "mnist": """
    | mnist   | fashion-mnist
    | FID 10k | FID 10k
BN  | 3.6     | 10.6
WC  | 4.9     | 10.4
cBN | 4.5     | 7.5
cWC | 4.3     | 6.2
""",
}
"""Key of `wcgan.paper.TABLES` -> the table."""

QUOTED: dict[str, str] = {
    "cifar10/WC SN + ResNet": """
ALI                                 5.34±0.05
BEGAN                               5.62
DCGAN                               6.16±0.07
Improved GAN (-L+HA)                6.86±0.06
EGAN-Ent-VI                         7.07±0.10
DFM                                 7.72±0.13
WGAN-GP                             7.86±0.07
CT-GAN                              8.12±0.12
SN-GAN                              8.22±0.05
OT-GAN                              8.46±0.12
PROGRESSIVE                         8.80±0.13
PROGRESSIVE, average of 10 runs     8.56
WC SN + ResNet, average of 10 runs  8.56
""",
    "cifar10/cWC SN + Proj. Discr. drop": """
SteinGAN            6.35
DCGAN with labels   6.58
Improved GAN        8.09±0.07
AC-GAN              8.25±0.07
SGAN-no-joint       8.37±0.08
WGAN-GP ResNet      8.42±0.10
SGAN                8.59±0.12
SNGAN-PROJECTIVE    8.62
CT-GAN with labels  8.81±0.13
AM-GAN              8.91±0.11
""",
}
"""Preset of the state-of-the-art table -> the results above its row, which others published: a name and an IS.

The two averages over ten runs are in the paper's text.
"""


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
