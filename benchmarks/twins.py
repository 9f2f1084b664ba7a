"""How alike the images of one class are: a sign of a generator that collapsed.

    python benchmarks/twins.py results/ablation-cWC/*/seed-0/samples/*.png results/labels/*/samples/*.png --data FOLDER
    python benchmarks/twins.py RUN ...

Grids are PNGs of `wcgan train` with a class in each row, ten images of CIFAR-10 wide. Of a run ten images of each class
are drawn from its last checkpoint twice, once with the running statistics and once, as in training, with those of the
batch. An image's nearest is that of its class with which its pixels correlate most. Printed are the median of these
correlations, and the share of images whose nearest is a twin, above 0.8; and the same of ten test images of each class
of the runs' data sets and, with `--data`, the folder that holds it, of CIFAR-10.
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
    """A grid as `wcgan train` writes it -> `(rows, columns, C, H, W)`."""
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
    """Images of a run's generator, the same noise for each class: with the running statistics, and with a batch's."""
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
    """`(rows, columns, ...)` -> of each image, its largest correlation with another of its row."""
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
