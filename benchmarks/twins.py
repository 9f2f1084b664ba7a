"""Measure how similar the images of one class are, to detect mode collapse.

    python benchmarks/twins.py results/ablation-cWC/*/seed-0/samples/*.png results/labels/*/samples/*.png --data FOLDER
    python benchmarks/twins.py RUN ...

The arguments are PNG grids from `wcgan train` with one class per row and ten CIFAR-10 images per row, or runs. For a
run, ten images per class are drawn from its last checkpoint, once with the running statistics and once with batch
statistics, as in training. For each image, the script finds the image of its class with the highest pixel correlation.
It prints the median of these correlations, and the share of twins: images whose highest correlation is above 0.8. For
comparison, it prints the same for ten test images per class of each run's dataset, and of CIFAR-10 with `--data`.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from wcgan.core.images import scale_to_show, to_uint8
from wcgan.data import load
from wcgan.runs.folder import Run
from wcgan.runs.sampler import load_generator

TWIN = 0.8
COLUMNS = 10


def png_to_rows(file: Path, columns: int = COLUMNS, resolution: int = 32, border: int = 2) -> Tensor:
    """A grid from `wcgan train` -> `(rows, columns, C, H, W)`."""
    scale, side = scale_to_show(resolution), resolution + border
    pixels = torch.from_numpy(np.array(Image.open(file).convert("RGB")))[::scale, ::scale].permute(2, 0, 1)
    height, width = pixels.shape[1:]
    if width != columns * side + border or (height - border) % side:
        raise ValueError(f"{file} is no grid of {columns} images of {resolution} pixels a row")
    tiles = pixels[:, border:, border:].unfold(1, side, side).unfold(2, side, side)
    return tiles[..., :resolution, :resolution].permute(1, 2, 0, 3, 4)


def name_to_rows(name: str, folder: Path | None) -> Tensor:
    """The first test images of each class `(classes, columns, C, H, W)`."""
    real = load(name, split="test", folder=folder)
    if real.labels is None:
        raise ValueError(f"{name} has no classes")
    return torch.stack([real.images[real.labels == label][:COLUMNS] for label in range(len(real.classes))])


@torch.no_grad()
def run_to_rows(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Images from a run's generator, with the same noise for each class: with running and with batch statistics."""
    sampler = load_generator(folder, device="cpu")
    classes = sampler.config.classes if sampler.conditional else None
    if classes is None:
        raise ValueError(f"{folder} has no classes")
    noise, labels = sampler.noise(COLUMNS, 0).repeat(classes, 1), torch.arange(classes).repeat_interleave(COLUMNS)
    drawn = {"running statistics": sampler.from_noise(noise, labels)}
    sampler.network.train()
    drawn["statistics of the batch"] = to_uint8(sampler.network(noise, labels))
    for how, images in drawn.items():
        yield f"{folder}, {how}", images.unflatten(0, (classes, COLUMNS))


def nearest(rows: Tensor) -> Tensor:
    """`(rows, columns, ...)` -> for each image, its highest correlation with another image of its row."""
    flat = rows.flatten(2).double()
    flat = torch.nn.functional.normalize(flat - flat.mean(2, keepdim=True), dim=2)
    correlations = flat @ flat.mT - 2 * torch.eye(flat.shape[1], dtype=flat.dtype)
    return correlations.amax(2).flatten()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", type=Path, nargs="+", metavar="GRID|RUN")
    parser.add_argument("--data", type=Path)
    args = parser.parse_args(arguments)
    runs = [target for target in args.targets if target.is_dir()]
    sets = {str(file): png_to_rows(file) for file in args.targets if file not in runs}
    for run in runs:
        sets |= run_to_rows(run)
    names = {Run(run).config().data.name for run in runs} | ({"cifar10"} if args.data else set())
    sets |= {f"{name} test": name_to_rows(name, args.data) for name in sorted(names)}
    for name, rows in sets.items():
        found = nearest(rows)
        print(f"{found.median():.3f}  {(found > TWIN).double().mean():4.0%} twins  {name}")


if __name__ == "__main__":
    main()
