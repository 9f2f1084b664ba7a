"""Would a longer moving average have been better? Averages the last checkpoints of a run and scores the result.

    python benchmarks/averages.py --run FOLDER --last 1,2,4 --out FILE [--images 10000] [--device auto]

Each checkpoint has the moving average of the generator's weights at its iteration. The mean of the last k of them is an
average over k times the distance between checkpoints. Its running statistics are computed anew, over 50 batches, for
k = 1 too. FID is that of the paper's protocol.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

import wcgan
from wcgan.core.device import find_device
from wcgan.evaluate.command import default_protocol, sampler_to_sample
from wcgan.evaluate.image_sets import load_real_images
from wcgan.evaluate.inception import load_inception
from wcgan.evaluate.protocol import Features, protocol_to_plan
from wcgan.evaluate.score import evaluate_generator
from wcgan.nets import Generator, build_generator
from wcgan.runs.checkpoint import fill_network, find_checkpoint, section
from wcgan.runs.config import Config
from wcgan.runs.folder import Run, find_commit
from wcgan.runs.sampler import Sampler
from wcgan.train.gan import STATISTICS_BATCHES


def checkpoints_to_mean(run: Run, iterations: Sequence[int]) -> dict[str, Tensor]:
    """The mean of the averaged generators of some checkpoints, tensor by tensor; counts are those of the last one."""
    mean: dict[str, Tensor] = {}
    for number, iteration in enumerate(iterations, 1):
        for name, tensor in section(find_checkpoint(run, str(iteration)).tensors, "average").items():
            old = mean.get(name, tensor)
            mean[name] = old + (tensor - old) / number if tensor.is_floating_point() else tensor
    return mean


@torch.no_grad()
def renew_statistics(network: Generator, config: Config, device: torch.device) -> None:
    """Computes the running statistics of a generator anew, on noise and labels from a seed."""
    shape, random = (STATISTICS_BATCHES, config.train.generator_batch), torch.Generator().manual_seed(0)
    inputs = [torch.randn(*shape, config.generator.noise, generator=random)]
    if config.generator.conditional:
        inputs.append(torch.randint(0, config.generator.classes or 0, shape, generator=random))
    batches = zip(*(values.to(device) for values in inputs), strict=True)
    wcgan.update_statistics(batches, network, forward=lambda network, batch: network(*batch))


def main(arguments: list[str] | None = None, features: Features | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--last", default="1,2,4", help="numbers of checkpoints to average, separated by commas")
    parser.add_argument("--images", type=int, help="number of generated images, instead of the protocol's")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(arguments)
    run, device = Run(args.run), find_device(args.device)
    config = run.config()
    every = sorted(int(path.stem) for path in run.checkpoints.glob("[0-9]*.safetensors"))
    if not every or not section(find_checkpoint(run, str(every[-1])).tensors, "average"):
        parser.error(f"{args.run} has no checkpoint with a moving average")
    counts = [int(count) for count in args.last.split(",")]
    if not all(1 <= count <= len(every) for count in counts):
        parser.error(f"--last takes numbers from 1 to {len(every)}, the number of checkpoints, got {args.last}")
    network = build_generator(config.generator).to(device)
    protocol, networks = default_protocol(config.data.name), [features or load_inception(device=device)]
    reference = load_real_images(config.data, protocol.split, config.generator.resolution, config.generator.channels)
    plan = protocol_to_plan(protocol, len(reference), images=args.images, metrics=("fid",))
    classes = config.generator.classes if config.generator.conditional else None
    records = []
    for count in counts:
        chosen = every[-count:]
        fill_network(network, checkpoints_to_mean(run, chosen))
        renew_statistics(network, config, device)
        sample = sampler_to_sample(Sampler(network))
        scores = evaluate_generator(sample, reference, networks, plan, classes=classes, metrics=("fid",))
        fid = next(value for name, value in scores.items() if name.startswith("FID"))
        records.append({"checkpoints": chosen, "FID": round(fid, 4), "protocol": scores["protocol"]["name"]})
        print(json.dumps(records[-1]), flush=True)
    facts = {"run": config.preset, "seed": config.train.seed, "commit": find_commit()}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(facts | {"averages": records}, indent=2) + "\n")


if __name__ == "__main__":
    main()
