"""A classifier's training, top to bottom: batches, network, one update, error, training of several seeds at once."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from wcgan.core.device import Hardware, random_generator
from wcgan.core.processes import ALONE, Rank, process_count
from wcgan.core.terminal import TrainingProgress
from wcgan.data import Dataset
from wcgan.nets import ResidualClassifier, build_classifier
from wcgan.nets.classifier import Pixels
from wcgan.runs.config import ClassifyConfig, ClassifyTrainConfig
from wcgan.runs.folder import Run
from wcgan.train.batches import EpochOrder, dataset_on, to_device
from wcgan.train.graph import graphed, on_streams
from wcgan.train.learner import Learner, Losses, place, rate_on, set_learning_rate, update
from wcgan.train.loop import Outcome, Step, Task, loop_on, run_tasks

CHUNK = 1000  # images that are tested at once


class ClassifierInputs(NamedTuple):
    """Inputs of one classifier update, on the device; each of several processes has its share."""

    images: Tensor
    """`(b, C, H, W)` uint8, as they are."""
    labels: Tensor
    """`(b,)`."""
    moved: Tensor | None
    """`(b, 2)`: how many pixels down and across the window of each begins; None for no windows."""
    mirrored: Tensor | None
    """`(b,)` bool; None where none is."""


@dataclass
class ClassifierBatches:
    """Draws the inputs of a classifier: images and labels in the order of a seed, and how each image is augmented."""

    dataset: Dataset
    train: ClassifyTrainConfig
    device: torch.device
    rank: Rank = field(default_factory=Rank)

    def __post_init__(self) -> None:
        self._order = EpochOrder(len(self.dataset), self.train.seed, self.dataset.images.device)

    def draw(self, iteration: int) -> ClassifierInputs:
        """The inputs of an update, without a host sync."""
        size, reach, labels = self.train.batch, self.train.crop, self.dataset.labels
        assert labels is not None
        index = self.rank.share(self._order.indices(iteration, size))
        random = random_generator(self.train.seed, "augment", iteration, self.device)
        moved = torch.randint(-reach, reach + 1, (size, 2), generator=random, device=self.device) if reach else None
        mirrored = torch.rand(size, generator=random, device=self.device) < 0.5 if self.train.flip else None
        return ClassifierInputs(
            to_device(self.dataset.images[index], self.device),
            to_device(labels[index], self.device),
            *(None if values is None else self.rank.share(values) for values in (moved, mirrored)),
        )


@dataclass
class ClassifierLearner:
    """A classifier in training: its network, what readies its images, and its optimiser."""

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
    """Several learners, seen as one by the CUDA graph."""

    def __init__(self, learners: Sequence[Learner]) -> None:
        self.networks = {f"{i}.{k}": v for i, one in enumerate(learners) for k, v in one.networks.items()}
        self.optimizers = {f"{i}.{k}": v for i, one in enumerate(learners) for k, v in one.optimizers.items()}


def build_learner(
    config: ClassifyConfig, images: Tensor, device: torch.device, channels_last: bool = False, sync: bool = False
) -> ClassifierLearner:
    """A network from the seed, in training mode; its pixels are normalised by the mean and deviation of `images`."""
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
    return ClassifierLearner(pixels, network, optimizer)


def learning_rate(train: ClassifyTrainConfig, iteration: int) -> float:
    """The learning rate after so many updates."""
    tenths = sum(iteration >= drop for drop in train.drops) + (iteration < train.warm_up)
    return train.learning_rate / 10**tenths


def classifier_step(
    learner: ClassifierLearner, inputs: ClassifierInputs, precision: torch.dtype, rank: Rank = ALONE
) -> Losses:
    """One update -> its loss, and the error on the batch before it, in percent; both on the device."""
    device = inputs.images.device
    with torch.autocast(device.type, dtype=precision, enabled=precision != torch.float32):
        logits = learner.classifier(learner.pixels(inputs.images, inputs.moved, inputs.mirrored))
    loss = cross_entropy(logits, inputs.labels)
    update(learner.optimizer, loss, learner.classifier, rank)
    wrong = (logits.argmax(1) != inputs.labels).float().mean()
    return {"loss/training": loss.detach(), "error/training": 100 * wrong}


@torch.no_grad()
def measure_error(learner: ClassifierLearner, test: Dataset, device: torch.device, rank: Rank = ALONE) -> Losses:
    """Error in percent, and loss, on images without augmentation; processes share the work."""
    total = torch.zeros(2, dtype=torch.float64, device=device)
    learner.classifier.eval()
    try:
        assert test.labels is not None
        chunks = list(zip(test.images.split(CHUNK), test.labels.split(CHUNK), strict=True))
        for some, wanted in chunks[rank.index :: rank.count]:
            # `forward`, not the network itself: that may be compiled, for batches of another size.
            logits = learner.classifier.forward(learner.pixels.forward(some.to(device)))
            wanted = wanted.to(device)
            loss, wrong = cross_entropy(logits, wanted, reduction="sum"), (logits.argmax(1) != wanted).sum()
            total += torch.stack([wrong, loss])
    finally:
        learner.classifier.train()
    error, loss = rank.total(total) / len(test)
    return {"error": 100 * error, "loss/test": loss}


def train_classifiers(
    configs: Sequence[ClassifyConfig],
    training: Dataset,
    test: Dataset,
    runs: Sequence[Run],
    stop_at: int | None = None,
) -> Outcome:
    """Trains from the newest checkpoints of the runs, or from the start, to the end, to `stop_at` or to a signal.

    On a GPU, one iteration of all of them is one CUDA graph with a stream for each: a single network this small leaves
    most of the card idle. The results are the same as one after another.

    Args:
        configs: one for each run; they differ in nothing but `train.seed`, and fit the data.
        training: images and labels to learn from.
        test: images and labels for the error.
        runs: where each is written.
        stop_at: an iteration to end at before the last.
    """
    settings = configs[0].train
    Rank(count=process_count()).check_share("train.batch", settings.batch)
    sizes = f"{len(runs)} classifiers with train.batch={settings.batch}"
    with loop_on(settings, runs, sizes) as environment:
        hardware, rank, device = environment.hardware, environment.rank, environment.hardware.device
        training, test = dataset_on(training, device), dataset_on(test, device)
        learners = [build_learner(c, training.images, device, hardware.channels_last, rank.count > 1) for c in configs]
        batches = [ClassifierBatches(training, config.train, device, rank) for config in configs]
        tasks = [
            learner_to_task(learner, config, training, test, run, device, rank)
            for learner, config, run in zip(learners, configs, runs, strict=True)
        ]
        step = make_step(learners, batches, hardware, environment.progress)
        return run_tasks(tasks, step, environment, stop_at)


def learner_to_task(
    learner: ClassifierLearner,
    config: ClassifyConfig,
    training: Dataset,
    test: Dataset,
    run: Run,
    device: torch.device,
    rank: Rank,
) -> Task:
    """What the loop needs of a classifier: what is trained, its error, and what is kept as best."""
    reference = {"dataset": test.name, "split": test.split, "images": len(test), "of": len(test)}

    def evaluate() -> dict[str, Any]:
        began = time.monotonic()
        scores = {name: value.item() for name, value in measure_error(learner, test, device, rank).items()}
        protocol = {"name": "test split", "reference": reference}
        return {**scores, "protocol": protocol, "seconds": round(time.monotonic() - began, 3)}

    return Task(
        run,
        config,
        training,
        learner,
        learning_rate=partial(learning_rate, config.train),
        images=config.train.batch,
        evaluate=evaluate,
        best=("error", lambda: {f"{n}.{k}": v for n, m in learner.networks.items() for k, v in m.state_dict().items()}),
    )


def make_step(
    learners: Sequence[ClassifierLearner],
    batches: Sequence[ClassifierBatches],
    hardware: Hardware,
    progress: TrainingProgress,
) -> Step:
    """A function from an iteration's number to the losses of each learner; on a GPU it replays a CUDA graph."""
    if hardware.compile:
        for learner in learners:
            learner.pixels.compile(dynamic=False)
            learner.classifier.compile(dynamic=False)

    def compute(inputs: tuple[ClassifierInputs, ...]) -> list[Losses]:
        return on_streams(
            [
                partial(classifier_step, learner, own, hardware.precision, batch.rank)
                for learner, own, batch in zip(learners, inputs, batches, strict=True)
            ],
            hardware.device,
        )

    iterate = graphed(compute, SideBySide(learners), batches[0].train, hardware, progress)

    def step(iteration: int) -> list[Losses]:
        for learner, batch in zip(learners, batches, strict=True):
            set_learning_rate(learner.optimizer, learning_rate(batch.train, iteration))
        return iterate(tuple(batch.draw(iteration) for batch in batches))

    return step
