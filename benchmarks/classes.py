"""Does one class of a generator fare worse than the others? Sizes of activations, and scores, class by class.

    python benchmarks/classes.py cifar10-best RUN ... [--images 1000] [--data FOLDER] [--features classifier] [--cost]
    python benchmarks/classes.py cifar10-best RUN ... --layers

Whitening gives all directions of a batch the same variance, but over all its classes together: one class can have most
of it. Looked at is the output of the last block, for the same noise with each class:

- `size`: its root mean square, in units of the median over the classes; 1 if all are equal.
- `share`: of the variance after whitening, which all classes together have; 10 % for each of ten equal ones.
- `rank`: effective number of directions that the class fills after whitening, (tr S)^2 / |S|^2.

`accuracy` is the share of a class's images that the small classifier recognises. `FID` is between its generated and its
test images, in the features of that classifier, or of Inception: compare it between classes and generators, with the
same number of images. `cost` is by how much FID of all classes together falls if this class's images are replaced by
training images: what is lost by drawing the class no better.

`--layers` prints the shares at each normalisation of the generator, from the first to the last: those of the plain
variance, and those after whitening. `spread` is the largest eigenvalue of the plain covariance, divided by the median
one: half precision rounds directions away that are much smaller than the largest.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from wcgan.core.device import find_device
from wcgan.core.processes import Rank
from wcgan.core.terminal import rows_to_markdown
from wcgan.data import Dataset
from wcgan.evaluate.fid import features_to_moments, frechet_distance
from wcgan.evaluate.image_sets import classifier_for, load_image_set
from wcgan.evaluate.inception import load_inception
from wcgan.evaluate.protocol import Features
from wcgan.runs.config import Config
from wcgan.runs.folder import Run
from wcgan.runs.pretrained import find_source
from wcgan.runs.sampler import Sampler, load_generator

NOISES = 64  # for the activations
HEADS = ("class", "size", "share", "rank", "accuracy", "FID")
Moments = tuple[Tensor, Tensor]
"""Mean `(n, d)` and second moment `(n, d, d)` of each class."""


@dataclass(frozen=True)
class Activations:
    """The output of the last block, class by class."""

    size: list[float]
    """Root mean square, divided by the median over the classes."""
    share: list[float]
    """Of the variance after whitening over all classes."""
    rank: list[float]
    """Effective number of directions after whitening."""


@torch.no_grad()
def measure_moments(sampler: Sampler) -> dict[str, Moments]:
    """What comes into each normalisation of the generator if the same noise is drawn with each class."""
    found: dict[str, list[Moments]] = {}

    def listen(name: str, layer: nn.Module) -> RemovableHandle:
        def note(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            rows = inputs[0].movedim(1, -1).flatten(0, -2).double()  # (N, d, H, W) -> (m, d)
            found.setdefault(name, []).append((rows.mean(0), rows.mT @ rows / len(rows)))

        return layer.register_forward_pre_hook(note)

    named = [pair for pair in sampler.network.named_modules() if pair[0].rpartition(".")[2].startswith("norm")]
    hooks = [listen(name, layer) for name, layer in named]
    try:
        for label in range(sampler.config.classes or 0):
            sampler.from_noise(sampler.noise(NOISES, 0), torch.full((NOISES,), label), batch=NOISES)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: (torch.stack([m for m, _ in own]), torch.stack([m for _, m in own])) for name, own in found.items()}


def spread_of(moments: Moments) -> Tensor:
    """Second moment of each class around the mean of all `(n, d, d)`."""
    mean, moment = moments
    centre = mean.mean(0)
    cross = mean.unsqueeze(2) * centre
    return moment - cross - cross.mT + torch.outer(centre, centre)


def whitened(spread: Tensor) -> Tensor:
    """What whitening of all classes together makes of the second moment of each."""
    pooled = spread.mean(0)
    ridge = torch.eye(len(pooled), dtype=pooled.dtype, device=pooled.device) * (1e-6 * pooled.trace() / len(pooled))
    whitening = torch.linalg.inv(torch.linalg.cholesky(pooled + ridge))
    return whitening @ spread @ whitening.mT


def shares_of(spread: Tensor) -> list[float]:
    """The share of each class in the variance of all."""
    trace = spread.diagonal(dim1=1, dim2=2).sum(1)
    return (trace / trace.sum()).tolist()


def compare_activations(sampler: Sampler) -> Activations:
    """Draws the same noise with each class and compares what comes out of the last block."""
    moments = list(measure_moments(sampler).values())[-1]
    size = moments[1].diagonal(dim1=1, dim2=2).mean(1).sqrt()
    white = whitened(spread_of(moments))
    rank = white.diagonal(dim1=1, dim2=2).sum(1).square() / white.square().sum((1, 2))
    return Activations((size / size.quantile(0.5)).tolist(), shares_of(white), rank.tolist())


def layers_to_rows(sampler: Sampler) -> list[tuple[str, ...]]:
    """Two rows per normalisation of the generator: the share of each class before whitening, and after."""
    rows = []
    for name, moments in measure_moments(sampler).items():
        spread = spread_of(moments)
        values = torch.linalg.eigvalsh(spread.mean(0))
        width = f"{float(values[-1] / values.quantile(0.5)):,.0f}"
        for stage, each, first in (("before", spread, width), ("after", whitened(spread), "")):
            rows.append((name, stage, first, *(f"{share:.1%}" for share in shares_of(each))))
    return rows


def predict(network: Features, images: Tensor) -> tuple[Tensor, Tensor | None]:
    parts = [network.predict(part) for part in images.to(network.device).split(network.batch)]
    features, logits = zip(*parts, strict=True)
    return torch.cat(features), None if logits[0] is None else torch.cat(logits)


def generator_to_rows(
    sampler: Sampler, real: Dataset, network: Features, count: int, training: Dataset | None = None
) -> list[tuple[str, ...]]:
    """A row per class, as `HEADS` says; with training images also its cost."""
    assert real.labels is not None
    scores, generated = [], []
    for label, name in enumerate(real.classes):
        images = sampler.from_noise(sampler.noise(count, label), torch.full((count,), label), stay=True)
        features, logits = predict(network, images)
        theirs, _ = predict(network, real.images[real.labels == label][:count])
        fid = frechet_distance(features_to_moments(features), features_to_moments(theirs))
        right = "" if logits is None else f"{float((logits.argmax(1) == label).double().mean()):.1%}"
        scores.append((name, right, f"{fid:.2f}"))
        generated.append(features)
    found = compare_activations(sampler)
    shown = [(f"{a:.2f}", f"{b:.1%}", f"{c:.0f}") for a, b, c in zip(found.size, found.share, found.rank, strict=True)]
    costs = [] if training is None else costs_of(generated, real, training, network)
    last: list[tuple[str, ...]] = [(f"{cost:.2f}",) for cost in costs] or [()] * len(scores)
    return [
        (name, *activations, right, fid, *cost)
        for (name, right, fid), activations, cost in zip(scores, shown, last, strict=True)
    ]


def costs_of(generated: list[Tensor], real: Dataset, training: Dataset, network: Features) -> list[float]:
    """By how much FID of all classes falls if the features of one are replaced by those of training images."""
    assert training.labels is not None
    theirs = features_to_moments(predict(network, real.images)[0])
    whole = frechet_distance(features_to_moments(torch.cat(generated)), theirs)
    costs = []
    for label, own in enumerate(generated):
        images = training.images[training.labels == label][: len(own)]
        mixed = [*generated[:label], predict(network, images)[0], *generated[label + 1 :]]
        costs.append(whole - frechet_distance(features_to_moments(torch.cat(mixed)), theirs))
    return costs


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="RUN|GENERATOR")
    parser.add_argument("--images", type=int, default=1000, help="generated images per class, and real ones at most")
    parser.add_argument("--features", choices=("classifier", "inception"), default="classifier")
    parser.add_argument("--cost", action="store_true", help="also what each class costs; needs the training images")
    parser.add_argument("--layers", action="store_true", help="shares at each normalisation instead, without any data")
    parser.add_argument("--data", type=Path, help="folder of the named datasets")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args(arguments)
    for source in args.sources:
        sampler = load_generator(source, device=args.device)
        if not sampler.conditional:
            parser.error(f"{source} has no classes")
        config = Run(find_source(source)).config()
        print(f"{source}: {config.generator.normalization}, iteration {sampler.iteration}\n")
        if args.layers:
            heads: tuple[str, ...] = ("layer", "whitening", "spread", *sampler.class_names)
            rows = layers_to_rows(sampler)
        else:
            heads = (*HEADS, "cost") if args.cost else HEADS
            rows = score(sampler, config, args)
        print("\n".join(rows_to_markdown(heads, rows, right=heads[2 if args.layers else 1 :])) + "\n", flush=True)


def score(sampler: Sampler, config: Config, args: argparse.Namespace) -> list[tuple[str, ...]]:
    folder, device = None if args.data is None else str(args.data), str(find_device(args.device))
    name, size = config.data.name, (config.generator.resolution, config.generator.channels)
    real = load_image_set(name, "test", folder, *size)
    training = load_image_set(name, "train", folder, *size) if args.cost else None
    network: Features = (
        load_inception(device=device)
        if args.features == "inception"
        else classifier_for(real, name, device, Rank(), folder)
    )
    return generator_to_rows(sampler, real, network, args.images, training)


if __name__ == "__main__":
    main()
