"""A two-minute tour of the layer: covariances before and after, labels, a swap into a network, training, folding.

    python examples/tour.py
    python examples/tour.py --picture docs/images/covariance.svg

Every printed number is measured in that run.
"""

import argparse
import copy
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, mse_loss

import wcgan

CHANNELS, CLASSES, WIDTH = 12, 3, 24


def mixing_matrix() -> Tensor:
    """A fixed (12, 12) matrix with singular values from 10 down to 0.3, so that all output channels are correlated."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.linalg.qr(torch.randn(CHANNELS, CHANNELS, generator=generator)).Q for _ in range(2))
    return left @ torch.diag(torch.logspace(1, -0.5, CHANNELS)) @ right


def draw_batch(samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images whose channels mix smooth independent sources, and targets that are functions of the sources."""
    noise = torch.randn(samples, CHANNELS, 12, 12, generator=generator)
    sources = 3 * avg_pool2d(noise, 3, stride=1, padding=1)
    images = torch.einsum("ij,njhw->nihw", mixing_matrix(), sources)
    targets = [sources[:, 0] * sources[:, 1], sources[:, 2].abs() - 0.8, (sources[:, 3] - sources[:, 4]).relu()]
    return images, torch.stack(targets, 1)


def covariance(x: Tensor) -> Tensor:
    return wcgan.functional.moments(x.detach())[1]


def largest_correlation(matrix: Tensor) -> float:
    """The largest off-diagonal entry, as a share of the largest entry on the diagonal."""
    apart = matrix - torch.diag(matrix.diagonal())
    return float(apart.abs().max() / matrix.diagonal().max())


def three_covariances() -> dict[str, Tensor]:
    images, _ = draw_batch(64, torch.Generator().manual_seed(1))
    layers = {
        "batch normalisation": wcgan.normalization("BN", CHANNELS),
        "whitening": wcgan.normalization("W-only", CHANNELS),
    }
    return {"input": covariance(images)} | {name: covariance(layer(images)) for name, layer in layers.items()}


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


def heat_map(matrix: Tensor) -> list[str]:
    """Rows of text: a darker cell is a larger entry, relative to the largest of the matrix."""
    try:
        shades = " ░▒▓█"
        shades.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        shades = " .+#@"
    share = matrix.abs() / matrix.abs().max()
    return ["".join(shades[round(4 * float(value))] * 2 for value in row) for row in share]


def print_side_by_side(panels: dict[str, Tensor], captions: list[str]) -> None:
    columns = [[name, *heat_map(matrix), note] for (name, matrix), note in zip(panels.items(), captions, strict=True)]
    for line in zip(*columns, strict=True):
        print(("   " + "     ".join(cell.ljust(2 * CHANNELS) for cell in line)).rstrip())


def draw_svg(panels: dict[str, Tensor]) -> str:
    """Heat maps in a row: red for positive entries, blue for negative, white for zero."""
    cell, gap, top = 16, 32, 40
    side = cell * CHANNELS
    parts = []
    for column, (name, matrix) in enumerate(panels.items()):
        left = gap + column * (side + gap)
        parts.append(f'<text x="{left}" y="28" font-size="17">{name}</text>')
        for i, row in enumerate(matrix / matrix.abs().max()):
            for j, value in enumerate(row.tolist()):
                full = (178, 24, 43) if value > 0 else (33, 102, 172)
                colour = "#" + "".join(f"{round(255 - abs(value) * (255 - part)):02x}" for part in full)
                box = f'x="{left + j * cell}" y="{top + i * cell}" width="{cell}" height="{cell}"'
                parts.append(f'<rect {box} fill="{colour}"/>')
        parts.append(f'<rect x="{left}" y="{top}" width="{side}" height="{side}" fill="none" stroke="#888"/>')
        note = f"off the diagonal: {largest_correlation(matrix):.3f}"
        parts.append(f'<text x="{left}" y="{top + side + 20}" font-size="13" fill="#555">{note}</text>')
    width, height = gap + len(panels) * (side + gap), top + side + 36
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def show_whitening() -> None:
    heading("1. What the layer does to a batch")
    panels = three_covariances()
    print(f"64 images, whose {CHANNELS} channels are mixtures of the same sources. The covariance of the channels:")
    print("Batch normalisation rescales each channel. Whitening also decorrelates them.\n")
    print_side_by_side(panels, [f"off the diagonal: {largest_correlation(m):.3f}" for m in panels.values()])
    print("\n   (the largest entry off the diagonal, as a share of the largest on it)")


