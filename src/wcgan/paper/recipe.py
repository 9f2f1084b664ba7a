"""A recipe for today, beside the paper's: presets with flips, a moving average, a constant rate and wider networks.

Each comes with batch norm too, everything else equal, so that the two show what whitening and coloring gives.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from wcgan.nets import DiscriminatorConfig, GeneratorConfig
from wcgan.norm import VARIANTS
from wcgan.runs.config import Config, DataConfig, TrainConfig

WIDTH = 256  # of feature maps up to 32 x 32; halved with every doubling of the side
MANY_CLASSES = 30  # a matrix per class would outweigh the rest of the generator: a dictionary serves more than these

BOTH = TrainConfig(
    ema_ramp=0.2,
    ema_start=100_000,
    ema_statistics="recomputed",
    sample_every=1000,
    checkpoint_every=1000,
    evaluate_every=5000,
    ema_half_life=500_000,
)
# The paper's updates of D. Of what was tried on CIFAR-10 (results/recipe), these helped: the wider generator, LeCam,
# the constant rate with its longer average and slower second moment, statistics of larger batches, equal classes.
# Consistency did not help beyond 10,000 iterations; augmentation and fewer, larger updates of D did not help at all.
# Soon after these 35,000 iterations the measured run broke down.
TRAINING = replace(
    BOTH,
    iterations=35_000,
    critic_statistics="iteration",
    generator_batch=256,
    schedule="constant",
    beta2=0.999,
    lecam=0.3,
    ema_half_life=1_000_000,
)
TRAINING_OF_CLASSES = replace(TRAINING, generated_labels="balanced", equal_classes=0.1)
# With few images D overfits, and augmentation is published to help; smaller batches fit larger images.
FOLDER_TRAINING = replace(
    BOTH,
    iterations=30_000,
    critic_steps=2,
    generator_batch=64,
    augment=("color", "translation", "cutout"),
)


def best(data: str, resolution: int, classes: int | None, train: TrainConfig, whitened: bool = True) -> Config:
    """The recipe's networks and training.

    Args:
        data: name of the data set.
        resolution: side of its images.
        classes: with two or more the networks are conditional, with a projection head.
        train: one of those above.
        whitened: whether the generator has whitening and coloring; else batch norm.
    """
    from wcgan.train.start import blocks_for

    base, doublings = blocks_for(resolution)
    widths = tuple(min(WIDTH, WIDTH * 32 // (base * 2 ** (block + 1))) for block in range(doublings))
    conditional = classes is not None and classes > 1
    normalization = "WC" if whitened else "BN"
    networks: dict[str, Any] = {"classes": classes if conditional else None}
    head, options = "plain", {}
    if conditional:
        head = "projection"
        normalization = f"c{normalization}{'_sa' * (whitened and (classes or 0) > MANY_CLASSES)}"
    if VARIANTS[normalization].soft:
        options = {"normalize_assignment": True, "class_bias": False}
    return Config(
        DataConfig(name=data, flip=True),
        GeneratorConfig(base=base, widths=widths, normalization=normalization, options=options, **networks),
        DiscriminatorConfig(
            widths=(*reversed(widths), WIDTH),
            downsample=max(1, doublings - 1),
            head=head,
            embedding_init="uniform" if conditional else "glorot",
            resolution=resolution,
            **networks,
        ),
        train,
    )


def best_cifar10(conditional: bool, whitened: bool) -> Config:
    return best("cifar10", 32, 10 if conditional else None, TRAINING_OF_CLASSES if conditional else TRAINING, whitened)


def best_folder(resolution: int = 32, classes: int | None = 2, whitened: bool = True) -> Config:
    """For anyone's pictures: of 32, 64 or 128 pixels, or another side that the networks can have."""
    labels: Literal["real", "uniform"] = "real" if classes is not None and classes > 1 else "uniform"
    return best("folder", resolution, classes, replace(FOLDER_TRAINING, generated_labels=labels), whitened)


BEST: dict[str, Callable[[], Config]] = {
    "cifar10/best": lambda: best_cifar10(True, True),
    "cifar10/best cBN": lambda: best_cifar10(True, False),
    "cifar10/best unconditional": lambda: best_cifar10(False, True),
    "cifar10/best unconditional BN": lambda: best_cifar10(False, False),
}
