"""Compare a discriminator's outputs on training, test and generated images, to detect memorisation.

    python benchmarks/discriminator.py --run FOLDER --data FOLDER --checkpoints 10000,20000 --out FILE

A discriminator that has memorised its training images gives them higher outputs than test images.
`training_above_test` is the share of (training, test) pairs in which the training image has the higher output:
0.5 if the discriminator cannot tell them apart.
"""

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor, nn

from wcgan.core.device import find_device
from wcgan.data import load
from wcgan.evaluate.small_classifier import pixels_to_input
from wcgan.nets import build_discriminator
from wcgan.runs.checkpoint import find_checkpoint, tensors_to_network
from wcgan.runs.folder import Run, find_commit
from wcgan.runs.sampler import load_generator

BATCH = 500


def realness(discriminator: nn.Module, images: Tensor, labels: Tensor | None, device: torch.device) -> Tensor:
    """The outputs `(N,)`, without dequantisation noise: inputs are within 1/128 of those in training."""
    parts = []
    for start in range(0, len(images), BATCH):
        own = None if labels is None else labels[start : start + BATCH].to(device)
        x = pixels_to_input(images[start : start + BATCH].to(device))
        parts.append(discriminator(x, own).realness.double().cpu())
    return torch.cat(parts)


def share_above(first: Tensor, second: Tensor) -> float:
    """The share of pairs in which the first value is larger; ties count as half.

    Example:
        >>> share_above(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0]))
        0.875
    """
    ordered = second.sort().values
    below, not_above = (torch.searchsorted(ordered, first, right=right) for right in (False, True))
    return float((below + not_above).double().mean() / 2 / len(second))


@torch.inference_mode()
def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--checkpoints", default="last", help="last, or iterations separated by commas")
    parser.add_argument("--data", type=Path, help="folder of the named datasets")
    parser.add_argument("--images", type=int, default=10_000, help="number of images of each kind")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(arguments)
    run, device = Run(args.run), find_device(args.device)
    config = run.config()
    discriminator = build_discriminator(config.discriminator).eval().to(device)
    labelled = config.discriminator.head == "projection"
    sets: dict[str, tuple[Tensor, Tensor | None]] = {}
    for split in ("train", "test"):
        data = load(config.data.name, split=split, folder=args.data)
        chosen = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[: args.images]
        sets[split] = data.images[chosen], None if data.labels is None else data.labels[chosen]
    records = []
    for name in args.checkpoints.split(","):
        found = find_checkpoint(run, name)
        tensors_to_network(found, "discriminator", discriminator)
        sampler = load_generator(args.run, name, args.device)
        sets["generated"] = sampler.sample(args.images), sampler.labels(args.images, None)
        said = {kind: realness(discriminator, x, y if labelled else None, device) for kind, (x, y) in sets.items()}
        records.append(
            {
                "iteration": found.facts["iteration"],
                "mean": {kind: round(float(values.mean()), 4) for kind, values in said.items()},
                "standard_deviation": {kind: round(float(values.std()), 4) for kind, values in said.items()},
                "training_above_test": round(share_above(said["train"], said["test"]), 4),
                "test_above_generated": round(share_above(said["test"], said["generated"]), 4),
            }
        )
        print(json.dumps(records[-1]), flush=True)
    facts = {"run": config.preset, "seed": config.train.seed, "images": args.images, "commit": find_commit()}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(facts | {"checkpoints": records}, indent=2) + "\n")


if __name__ == "__main__":
    main()
