"""Your own parts of a training: callbacks and loggers, losses, networks."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from torch import Tensor, nn

from wcgan.core.config import config_to_dict, flattened
from wcgan.core.device import find_device
from wcgan.nets import Discriminator, Generator, GeneratorConfig, Scores
from wcgan.norm._base import check_module
from wcgan.runs.checkpoint import find_checkpoint, section, tensors_to_network
from wcgan.runs.folder import Run
from wcgan.runs.sampler import Sampler

# Callbacks


@dataclass(frozen=True)
class Training:
    """What a callback may look at, and the way to end a training early."""

    run: Run
    config: Any
    """The `Config` of a GAN, or the `ClassifyConfig` of a classifier."""
    iteration: int
    """Where the training starts: 0, or the checkpoint that it resumes from."""
    sampler: Sampler | None = None
    """Draws images from the generator as it is now; None for a classifier."""
    stop: Callable[[], None] = field(default=lambda: None)
    """Ends the training with a checkpoint, after the next iteration at the latest."""


class Callback:
    """Base class of callbacks: override what you need. The first process of a training calls them, in their order.

    An error in a callback ends the training; the checkpoints written so far stay.
    """

    training: Training

    def on_start(self, training: Training) -> None:
        """Before the first iteration; the others can then use `self.training`."""
        self.training = training

    def on_metrics(self, iteration: int, values: Mapping[str, float]) -> None:
        """With losses every `train.log_every` iterations, and with scores after an evaluation."""

    def on_images(self, iteration: int, grid: Tensor) -> None:
        """With a grid of samples, `(C, H, W)` uint8, every `train.sample_every` iterations."""

    def on_checkpoint(self, iteration: int, path: Path) -> None:
        """With the file of a checkpoint, after it was written."""

    def on_end(self) -> None:
        """At the end, after an error too."""


# Loggers


class TensorBoard(Callback):
    """Writes TensorBoard events into the folder of the run. Every training has one, if TensorBoard is installed."""

    def on_start(self, training: Training) -> None:
        super().on_start(training)
        from torch.utils.tensorboard import SummaryWriter

        # What a resumed run writes again is dropped.
        purge = training.iteration + 1 if training.iteration else None
        self._writer = SummaryWriter(str(training.run.folder), purge_step=purge)

    def on_metrics(self, iteration: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, iteration)

    def on_images(self, iteration: int, grid: Tensor) -> None:
        self._writer.add_image("samples", grid, iteration)

    def on_end(self) -> None:
        self._writer.close()


class WandbLogger(Callback):
    """Logs to Weights & Biases. Needs `pip install 'wcgan[wandb]'`.

    A run that is resumed goes on with the same W&B run, whose id is in the run's folder.

    Args:
        project: name of the project.
        **options: further arguments of `wandb.init`, such as `entity`, `tags` or `mode="offline"`.
    """

    def __init__(self, project: str = "wcgan", **options: Any) -> None:
        self.project, self.options = project, options
        self._wandb = _import("wandb", "wandb")

    def on_start(self, training: Training) -> None:
        super().on_start(training)
        folder = training.run.folder
        self._run = self._wandb.init(
            **{
                "project": self.project,
                "name": folder.name,
                "dir": str(folder),
                "config": config_to_dict(training.config),
                "id": _remembered(folder / "wandb.id", lambda: uuid4().hex[:8]),
                "resume": "allow",
                **self.options,
            }
        )

    def on_metrics(self, iteration: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=iteration)

    def on_images(self, iteration: int, grid: Tensor) -> None:
        self._run.log({"samples": self._wandb.Image(_pixels(grid))}, step=iteration)

    def on_end(self) -> None:
        self._run.finish()


class MLflowLogger(Callback):
    """Logs to MLflow. Needs `pip install 'wcgan[mlflow]'`.

    A run that is resumed goes on with the same MLflow run, whose id is in the run's folder.

    Args:
        experiment: name of the experiment; it is created if there is none.
        tracking_uri: a server or a database, such as `sqlite:///mlflow.db`; None for `MLFLOW_TRACKING_URI`, or
            MLflow's own default.
    """

    def __init__(self, experiment: str = "wcgan", tracking_uri: str | None = None) -> None:
        self.experiment = experiment
        self._client = _import("mlflow", "mlflow").MlflowClient(tracking_uri=tracking_uri)

    def on_start(self, training: Training) -> None:
        super().on_start(training)
        folder = training.run.folder
        is_new = not (folder / "mlflow.id").exists()
        self._id = _remembered(folder / "mlflow.id", lambda: self._create(folder.name))
        if is_new:  # MLflow refuses changed ones
            for name, value in flattened(config_to_dict(training.config)).items():
                self._client.log_param(self._id, name, value)

    def _create(self, name: str) -> str:
        found = self._client.get_experiment_by_name(self.experiment)
        experiment = self._client.create_experiment(self.experiment) if found is None else found.experiment_id
        run_id: str = self._client.create_run(experiment, run_name=name).info.run_id
        return run_id

    def on_metrics(self, iteration: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            allowed = name.replace("(", "/").replace(")", "")  # FID(classifier) is not a name for MLflow
            self._client.log_metric(self._id, allowed, value, step=iteration)

    def on_images(self, iteration: int, grid: Tensor) -> None:
        self._client.log_image(self._id, _pixels(grid), f"samples/{iteration:07d}.png")

    def on_end(self) -> None:
        self._client.set_terminated(self._id)


def _import(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} is not installed: pip install 'wcgan[{extra}]' ({error})") from error


def _remembered(file: Path, create: Callable[[], str]) -> str:
    """The text of a file; a new one is written to it if there is none."""
    if not file.exists():
        file.write_text(create(), encoding="utf-8")
    return file.read_text(encoding="utf-8").strip()


def _pixels(grid: Tensor) -> Any:
    """`(C, H, W)` to what image libraries take, `(H, W, 3)`."""
    return grid.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy()


# Losses


class AdversarialLoss(NamedTuple):
    """The two losses of a GAN, functions of the discriminator's scores `(N,)` to a scalar."""

    discriminator: Callable[[Tensor, Tensor], Tensor]
    """Scores of real and of generated images -> the discriminator's loss."""
    generator: Callable[[Tensor], Tensor]
    """Scores of generated images -> the generator's loss."""


