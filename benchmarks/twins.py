"""How alike the images of one class are, in grids that have a class in each row: a sign of a generator that collapsed.

    python benchmarks/twins.py results/ablation-cWC/*/seed-0/samples/*.png [--data FOLDER]

An image's nearest is that of its row with which its pixels correlate most. Printed are the median of these correlations
over the grid, and the share of images whose nearest is a twin, above 0.8. With `--data`, the folder of CIFAR-10, the
first ten test images of each class are measured too.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from wcgan.data import load
from wcgan.train.images import scale_to_show

TWIN = 0.8


def png_to_rows(file: Path, columns: int = 10, resolution: int = 32, border: int = 2) -> Tensor:
    """A grid as `wcgan train` writes it -> `(rows, columns, C, H, W)`."""
    scale, side = scale_to_show(resolution), resolution + border
    pixels = torch.from_numpy(np.array(Image.open(file).convert("RGB")))[::scale, ::scale].permute(2, 0, 1)
    height, width = pixels.shape[1:]
    if width != columns * side + border or (height - border) % side:
        raise ValueError(f"{file} is no grid of {columns} images of {resolution} pixels a row")
    tiles = pixels[:, border:, border:].unfold(1, side, side).unfold(2, side, side)
    return tiles[..., :resolution, :resolution].permute(1, 2, 0, 3, 4)


def nearest(rows: Tensor) -> Tensor:
    """`(rows, columns, ...)` -> of each image, its largest correlation with another of its row."""
    flat = rows.flatten(2).double()
    flat = torch.nn.functional.normalize(flat - flat.mean(2, keepdim=True), dim=2)
    correlations = flat @ flat.mT - 2 * torch.eye(flat.shape[1], dtype=flat.dtype)
    return correlations.amax(2).flatten()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grids", type=Path, nargs="+")
    parser.add_argument("--data", type=Path)
    args = parser.parse_args(arguments)
    sets = {str(file): png_to_rows(file) for file in args.grids}
    if args.data is not None:
        real = load("cifar10", split="test", folder=args.data)
        assert real.labels is not None
        sets["cifar10 test"] = torch.stack([real.images[real.labels == label][:10] for label in range(10)])
    for name, rows in sets.items():
        found = nearest(rows)
        print(f"{found.median():.2f}  {(found > TWIN).double().mean():4.0%} twins  {name}")


if __name__ == "__main__":
    main()
