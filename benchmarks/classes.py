"""Does one class of a generator fare worse than the others? Sizes of activations, and scores, class by class.

    python benchmarks/classes.py cifar10-best RUN ... [--images 1000] [--data FOLDER] [--features classifier]

Whitening gives all directions of a batch the same variance, but over all its classes together: a class that fills many
directions alone has most of it. Looked at is the output of the last block, for the same noise with each class:

- `size`: its root mean square, in units of the median over the classes; 1 if all are equal.
- `share`: of the variance after whitening, which all classes together have; 10 % for each of ten equal ones.
- `rank`: effective number of directions that the class fills after whitening, (tr S)^2 / |S|^2.

`accuracy` is the share of a class's images that the small classifier recognises. `FID` is between its generated and its
test images, in the features of that classifier, or of Inception: compare it between classes and generators, with the
same number of images.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from wcgan.core.device import find_device
from wcgan.core.processes import Rank
from wcgan.core.terminal import rows_to_markdown
from wcgan.data import Dataset
from wcgan.evaluate.fid import features_to_moments, frechet_distance
from wcgan.evaluate.image_sets import classifier_for, load_image_set
from wcgan.evaluate.inception import load_inception
from wcgan.evaluate.protocol import Features
from wcgan.runs.folder import Run
from wcgan.runs.pretrained import find_source
from wcgan.runs.sampler import Sampler, load_generator

NOISES = 64  # for the activations
HEADS = ("class", "size", "share", "rank", "accuracy", "FID")


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
def compare_activations(sampler: Sampler) -> Activations:
    """Draws the same noise with each class and compares what comes out of the last block."""
    means, moments = [], []

    def note(_: nn.Module, __: object, out: Tensor) -> None:
        rows = out.movedim(1, -1).flatten(0, -2).double()  # (N, d, H, W) -> (m, d)
        means.append(rows.mean(0))
        moments.append(rows.mT @ rows / len(rows))

    hook = sampler.network.blocks[-1].register_forward_hook(note)
    try:
        for label in range(sampler.config.classes or 0):
            sampler.from_noise(sampler.noise(NOISES, 0), torch.full((NOISES,), label), batch=NOISES)
    finally:
        hook.remove()
    mean, moment = torch.stack(means), torch.stack(moments)  # (n, d), (n, d, d)
    size = moment.diagonal(dim1=1, dim2=2).mean(1).sqrt()
    centre = mean.mean(0)
    cross = mean.unsqueeze(2) * centre
    spread = moment - cross - cross.mT + torch.outer(centre, centre)  # of each class around the mean of all
    pooled = spread.mean(0)
    ridge = torch.eye(len(pooled), dtype=pooled.dtype, device=pooled.device) * (1e-6 * pooled.trace() / len(pooled))
    whitening = torch.linalg.inv(torch.linalg.cholesky(pooled + ridge))
    white = whitening @ spread @ whitening.mT
    trace = white.diagonal(dim1=1, dim2=2).sum(1)
    rank = trace.square() / white.square().sum((1, 2))
    return Activations((size / size.quantile(0.5)).tolist(), (trace / trace.sum()).tolist(), rank.tolist())


def predict(network: Features, images: Tensor) -> tuple[Tensor, Tensor | None]:
    parts = [network.predict(part) for part in images.to(network.device).split(network.batch)]
    features, logits = zip(*parts, strict=True)
    return torch.cat(features), None if logits[0] is None else torch.cat(logits)


def generator_to_rows(sampler: Sampler, real: Dataset, network: Features, count: int) -> list[tuple[str, ...]]:
    """A row per class, as `HEADS` says."""
    assert real.labels is not None
    rows: list[tuple[str, ...]] = []
    found = compare_activations(sampler)
    for label, (size, share, rank) in enumerate(zip(found.size, found.share, found.rank, strict=True)):
        images = sampler.from_noise(sampler.noise(count, label), torch.full((count,), label), stay=True)
        features, logits = predict(network, images)
        theirs, _ = predict(network, real.images[real.labels == label][:count])
        fid = frechet_distance(features_to_moments(features), features_to_moments(theirs))
        right = "" if logits is None else f"{float((logits.argmax(1) == label).double().mean()):.1%}"
        rows.append((real.classes[label], f"{size:.2f}", f"{share:.1%}", f"{rank:.0f}", right, f"{fid:.2f}"))
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="RUN|GENERATOR")
    parser.add_argument("--images", type=int, default=1000, help="generated images per class, and test images at most")
    parser.add_argument("--features", choices=("classifier", "inception"), default="classifier")
    parser.add_argument("--data", type=Path, help="folder of the named datasets")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args(arguments)
    folder, device = None if args.data is None else str(args.data), str(find_device(args.device))
    for source in args.sources:
        sampler = load_generator(source, device=args.device)
        if not sampler.conditional:
            parser.error(f"{source} has no classes")
        config = Run(find_source(source)).config()
        size = config.generator.resolution, config.generator.channels
        real = load_image_set(config.data.name, "test", folder, *size)
        by_classifier = args.features == "classifier"
        network: Features = (
            classifier_for(real, config.data.name, device, Rank(), folder)
            if by_classifier
            else load_inception(device=device)
        )
        rows = generator_to_rows(sampler, real, network, args.images)
        print(f"{source}: {config.generator.normalization}, iteration {sampler.iteration}\n")
        print("\n".join(rows_to_markdown(HEADS, rows, right=HEADS[1:])) + "\n", flush=True)


if __name__ == "__main__":
    main()