# Networks


class OwnGenerator(Generator):
    """A generator of yours, called like those of the package: with noise, and with labels if the config has classes."""

    def __init__(self, network: nn.Module, config: GeneratorConfig) -> None:
        nn.Module.__init__(self)
        self.network = network
        self.config = config

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        images: Tensor = self.network(z) if labels is None else self.network(z, labels)
        expected = (len(z), self.config.channels, self.config.resolution, self.config.resolution)
        if images.shape != expected:
            raise ValueError(f"your generator must return images {expected}, got shape {tuple(images.shape)}")
        return images


class OwnDiscriminator(Discriminator):
    """A discriminator of yours: returns one score per image, `(N,)` or `(N, 1)`, or the package's `Scores`."""

    def __init__(self, network: nn.Module) -> None:
        nn.Module.__init__(self)
        self.network = network

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Scores:
        scores = self.network(images) if labels is None else self.network(images, labels)
        if isinstance(scores, Scores):
            return scores
        if scores.numel() != len(images):
            raise ValueError(f"your discriminator must return one score per image, got shape {tuple(scores.shape)}")
        return Scores(scores.reshape(-1), None)


def load_own_generator(
    run: str | os.PathLike[str], generator: nn.Module, checkpoint: str | int = "last", device: str = "auto"
) -> Sampler:
    """Loads the weights of a run into a copy of your generator, ready to sample; `wcgan.load` is for the package's own.

    Args:
        run: the folder of the run.
        generator: a network of the class that was trained.
        checkpoint: `"last"`, `"best"` or the number of an iteration.
        device: `"auto"`, `"cpu"`, `"cuda"` or `"cuda:N"`.

    Raises:
        TypeError: if the generator is no module, such as a class.
        ValueError: if there is no such run or checkpoint, or its weights do not fit the generator.
    """
    check_module("generator", generator)
    own = Run(Path(run))
    found = find_checkpoint(own, checkpoint)
    network = OwnGenerator(copy.deepcopy(generator), own.config().generator)
    tensors_to_network(found, "average" if section(found.tensors, "average") else "generator", network)
    network.requires_grad_(False).eval().to(find_device(device))
    return Sampler(network, found.facts.get("classes", ()), found.facts.get("iteration"))


@dataclass(frozen=True)
class Custom:
    """The parts of a training that its config does not describe."""

    callbacks: Sequence[Callback] = ()
    loss: AdversarialLoss | None = None
    generator: nn.Module | None = None
    discriminator: nn.Module | None = None
