"""A classifier in training: its network, its optimiser, one update, its errors."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from wcgan.core.device import Hardware
from wcgan.core.processes import Rank, process_count
from wcgan.core.terminal import TrainingProgress
from wcgan.data import Dataset
from wcgan.nets import ResidualClassifier, build_classifier
from wcgan.runs.config import ClassifyConfig, ClassifyTrainConfig
from wcgan.runs.folder import Run
from wcgan.train.batches import ClassifierInputs, LabelledBatches, Pixels, dataset_on
from wcgan.train.graph import graphed, on_streams
from wcgan.train.learner import Learner, Losses, place, rate_on, set_learning_rate, update
from wcgan.train.loop import Outcome, Step, Task, loop_on, run_tasks

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


def train_classifiers(
    configs: Sequence[ClassifyConfig],
    training: Dataset,
    test: Dataset,
    runs: Sequence[Run],
    stop_at: int | None = None,
) -> Outcome:
    """Trains from the newest checkpoints of the runs, or from the start, to the end, to `stop_at` or to a signal.

    On a GPU an iteration of them all is one CUDA graph, in which each has a stream of its own: a network this small
    leaves most of the card free. The figures are those of one after another.

    Args:
        configs: one for each run; they differ in nothing but `train.seed`, and fit the data.
        training: images and labels to learn from.
        test: images and labels for the error.
        runs: where each is written.
        stop_at: an iteration to end at before the last.
    """
    settings = configs[0].train
    Rank(count=process_count()).check_share("train.batch", settings.batch)
    folder = runs[0].folder if len(runs) == 1 else runs[0].folder.parent
    sizes = f"{len(runs)} classifiers with train.batch={settings.batch}"
    with loop_on(settings, folder, sizes) as (hardware, rank, stop):
        device = hardware.device
        training, test = dataset_on(training, device), dataset_on(test, device)
        pupils = [build_pupil(c, training.images, device, hardware.channels_last, rank.count > 1) for c in configs]
        batches = [LabelledBatches(training, config.train, device, rank) for config in configs]
        tasks = [
            pupil_to_task(pupil, config, training, test, run, device, rank)
            for pupil, config, run in zip(pupils, configs, runs, strict=True)
        ]
        return run_tasks(tasks, partial(make_step, pupils, batches, hardware), hardware, rank, stop, stop_at)


def pupil_to_task(
    pupil: Pupil,
    config: ClassifyConfig,
    training: Dataset,
    test: Dataset,
    run: Run,
    device: torch.device,
    rank: Rank,
) -> Task:
    reference = {"dataset": test.name, "split": test.split, "images": len(test), "of": len(test)}

    def evaluate() -> dict[str, Any]:
        began = time.monotonic()
        scores = {name: value.item() for name, value in examine(pupil, test, device, rank).items()}
        protocol = {"name": "test split", "reference": reference}
        return {**scores, "protocol": protocol, "seconds": round(time.monotonic() - began, 3)}

    return Task(
        run,
        config.train,
        training,
        pupil,
        learning_rate=partial(learning_rate, config.train),
        images=config.train.batch,
        evaluate=evaluate,
        best=("error", lambda: {f"{n}.{k}": v for n, m in pupil.networks.items() for k, v in m.state_dict().items()}),
    )


def make_step(
    pupils: Sequence[Pupil], batches: Sequence[LabelledBatches], hardware: Hardware, progress: TrainingProgress
) -> Step:
    """A function from an iteration's number to the losses of each pupil; on a GPU one CUDA graph, if it can be one."""
    if hardware.compile:
        for pupil in pupils:
            pupil.pixels.compile(dynamic=False)
            pupil.classifier.compile(dynamic=False)

    def compute(inputs: tuple[ClassifierInputs, ...]) -> list[Losses]:
        return on_streams(
            [
                partial(train_pupil, pupil, own, hardware.precision, batch.rank)
                for pupil, own, batch in zip(pupils, inputs, batches, strict=True)
            ],
            hardware.device,
        )

    run = graphed(compute, SideBySide(pupils), batches[0].train, hardware, progress)

    def step(iteration: int) -> list[Losses]:
        for pupil, batch in zip(pupils, batches, strict=True):
            set_learning_rate(pupil, learning_rate(batch.train, iteration))
        return run(tuple(batch.draw(iteration) for batch in batches))

    return step
