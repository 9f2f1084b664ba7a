"""Small generators, as samplers and as folders of runs."""

import torch

from wcgan.nets import DiscriminatorConfig, GeneratorConfig, build_generator
from wcgan.runs.checkpoint import write_checkpoint
from wcgan.runs.config import Config
from wcgan.runs.folder import new_run
from wcgan.runs.sampler import Sampler

NAMES = ("ant", "bee", "cat", "dog")


def generator(normalization="cWC", noise=32, classes=4, **options):
    """Not trained, but with running statistics of its own."""
    torch.manual_seed(0)
    classes = classes if normalization.startswith("c") else None
    options = {"momentum": 0.5, **options}
    config = GeneratorConfig(widths=(8, 8), noise=noise, normalization=normalization, classes=classes, options=options)
    network = build_generator(config)
    labels = None if classes is None else torch.arange(64) % classes
    for _ in range(3):
        network(torch.randn(64, noise), labels)
    return network.eval()


def sampler(normalization="cWC", noise=32, classes=4, **options):
    network = generator(normalization, noise, classes, **options)
    return Sampler(network, NAMES[:classes] if network.config.conditional else (), 7)


def write_run(folder, normalization="cWC", noise=32):
    """The folder of a run, with one checkpoint."""
    network = generator(normalization, noise)
    discriminator = DiscriminatorConfig(widths=(8, 8), downsample=2, resolution=16)
    run = new_run(folder, Config(generator=network.config, discriminator=discriminator))
    tensors = {f"generator.{key}": value for key, value in network.state_dict().items()}
    write_checkpoint(run.checkpoints, "0000007", tensors, {"iteration": 7, "classes": list(NAMES)})
    return folder
