"""How exactly are the batches of a generator whitened in the arithmetic of its training?

    python benchmarks/whitening_error.py cifar10-best RUN ... [--batch 256] [--grow 1 2 4 8]

Draws a batch of all classes in turn, normalised by its own statistics in float32, and looks at what comes into each
normalisation that whitens, rounded to bfloat16. Printed for each:

- `spread`: the largest eigenvalue of the covariance, divided by the median one;
- `condition`: the same, divided by the smallest one;
- `rounding`: the error of the whitened batch that this rounding alone makes, root mean square, and that of its worst
  direction; the whitened batch itself has 1;
- `output`: the smallest and the largest variance of the whitened batch. Both are 1 but for rounding and for the
  shrinkage, if no retry added more of it. The covariance is the library's on this device;
- `not centred`: the same if the sums of bfloat16 numbers are not centred, as in the GPU kernels, and taken in float32.
  On a CPU such sums are more exact than on tensor cores, so this is the least to expect of a GPU.

`--grow` repeats this with the largest direction of each layer times these numbers.
"""

import argparse

import torch
from torch import Tensor, nn

from wcgan import functional
from wcgan.core.device import find_device
from wcgan.core.terminal import rows_to_markdown
from wcgan.norm import use_batch_statistics
from wcgan.norm._base import WhiteningLayer
from wcgan.runs.sampler import load_generator

HEADS = ("normalisation", "grown", "spread", "condition", "rounding", "output", "not centred")
SHARES = 132  # partial sums, as many as the card has multiprocessors


@torch.no_grad()
def draw(source: str, batch: int, device: torch.device) -> dict[str, tuple[Tensor, float]]:
    """What comes into each normalisation of a generator that whitens by Cholesky: `(m, d)`, and its eps."""
    sampler = load_generator(source, device=str(device))
    network = use_batch_statistics(sampler.network)
    found: dict[str, tuple[Tensor, float]] = {}
    for name, layer in network.named_modules():
        if isinstance(layer, WhiteningLayer) and layer.whitening == "cholesky" and layer.groups == 1:

            def note(_: nn.Module, inputs: tuple[Tensor, ...], name: str = name, eps: float = layer.eps) -> None:
                found[name] = (inputs[0].movedim(1, -1).flatten(0, -2), eps)

            layer.register_forward_pre_hook(note)
    labels = sampler.labels(batch, None)
    given = (sampler.noise(batch, 0),) if labels is None else (sampler.noise(batch, 0), labels)
    network(*(each.to(device) for each in given))
    if not found:
        raise ValueError(f"{source} has no normalisation that whitens all channels by Cholesky")
    return found


def covariance_of(rows: Tensor) -> Tensor:
    """In float64."""
    centred = rows.double() - rows.double().mean(0)
    return centred.mT @ centred / (len(rows) - 1)


def without_centring(rows: Tensor) -> Tensor:
    """The covariance by sums in float32 that the mean is subtracted from afterwards."""
    parts = rows.float().chunk(SHARES)
    products = torch.stack([part.mT @ part for part in parts]).sum(0)
    mean = torch.stack([part.sum(0) for part in parts]).sum(0) / len(rows)
    return (products - len(rows) * torch.outer(mean, mean)) / (len(rows) - 1)


def grow(rows: Tensor, factor: float) -> Tensor:
    """The rows with the direction of their largest variance times a factor, mean included."""
    largest = torch.linalg.eigh(covariance_of(rows))[1][:, -1]
    x = rows.double()
    return x + (factor - 1) * torch.outer(x @ largest, largest)


def rounding_error(rows: Tensor) -> tuple[float, float]:
    """The error of the whitened rows if bfloat16 rounds them first: root mean square, and in the worst direction."""
    whitening = torch.linalg.inv(torch.linalg.cholesky(covariance_of(rows)))
    errors = (rows.bfloat16().double() - rows.double()) @ whitening.mT
    of_directions = torch.linalg.eigvalsh(errors.mT @ errors / len(rows))
    return of_directions.mean().sqrt().item(), of_directions[-1].sqrt().item()


def output_range(covariance: Tensor, exact: Tensor, eps: float) -> tuple[float, float]:
    """The smallest and the largest variance after whitening by a covariance, if another one is exact."""
    whitening = functional.covariance_to_whitening(covariance, eps=eps).double()
    values = torch.linalg.eigvalsh(whitening @ exact @ whitening.mT)
    return values[0].item(), values[-1].item()


def measure(rows: Tensor, eps: float) -> tuple[float, float, list[tuple[float, float]]]:
    """Spread, condition, and the pairs of the other columns of `HEADS`."""
    rounded = rows.bfloat16()
    exact = covariance_of(rounded)
    values = torch.linalg.eigvalsh(exact)
    library = functional.moments(rounded.mT.unsqueeze(0))[1]
    ranges = [output_range(covariance, exact, eps) for covariance in (library, without_centring(rounded))]
    return (values[-1] / values.median()).item(), (values[-1] / values[0]).item(), [rounding_error(rows), *ranges]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="RUN|GENERATOR")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--grow", type=float, nargs="+", default=[1.0], metavar="FACTOR")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args(arguments)
    for source in args.sources:
        lines = []
        for name, (rows, eps) in draw(source, args.batch, find_device(args.device)).items():
            for factor in args.grow:
                spread, condition, (error, *ranges) = measure(grow(rows, factor), eps)
                shown = ["{:.3f}, worst {:.3f}".format(*error), *(f"{low:.2f} to {high:.2f}" for low, high in ranges)]
                lines.append((name, f"{factor:g}", f"{spread:,.0f}", f"{condition:.1e}", *shown))
        print(source, *rows_to_markdown(HEADS, lines, right=HEADS[1:4]), "", sep="\n")


if __name__ == "__main__":
    main()
