"""Networks that fit the data: size, channels and classes are the images' own."""

from dataclasses import replace

from wcgan.data import Dataset
from wcgan.train.config import Config


def blocks_for(resolution: int) -> tuple[int, int]:
    """The base grid (4 to 7) and the number of doublings that give a resolution."""
    for doublings in range(1, 8):
        base, rest = divmod(resolution, 2**doublings)
        if rest == 0 and 4 <= base <= 7:
            return base, doublings
    raise ValueError(
        f"images of {resolution}x{resolution} do not fit the networks, which double a grid of 4 to 7: "
        f"choose a size such as 16, 28, 32, 48, 64, 96 or 128 with --set data.resolution=SIZE"
    )


def fit_config(config: Config, dataset: Dataset) -> Config:
    """The config with the networks' sizes taken from the data."""
    _, channels, height, width = dataset.images.shape
    if height != width:
        raise ValueError(
            f"the images are {height}x{width}; square ones are needed: --set data.resolution=SIZE crops them"
        )
    classes = len(dataset.classes) or None
    if config.conditional:
        if dataset.labels is None or classes is None or classes < 2:
            raise ValueError(
                f"{config.generator.normalization} with a {config.discriminator.head} head needs several classes; "
                f"{dataset.name} has {classes or 'none'}: give each class a sub-folder, or take an unconditional preset"
            )
    else:
        classes = None
    g, d = config.generator, config.discriminator
    if g.resolution != height:
        base, doublings = blocks_for(height)
        widths = (*g.widths, *[g.widths[-1]] * doublings)[:doublings]
        g = replace(g, base=base, widths=widths)
        if d.kind == "resnet":  # down to a grid of 7 or less, as the paper's networks are
            halvings = min(len(d.widths), max(1, doublings - 1))
            d = replace(d, resolution=height, downsample=halvings)
    g = replace(g, channels=channels, classes=classes)
    d = replace(d, channels=channels, classes=classes, resolution=height)
    return replace(config, generator=g, discriminator=d)
