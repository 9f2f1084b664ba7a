"""A trained classifier from the folder of its run."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from wcgan.classify.batches import Pixels
from wcgan.classify.config import ClassifyConfig
from wcgan.nets import ResidualClassifier, build_classifier
from wcgan.train.checkpoint import tensors_to_network
from wcgan.train.hardware import find_device
from wcgan.train.loading import find_checkpoint
from wcgan.train.run import Run


class Predictor:
    """A classifier at rest: from uint8 images to classes.

    Args:
        pixels: readies the images.
        network: the classifier.
        class_names: in the order of its outputs.
        iteration: how long it was trained.
    """

    def __init__(
        self, pixels: Pixels, network: ResidualClassifier, class_names: Sequence[str] = (), iteration: int | None = None
    ) -> None:
        self.pixels, self.network = pixels, network
        self.class_names, self.iteration = tuple(class_names), iteration

    @torch.no_grad()
    def probabilities(self, images: Tensor, batch: int = 1000) -> Tensor:
        """`(N, C, H, W)` uint8 to the probability of each class `(N, classes)`, on the CPU."""
        if images.dtype != torch.uint8 or images.dim() != 4:
            raise ValueError(f"images must be uint8 pixels (N, C, H, W), got {images.dtype} {tuple(images.shape)}")
        device = self.pixels.mean.device
        return torch.cat([self.network(self.pixels(some.to(device))).softmax(1).cpu() for some in images.split(batch)])


def load_classifier(path: str | Path, checkpoint: str = "last", device: str = "auto") -> Predictor:
    """The classifier of a run.

    Args:
        path: the folder of a run of `wcgan classify`.
        checkpoint: `"last"`, `"best"` (by the error on the test split) or the number of an iteration.
        device: `"auto"`, `"cpu"`, `"cuda"` or `"cuda:N"`.
    """
    run = Run(Path(path))
    config, found = run.config(ClassifyConfig), find_checkpoint(run, checkpoint)
    pixels, network = Pixels(config.classifier.channels), build_classifier(config.classifier)
    tensors_to_network(found, "pixels", pixels)
    tensors_to_network(found, "classifier", network)
    for part in (pixels, network):
        part.requires_grad_(False).eval().to(find_device(device))
    return Predictor(pixels, network, found.facts.get("classes", ()), found.facts.get("iteration"))
