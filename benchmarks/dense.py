"""Accuracy of a small dense network on the digits, by what takes the place of batch norm; needs seconds on a CPU.

    python benchmarks/dense.py [--seeds 10] [--epochs 3] [--batch 64] [--learning-rate 0.001]

Layers 64-256-256-10 with `BatchNorm1d(256)` twice, converted by `convert_batchnorm`, trained by Adam on 1,438 digits of
8 x 8 pixels. Prints the share of the 359 test images that are classified correctly: mean, least and most over seeds.
"""

import argparse
from collections.abc import Callable
from statistics import mean

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import wcgan
from wcgan import data

CONVERSIONS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "batch norm": lambda network: network,
    "WC": wcgan.convert_batchnorm,
    "WC, groups=16": lambda network: wcgan.convert_batchnorm(network, groups=16),
    "DBN": lambda network: wcgan.convert_batchnorm(network, "DBN"),
}


def load_digits(split: str) -> tuple[Tensor, Tensor]:
    """Pixels `(N, 64)` in [0, 1], and labels."""
    digits = data.load("digits", split, resolution=8)
    assert digits.labels is not None
    return digits.images.flatten(1).float() / 255, digits.labels


def dense_network(width: int = 256) -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(64, width), nn.BatchNorm1d(width), nn.ReLU()),
        *(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU()),
        nn.Linear(width, 10),
    )


def train(
    network: nn.Module, pixels: Tensor, labels: Tensor, seed: int, epochs: int, batch: int, learning_rate: float
) -> None:
    """Trains by Adam. The last batch of an epoch, which is smaller, is left out."""
    order = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), learning_rate)
    network.train()
    for _ in range(epochs):
        for places in torch.randperm(len(pixels), generator=order).split(batch):
            if len(places) == batch:
                optimizer.zero_grad()
                cross_entropy(network(pixels[places]), labels[places]).backward()
                optimizer.step()


@torch.no_grad()
def accuracy(network: nn.Module, pixels: Tensor, labels: Tensor) -> float:
    return (network.eval()(pixels).argmax(1) == labels).double().mean().item()


def seed_to_accuracy(name: str, seed: int, epochs: int, batch: int, learning_rate: float) -> float:
    """Starting weights and batches are those of the seed, whatever the layer."""
    torch.manual_seed(seed)
    network = CONVERSIONS[name](dense_network())
    train(network, *load_digits("train"), seed, epochs, batch, learning_rate)
    return accuracy(network, *load_digits("test"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="of Adam")
    chosen = parser.parse_args()
    torch.set_num_threads(1)  # more of them would add up in another order
    settings = chosen.epochs, chosen.batch, chosen.learning_rate
    print("| layer | test images classified correctly | least to most |\n|---|---:|---:|")
    for name in CONVERSIONS:
        found = [seed_to_accuracy(name, seed, *settings) for seed in range(chosen.seeds)]
        print(f"| {name} | {mean(found):.1%} | {min(found):.1%} to {max(found):.1%} |")


if __name__ == "__main__":
    main()
