"""Accuracy of a whitening matrix's gradient in float32 when two eigenvalues of the covariance are close.

    python benchmarks/zca_gradient.py [RUN ...] [--channels 24] [--trials 20] [--picture docs/images/zca-gradient.svg]

Prints the median relative error over random covariances, against the closed form in float64; for batches with fewer
positions than channels, the number of gradients that are not finite; and for each checkpoint of each run, the smallest
gap between two eigenvalues in any layer of the generator.
"""

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from wcgan.functional import covariance_to_whitening, moments, whiten
from wcgan.functional._factorisations import ZCA, WhiteningKind
from wcgan.nets import build_generator
from wcgan.norm import WhiteningLayer
from wcgan.report.charts import HEIGHT, WIDTH, Series, series_to_svg, swatch
from wcgan.report.html import CHART, tag
from wcgan.runs.checkpoint import find_checkpoint, tensors_to_network
from wcgan.runs.folder import Run

KINDS: tuple[WhiteningKind, ...] = ("cholesky", *ZCA)
GAPS = tuple(10 ** (-power / 2) for power in range(15))
SCALES = (10.0, 1.0, 0.3, 0.1, 0.03)


def close_pair(channels: int, gap: float, seed: int) -> Tensor:
    """A covariance with eigenvalues from 0.1 to 10, including 1 and 1 + gap."""
    generator = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(channels, channels, dtype=torch.float64, generator=generator))
    apart = torch.logspace(-1, 1, channels - 1, dtype=torch.float64)
    middle = (channels - 1) // 2
    values = torch.cat([apart / apart[middle], torch.tensor([1 + gap], dtype=torch.float64)])
    return basis @ torch.diag(values) @ basis.T


def gradient(covariance: Tensor, whitening: WhiteningKind, seed: int) -> Tensor:
    """Gradient of the whitening matrix in a random direction."""
    leaf = covariance.clone().requires_grad_()
    cotangent = torch.randn(leaf.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1000))
    (found,) = torch.autograd.grad(covariance_to_whitening(leaf, whitening), leaf, cotangent.to(leaf.dtype))
    return found


def error(whitening: WhiteningKind, channels: int, gap: float, trials: int) -> float:
    """Relative error of the float32 gradient: median over random covariances."""
    errors = []
    for seed in range(trials):
        covariance = close_pair(channels, gap, seed)
        exact = gradient(covariance, "zca" if whitening in ZCA else whitening, seed)
        errors.append(float((gradient(covariance.float(), whitening, seed) - exact).norm() / exact.norm()))
    return median(errors)


def whiten_by_autodiff(x: Tensor, eps: float = 1e-3) -> Tensor:
    """ZCA whitening, differentiated through PyTorch's `eigh`."""
    values, vectors = torch.linalg.eigh((1 - eps) * torch.cov(x.T) + eps * torch.eye(x.shape[1]))
    return (x - x.mean(0)) @ (vectors / values.sqrt()) @ vectors.T


WHITENERS: dict[str, Callable[[Tensor], Tensor]] = {
    **{kind: partial(whiten, whitening=kind) for kind in KINDS},
    "autodiff of `eigh`": whiten_by_autodiff,
}


def count_nonfinite(name: str, positions: int, channels: int, scale: float, trials: int) -> int:
    """Number of random batches with this standard deviation whose float32 gradient has NaN or Inf."""
    count = 0
    for seed in range(trials):
        generator = torch.Generator().manual_seed(seed)
        x = (scale * torch.randn(positions, channels, generator=generator)).requires_grad_()
        cotangent = torch.randn(x.shape, generator=generator)
        (found,) = torch.autograd.grad(WHITENERS[name](x), x, cotangent)
        count += not bool(found.isfinite().all())
    return count


def smallest_gap(run: Run, checkpoint: str) -> float:
    """Smallest relative gap between neighbouring eigenvalues of a shrunk covariance, over a generator's layers."""
    config = run.config()
    network = build_generator(config.generator).train()
    tensors_to_network(find_checkpoint(run, checkpoint), "generator", network)
    gaps: list[float] = []

    def look(layer: WhiteningLayer, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        _, covariance = moments(inputs[0].double())
        values = (1 - layer.eps) * torch.linalg.eigvalsh(covariance) + layer.eps
        gaps.append(float((values.diff(dim=-1) / values[..., 1:]).min()))

    for layer in network.modules():
        if isinstance(layer, WhiteningLayer):
            layer.register_forward_hook(look)
    noise = torch.randn(
        config.train.generator_batch, config.generator.noise, generator=torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        network(noise)
    return min(gaps)


def errors_to_picture(errors: Mapping[WhiteningKind, list[float]]) -> str:
    series = [
        Series(kind, style, tuple((power / 2, value) for power, value in enumerate(values)))
        for style, (kind, values) in enumerate(errors.items())
    ]
    legend, x = [], 16
    for each in series:
        legend.append(tag("svg", swatch(each.style), x=x, y=HEIGHT + 38, width=26, height=12))
        legend.append(tag("text", each.label, x=x + 34, y=HEIGHT + 49))
        x += 50 + 8 * len(each.label)
    title = "Relative error of the gradient in float32"
    chart = series_to_svg(title, series, "x, where two eigenvalues are 10 to the power of -x apart")
    height = HEIGHT + 66
    picture = tag(
        "svg",
        tag("title", title),
        tag("style", CHART),
        tag("rect", width="100%", height="100%", class_="paper"),
        tag("text", f"{title} (log scale)", x=16, y=20, class_="title"),
        tag("svg", chart, x=0, y=28, width=WIDTH, height=HEIGHT),
        *legend,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH + 16} {height}",
        width=WIDTH + 16,
        height=height,
        role="img",
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{picture}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="folders of unconditional runs")
    parser.add_argument("--channels", type=int, default=24)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--picture", type=Path, help="write the curves to this SVG file")
    args = parser.parse_args()
    errors = {kind: [error(kind, args.channels, gap, args.trials) for gap in GAPS] for kind in KINDS}
    print(f"Relative error of the gradient in float32, {args.channels} channels, median of {args.trials}\n")
    print(f"| gap | {' | '.join(KINDS)} |\n|---|{'---|' * len(KINDS)}")
    for row, gap in list(enumerate(GAPS))[::2]:
        print(f"| {gap:.0e} | {' | '.join(f'{errors[kind][row]:.1e}' for kind in KINDS)} |")
    positions, channels, trials = 64, 96, 50
    print(f"\nGradients that are not finite, of {trials}: {positions} positions, {channels} channels\n")
    print(f"| standard deviation | {' | '.join(WHITENERS)} |\n|---|{'---|' * len(WHITENERS)}")
    for scale in SCALES:
        counts = (count_nonfinite(name, positions, channels, scale, trials) for name in WHITENERS)
        print(f"| {scale:g} | {' | '.join(map(str, counts))} |")
    for run in map(Run, args.runs):
        names = sorted(path.stem for path in run.checkpoints.glob("[0-9]*.json"))
        gaps = (f"{smallest_gap(run, name):.1e} at {int(name):,}" for name in names)
        print(f"\n{run.folder}: smallest gap {', '.join(gaps)}")
    if args.picture:
        args.picture.write_text(errors_to_picture(errors), encoding="utf-8")


if __name__ == "__main__":
    main()
