"""Lower bound for the time of a training iteration: operations and bytes, and the time they take on an H200.

    python benchmarks/roofline.py [PRESET ...]

Networks are built on the meta device and run on one image, so that the layers themselves are counted. The count has
convolutions and dense layers (forward and backward), each normalisation's passes over the batch, and Adam. Activations
are bfloat16, and are read and written as if nothing stayed in the cache. ReLU, sums and biases are free, as if fused.
The d x d algebra of whitening and spectral norm is left out: it is bound by latency.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from wcgan.nets import build_discriminator, build_generator
from wcgan.nets.blocks import PooledConv2d, UpsampledConv2d
from wcgan.norm import WhiteningLayer
from wcgan.paper.presets import preset
from wcgan.runs.config import Config

FLOPS, BANDWIDTH = (
    790e12,
    4.3e12,
)  # per second on an H200: bfloat16 products and copies, as measured, not as in the data sheet
ACTIVATION, PARAMETER = 2, 4  # bytes
ADAM = 7  # reads of weight, gradient and two moments, writes of all but the gradient
# Passes of a normalisation over the batch. Forward reads x for the statistics and again for the map, and writes.
# Backward reads x and the gradient for the sums and again for the map, and writes. Whitening makes as many.
NORM_TRAFFIC = {"forward": 3, "backward": 5}
# Products of d x d with d x m, in units of d^2 m operations. Forward: half a Gram matrix and a map; backward: two sums
# and two maps.
WHITENING_PRODUCTS = {"forward": 1 + 2, "backward": 2 + 2 + 2}
COMPOSED = 9 / 4  # products of a 3x3 kernel with upsampling or pooling, per product of the 4x4 kernel that merges both


@dataclass(frozen=True)
class Layer:
    """The forward pass of a layer for one image."""

    kind: str
    flops: float
    inputs: int
    """Values it reads."""
    outputs: int
    """Values it writes."""
    weights: int
    needs_gradient: bool
    """Whether its input needs a gradient."""
    written_flops: float
    """The layer as the paper writes it: a 3x3 convolution, and separate upsampling or pooling."""


@dataclass(frozen=True)
class Work:
    """Passes of a layer over a batch."""

    kind: str
    flops: float
    bytes: float
    written_flops: float

    @property
    def seconds(self) -> float:
        """The longer of the times for computing and for moving data."""
        return max(self.flops / FLOPS, self.bytes / BANDWIDTH)


@dataclass(frozen=True)
class Floor:
    """An iteration on an H200; milliseconds at full speed.

    Attributes:
        tflop: operations of all products.
        tflop_of_whitening: those among them that batch normalisation does without.
        tflop_as_written: with upsampling and pooling apart from their convolutions, as the paper writes them.
        gigabytes: activations read and written, and Adam.
        compute_ms: of the operations alone.
        compute_as_written_ms: of those as the paper writes them.
        memory_ms: of the bytes alone.
        roofline_ms: layer by layer, the longer of the two.
    """

    tflop: float
    tflop_of_whitening: float
    tflop_as_written: float
    gigabytes: float
    compute_ms: float
    compute_as_written_ms: float
    memory_ms: float
    roofline_ms: float


def network_to_layers(network: nn.Module, run: Callable[[], Tensor]) -> list[Layer]:
    """The layers that `run` passes through, in order."""
    found: list[Layer] = []

    def note(module: nn.Module, inputs: tuple[Any, ...], out: Tensor) -> None:
        found.append(module_to_layer(module, inputs[0], out))

    kinds = (nn.Conv2d, nn.ConvTranspose2d, nn.Linear, WhiteningLayer)
    handles = [module.register_forward_hook(note) for module in network.modules() if isinstance(module, kinds)]
    run()
    for handle in handles:
        handle.remove()
    return found


def module_to_layer(module: nn.Module, x: Tensor, out: Tensor) -> Layer:
    samples = x.shape[0]
    inputs, outputs = x.numel() // samples, out.numel() // samples
    if isinstance(module, WhiteningLayer):
        full = module.whitening not in ("standardize", "none")
        flops = float(module.num_features // module.groups * inputs) if full else 0.0  # d^2 m, in units of products
        return Layer("normalization", flops, inputs, outputs, 0, x.requires_grad, flops)
    weight = module.weight
    assert isinstance(weight, Tensor)
    places = inputs if isinstance(module, nn.ConvTranspose2d) else outputs  # each meets every number of its kernel
    written = flops = 2.0 * weight.numel() * places / weight.shape[0]
    if isinstance(module, UpsampledConv2d | PooledConv2d):
        # A 4x4 kernel of stride 2: as a transposed convolution each output sees a quarter of it, else all of it.
        flops *= 16 / 9 / (4 if isinstance(module, UpsampledConv2d) else 1)
        written = COMPOSED * flops
    return Layer("convolution", flops, inputs, outputs, weight.numel(), x.requires_grad, written)


def forward(layers: list[Layer], images: int) -> list[Work]:
    return [_work(layer, images, "forward") for layer in layers]


def backward(layers: list[Layer], images: int, weights: bool) -> list[Work]:
    """Gradients of the weights, and of the inputs that need them."""
    work = []
    for layer in layers:
        if layer.needs_gradient:
            work.append(_work(layer, images, "backward"))
        if weights and layer.kind == "convolution":
            work.append(_work(layer, images, "backward"))
    return work


def _work(layer: Layer, images: int, direction: str) -> Work:
    norm = layer.kind == "normalization"
    scale = images * (WHITENING_PRODUCTS[direction] if norm else 1)
    numbers = NORM_TRAFFIC[direction] * layer.inputs if norm else layer.inputs + layer.outputs
    moved = ACTIVATION * (images * numbers + layer.weights)
    return Work(layer.kind, scale * layer.flops, moved, scale * layer.written_flops)


def config_to_work(config: Config) -> list[Work]:
    """All the work of one iteration."""
    train = config.train
    with torch.device("meta"):
        generator, discriminator = build_generator(config.generator), build_discriminator(config.discriminator)
        labels = torch.zeros(1, dtype=torch.int64) if config.generator.conditional else None
        noise = torch.zeros(1, config.generator.noise)
        images = torch.zeros(1, config.generator.channels, config.generator.resolution, config.generator.resolution)
    g = network_to_layers(generator, lambda: generator(noise, labels))
    d_alone = network_to_layers(discriminator.blocks, lambda: discriminator.features(images))
    d_behind = network_to_layers(discriminator.blocks, lambda: discriminator.features(images.requires_grad_()))
    sizes = {name: sum(p.numel() for p in net.parameters()) for name, net in (("g", generator), ("d", discriminator))}

    def adam(parameters: int) -> Work:
        return Work("adam", 0.0, ADAM * PARAMETER * parameters, 0.0)

    seen = train.batch * (3 if train.consistency else 2)  # consistency shows the real images twice
    update = forward(d_alone, seen) + backward(d_alone, seen, weights=True) + [adam(sizes["d"])]
    critic = forward(g, train.critic_steps * train.batch) + train.critic_steps * update
    number = train.generator_batch
    through = forward(d_behind, number) + backward(d_behind, number, weights=False)
    return critic + forward(g, number) + backward(g, number, weights=True) + through + [adam(sizes["g"])]


def work_to_floor(work: list[Work]) -> Floor:
    flops, written, moved = (sum(getattr(part, name) for part in work) for name in ("flops", "written_flops", "bytes"))
    return Floor(
        tflop=flops / 1e12,
        tflop_of_whitening=sum(part.flops for part in work if part.kind == "normalization") / 1e12,
        tflop_as_written=written / 1e12,
        gigabytes=moved / 1e9,
        compute_ms=1e3 * flops / FLOPS,
        compute_as_written_ms=1e3 * written / FLOPS,
        memory_ms=1e3 * moved / BANDWIDTH,
        roofline_ms=1e3 * sum(part.seconds for part in work),
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = ["cifar10/WC SN + ResNet", "cifar10/cWC SN + Proj. Discr."]
    parser.add_argument("presets", nargs="*", default=default, metavar="PRESET")
    for name in parser.parse_args(arguments).presets:
        floor = work_to_floor(config_to_work(preset(name)))
        print(name, *(f"  {field:24}{value:8.2f}" for field, value in asdict(floor).items()), sep="\n")


if __name__ == "__main__":
    main()
