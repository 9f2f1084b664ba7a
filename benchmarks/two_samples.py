"""Can a small network tell from a generator's images in which batches, and how exactly, they were computed?

    python benchmarks/two_samples.py cifar10-best 320 320 256 320:bfloat16 64 [--images 6400] [--epochs 8]

Each size is one of batches, which their own statistics normalise as in training; `:bfloat16` computes them under an
autocast to bfloat16. Images of the first kind are compared with those of each other one, from other noise. A network
of six convolutions is trained on 5,000 of both to say which is which. Printed is the share of the other images that it
gets right, with its standard error: 50 % if both look alike to it, as they should where the first kind meets itself.
"""

import argparse
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from wcgan.core.device import find_device
from wcgan.core.terminal import rows_to_markdown
from wcgan.norm import use_batch_statistics
from wcgan.runs.sampler import load_generator

BATCH = 64
SHARE = 5000 / 6400  # of the images, to train on


@torch.no_grad()
def draw(source: str, kind: str, count: int, seed: int, device: torch.device) -> Tensor:
    """Images `(count, C, H, W)` in [-1, 1], all classes in turn, normalised in batches."""
    size, _, half = kind.partition(":")
    if not size.isdecimal() or half not in ("", "bfloat16"):
        raise ValueError(f"a kind of images is a size of batches, such as 320 or 320:bfloat16, not {kind}")
    sampler = load_generator(source, device=str(device))
    network, batch, parts = use_batch_statistics(sampler.network), int(size), []
    for number in range(-(-count // batch)):
        z = sampler.noise(batch, seed * count + number).to(device)
        labels = sampler.labels(batch, None)
        given = (z,) if labels is None else (z, labels.to(device))
        with torch.autocast(device.type, torch.bfloat16, enabled=bool(half)):
            parts.append(network(*given).float())
    return torch.cat(parts)[:count]


def small_network(channels: int) -> nn.Sequential:
    def convolution(inputs: int, outputs: int, stride: int) -> Iterator[nn.Module]:
        yield from (nn.Conv2d(inputs, outputs, 3, stride, 1), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1))

    sizes = ((channels, 32), (32, 32), (32, 64), (64, 64), (64, 96), (96, 96))
    layers = [layer for place, size in enumerate(sizes) for layer in convolution(*size, stride=1 + place % 2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 1))


def tell_apart(first: Tensor, second: Tensor, epochs: int) -> tuple[float, int]:
    """The share of held-out images whose kind a small network recognises, and their number."""
    learnt = round(SHARE * len(first))
    images = torch.cat([first[:learnt], second[:learnt]])
    kinds = torch.arange(2 * learnt, device=images.device) >= learnt
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = small_network(first.shape[1]).to(first.device)
        optimizer = torch.optim.Adam(network.parameters(), 1e-3)
        for epoch in range(epochs):
            optimizer.param_groups[0]["lr"] = 1e-3 * (1 - epoch / epochs)
            for places in torch.randperm(2 * learnt).to(first.device).split(BATCH):
                shown = images[places].flip(3) if torch.rand(()) < 0.5 else images[places]
                optimizer.zero_grad()
                binary_cross_entropy_with_logits(network(shown).flatten(), kinds[places].float()).backward()
                optimizer.step()
    network.eval()
    with torch.no_grad():
        said = [torch.cat([network(x).flatten() > 0 for x in each[learnt:].split(256)]) for each in (first, second)]
    right = torch.cat([~said[0], said[1]])
    return right.double().mean().item(), len(right)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="RUN|GENERATOR")
    parser.add_argument("kinds", nargs="+", metavar="SIZE[:bfloat16]", help="two or more; the first meets each other")
    parser.add_argument("--images", type=int, default=6400, help="of each kind")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args(arguments)
    device, rows = find_device(args.device), []
    first = draw(args.source, args.kinds[0], args.images, 0, device)
    for seed, kind in enumerate(args.kinds[1:], 1):
        right, count = tell_apart(first, draw(args.source, kind, args.images, seed, device), args.epochs)
        rows.append((f"{args.kinds[0]} and {kind}", f"{right:.1%}", f"{0.5 / count**0.5:.1%}"))
    print("\n".join(rows_to_markdown(("batches of", "told apart", "standard error"), rows, right=("told apart",))))


if __name__ == "__main__":
    main()
