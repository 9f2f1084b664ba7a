"""A classifier in training: its network, its optimiser, one update, its errors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from wcgan.classify.batches import ClassifierInputs, Pixels
from wcgan.classify.config import ClassifyConfig, ClassifyTrainConfig
from wcgan.data import Dataset
from wcgan.nets import ResidualClassifier, build_classifier
from wcgan.train.learner import Learner, Losses, place, rate_on, update
from wcgan.train.parallel import Rank

ALONE = Rank()
CHUNK = 1000  # images that are tested at once


@dataclass
class Pupil:
    """What is trained with one seed."""

    pixels: Pixels
    classifier: ResidualClassifier
    optimizer: SGD

    @property
    def networks(self) -> dict[str, nn.Module]:
        return {"pixels": self.pixels, "classifier": self.classifier}

    @property
    def optimizers(self) -> dict[str, SGD]:
        return {"optimizer": self.optimizer}


class SideBySide:
    """Several learners as one."""

    def __init__(self, learners: Sequence[Learner]) -> None:
        self.networks = {f"{i}.{k}": v for i, one in enumerate(learners) for k, v in one.networks.items()}
        self.optimizers = {f"{i}.{k}": v for i, one in enumerate(learners) for k, v in one.optimizers.items()}


def build_pupil(
    config: ClassifyConfig, images: Tensor, device: torch.device, channels_last: bool = False, sync: bool = False
) -> Pupil:
    """A network from the seed, in training mode, that sees pixels as far from their mean as those of `images` are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.train.seed)
        network = build_classifier(config.classifier)
    place(network, device, channels_last, sync)
    pixels = Pixels(config.classifier.channels).to(device)
    pixels.measure(images)
    train = config.train
    gpu = device.type == "cuda"
    optimizer = SGD(
        network.parameters(),
        rate_on(device, train.learning_rate) if gpu else train.learning_rate,
        momentum=train.momentum,
        weight_decay=train.weight_decay,
        fused=gpu,
    )
    return Pupil(pixels, network, optimizer)


def learning_rate(train: ClassifyTrainConfig, iteration: int) -> float:
    """Of the update that comes after `iteration` others."""
    tenths = sum(iteration >= drop for drop in train.drops) + (iteration < train.warm_up)
    return train.learning_rate / 10**tenths


def train_pupil(pupil: Pupil, inputs: ClassifierInputs, precision: torch.dtype, rank: Rank = ALONE) -> Losses:
    """One update -> loss, and share of the batch that was wrong before it, in percent; both on the device."""
    device = inputs.images.device
    with torch.autocast(device.type, dtype=precision, enabled=precision != torch.float32):
        logits = pupil.classifier(pupil.pixels(inputs.images, inputs.moved, inputs.mirrored))
    loss = cross_entropy(logits, inputs.labels)
    update(pupil.optimizer, loss, pupil.classifier, rank)
    wrong = (logits.argmax(1) != inputs.labels).float().mean()
    return {"loss/training": loss.detach(), "error/training": 100 * wrong}


@torch.no_grad()
def examine(pupil: Pupil, test: Dataset, device: torch.device, rank: Rank = ALONE) -> Losses:
    """Error in percent, and loss, on images as they are, by running statistics; processes share the chunks."""
    total = torch.zeros(2, dtype=torch.float64, device=device)
    pupil.classifier.eval()
    try:
        assert test.labels is not None
        chunks = list(zip(test.images.split(CHUNK), test.labels.split(CHUNK), strict=True))
        for some, wanted in chunks[rank.index :: rank.count]:
            # `forward`, not the network itself: that may be compiled, for batches of another size.
            logits = pupil.classifier.forward(pupil.pixels.forward(some.to(device)))
            wanted = wanted.to(device)
            loss, wrong = cross_entropy(logits, wanted, reduction="sum"), (logits.argmax(1) != wanted).sum()
            total += torch.stack([wrong, loss])
    finally:
        pupil.classifier.train()
    error, loss = rank.total(total) / len(test)
    return {"error": 100 * error, "loss/test": loss}
