"""The training of classifiers, one for each seed, side by side."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from wcgan.classify.batches import ClassifierInputs, LabelledBatches
from wcgan.classify.config import ClassifyConfig
from wcgan.classify.pupil import Pupil, SideBySide, build_pupil, examine, learning_rate, train_pupil
from wcgan.data import Dataset
from wcgan.train.batches import dataset_on
from wcgan.train.graph import graphed, on_streams
from wcgan.train.hardware import Hardware
from wcgan.train.learner import Losses, set_learning_rate
from wcgan.train.loop import Outcome, Step, Task, loop_on, run_tasks
from wcgan.train.parallel import Rank, process_count
from wcgan.train.progress import TrainingProgress
from wcgan.train.run import Run


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