def show_labels() -> None:
    heading(f"2. What a label does: ConditionalWhiteningColoring2d({CHANNELS}, classes={CLASSES})")
    torch.manual_seed(0)
    images, _ = draw_batch(300, torch.Generator().manual_seed(2))
    labels = torch.arange(len(images)) % CLASSES
    layer = wcgan.ConditionalWhiteningColoring2d(CHANNELS, classes=CLASSES)
    out = layer(images, labels)
    panels = {f"class {y}": covariance(out[labels == y]) for y in range(CLASSES)}
    print("All samples are whitened together. Then each class gets its own covariance C C^T, where C is the")
    print("sum of the class's matrix and a shared one.\n")
    colors = layer.coloring_slots()[0].detach()  # (classes, d, d)
    gaps = [float((m - c @ c.mT).abs().max() / m.abs().max()) for m, c in zip(panels.values(), colors, strict=True)]
    print_side_by_side(panels, [f"gap to C C^T: {100 * gap:.1f}%" for gap in gaps])
    print("\n   (the largest difference, as a share of the largest entry; a class has 100 of the 300 images)")


def build_network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(CHANNELS, WIDTH, 3, padding=1),
        nn.BatchNorm2d(WIDTH),
        nn.ReLU(),
        nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
        nn.BatchNorm2d(WIDTH),
        nn.ReLU(),
        nn.Conv2d(WIDTH, 3, 1),
    )


def show_swap() -> tuple[nn.Module, nn.Module]:
    heading("3. The swap: wcgan.convert_batchnorm(network)")
    torch.manual_seed(0)
    network = build_network()
    images, _ = draw_batch(32, torch.Generator().manual_seed(3))
    network(images)  # gives the running statistics some content
    swapped = wcgan.convert_batchnorm(copy.deepcopy(network))
    for (name, old), new in zip(network.named_children(), swapped.children(), strict=True):
        if type(old) is not type(new):
            print(f"   layer {name}: {type(old).__name__} becomes\n      {new}")
    with torch.no_grad():
        before, after = network.eval()(images), swapped.eval()(images)
    print(f"   In evaluation the network computes the same: largest change {float((after - before).abs().max()):.1e}")
    return network.train(), swapped.train()


def train(network: nn.Module, steps: int) -> tuple[list[float], float]:
    """The loss of each step, and seconds per step. Every step draws new images, so the loss is on unseen data."""
    generator = torch.Generator().manual_seed(4)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    losses, seconds = [], 0.0
    for _ in range(steps):
        images, targets = draw_batch(32, generator)
        start = time.perf_counter()
        loss = mse_loss(network(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds += time.perf_counter() - start
        losses.append(loss.item())
    return losses, seconds / steps


def show_training(network: nn.Module, swapped: nn.Module, steps: int) -> None:
    heading(f"4. Both networks, trained for {steps} steps from the same weights on the same batches")
    print("The task is to undo the mixing: three non-linear functions of the hidden sources, at every pixel.\n")
    (plain, plain_s), (white, white_s) = train(network, steps), train(swapped, steps)
    print(f"   {'steps':>12}{'batch normalisation':>24}{'whitening and coloring':>26}")
    size = max(1, steps // 8)
    for first in range(0, steps - size + 1, size):
        a, b = (sum(losses[first : first + size]) / size for losses in (plain, white))
        print(f"   {f'{first + 1}-{first + size}':>12}{a:>24.4f}{b:>26.4f}")
    print(f"   {'ms per step':>12}{1e3 * plain_s:>24.1f}{1e3 * white_s:>26.1f}")


def show_folding(swapped: nn.Module) -> None:
    heading("5. The finished network: wcgan.fold(network)")
    folded = wcgan.fold(swapped.eval())
    images, _ = draw_batch(32, torch.Generator().manual_seed(5))
    with torch.no_grad():
        before, after = swapped(images), folded(images)
    for name, constant in folded.named_children():
        layer = swapped.get_submodule(name)
        if type(constant) is not type(layer):
            print(f"   layer {name}: {type(layer).__name__} becomes {constant}")
            left = ", ".join(constant.state_dict()) or "nothing of its own"
            print(f"      {', '.join(layer.state_dict())} -> {left}")
    sizes = [sum(t.numel() for t in network.state_dict().values()) for network in (swapped, folded)]
    print(f"   The network has {sizes[1]} numbers instead of {sizes[0]}, and nothing left to factorise.")
    change = float((after - before).abs().max() / before.abs().max())
    print(f"   The output is the same: largest change {change:.1e} of the largest value")


def main() -> None:
    parser = argparse.ArgumentParser(description="A two-minute tour of the layer.")
    parser.add_argument("--steps", type=int, default=400, help="training steps for each network (default: %(default)s)")
    parser.add_argument("--picture", type=Path, help="write the first figure to this SVG file and stop")
    options = parser.parse_args()
    if options.steps < 1:
        parser.error(f"--steps must be at least 1, got {options.steps}")
    if options.picture is not None:
        options.picture.write_text(draw_svg(three_covariances()))
        return
    start = time.perf_counter()
    show_whitening()
    show_labels()
    network, swapped = show_swap()
    show_training(network, swapped, options.steps)
    show_folding(swapped)
    print(f"\n{time.perf_counter() - start:.0f} seconds. Next: README.md and docs/.")


if __name__ == "__main__":
    main()
