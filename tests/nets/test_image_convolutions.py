"""The convolutions at an image: PyTorch's, except in a network that is compiled and trained where there are kernels."""

import copy

import pytest
import torch
from tests.nets.cases import randomize
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch.nn.functional import relu

import wcgan
from wcgan.functional import _images, plain_passes
from wcgan.nets import DiscriminatorConfig, GeneratorConfig, build_discriminator, build_generator
from wcgan.nets.blocks import DownBlock, FromImageConv2d, ToImageConv2d

OPERATORS = ["image_to_features", "features_to_image"]
GRADIENTS = ["image_to_features", "image_and_features", "features_to_image", "image_and_features"]
ROUNDING = 2**-7  # of norms: intermediate results are rounded to bfloat16 at other places


class Both(nn.Module):
    """Image to features to image."""

    def __init__(self, width=32):
        super().__init__()
        self.start, self.end = FromImageConv2d(3, width), ToImageConv2d(width, 3)

    def forward(self, x):
        return self.end(self.start(x))


def plain_copy(network):
    """The same network with `nn.Conv2d` and `relu`."""
    start, end = (nn.Conv2d(c.in_channels, c.out_channels, 3, padding=1) for c in (network.start, network.end))
    plain = nn.Sequential(start, nn.ReLU(), end)
    plain.load_state_dict(
        {f"{2 * k}.{n}": v for k, c in enumerate(network.children()) for n, v in c.state_dict().items()}
    )
    return plain


def compiled(network, found):
    """The network, with the names of this library's operators in its programs added to a list."""

    def compile_program(program, _):
        found.extend(str(n.target).split(".")[1] for n in program.graph.nodes if str(n.target).startswith("wcgan."))
        return make_boxed_func(program.forward)

    torch._dynamo.reset()
    return torch.compile(network, backend=aot_autograd(fw_compiler=compile_program, bw_compiler=compile_program))


def run(network, function, x, enabled=True):
    """Output and gradients under autocast."""
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
        out = function(x)
        out = getattr(out, "realness", out)
    return out, *torch.autograd.grad(out.float().square().sum(), (x, *network.parameters()))


@pytest.fixture
def kernels_everywhere(monkeypatch):
    """On a CPU the operators compute by plain operations."""
    monkeypatch.setattr(_images, "_has_kernels", lambda device: True)


def make_images(side=6):
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))


def test_on_a_cpu_results_are_the_bits_of_plain_convolutions():
    network, images = Both(), make_images()
    for one, other in zip(*(run(n, n, images) for n in (network, plain_copy(network))), strict=True):
        assert torch.equal(one, other)


def test_a_compiled_network_in_training_has_the_operators(kernels_everywhere):
    network, found = Both(), []
    outputs = run(network, compiled(network, found), make_images())
    assert found == OPERATORS + GRADIENTS
    for one, other in zip(outputs, run(network, network, make_images()), strict=True):
        assert one.dtype == other.dtype
        assert (one - other).norm() <= ROUNDING * other.norm()


def under_autocast(network, function):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        function(make_images())


def in_evaluation(network, function):
    network.eval()
    under_autocast(network, function)


def in_float32(network, function):
    with torch.no_grad():
        function(make_images())


def with_plain_passes(network, function):
    with plain_passes():
        under_autocast(network, function)


def test_evaluation_float32_and_plain_passes_are_compiled_anew_without_operators(kernels_everywhere):
    network, found = Both(), []
    function = compiled(network, found)
    for how, expected in ((under_autocast, OPERATORS), (in_float32, []), (with_plain_passes, []), (in_evaluation, [])):
        how(network, function)
        assert found == expected
        found.clear()


def test_where_kernels_are_not_supported_programs_have_none(monkeypatch):
    network, found = Both(), []
    under_autocast(network, compiled(network, found))
    monkeypatch.setattr(_images, "_has_kernels", lambda device: True)
    network = Both(width=24)
    under_autocast(network, compiled(network, found))
    assert found == []


@pytest.mark.parametrize("strict", [False, True])
def test_exported_programs_have_none(strict, kernels_everywhere):
    with torch.autocast("cpu", torch.bfloat16):
        program = torch.export.export(Both(), (make_images(),), strict=strict)
    assert "ops.wcgan" not in program.graph_module.print_readable(print_output=False)


def test_checkpoints_have_the_keys_of_plain_convolutions():
    block = DownBlock(3, 32, down=True, first=True, spectral=True)
    other = DownBlock(3, 32, down=True, first=False, spectral=True)
    assert isinstance(block.conv1, FromImageConv2d)
    assert type(nn.Module.__getattr__(other, "conv1")).__mro__[1] is nn.Conv2d  # a parametrised layer has its own class
    shapes = [{name: v.shape for name, v in b.state_dict().items()} for b in (block, other)]
    assert shapes[0] == shapes[1]
    block.load_state_dict(other.state_dict())
    generator = build_generator(GeneratorConfig(widths=(16,)))
    assert {name for name in generator.state_dict() if name.startswith("conv")} == {"conv.weight", "conv.bias"}


def test_the_first_block_has_one_relu_between_its_convolutions():
    block, images = DownBlock(3, 8, down=False, first=True, spectral=False), make_images()
    convolution = nn.functional.conv2d(images, block.conv1.weight, block.conv1.bias, padding=1)
    assert torch.equal(block(images), block.conv2(relu(convolution)) + block.shortcut(images))


@pytest.mark.slow
def test_compiled_players_with_the_operators_are_as_exact_as_those_without(kernels_everywhere):
    torch.manual_seed(0)
    generator = build_generator(GeneratorConfig(widths=(32, 32), normalization="WC"))
    discriminator = build_discriminator(DiscriminatorConfig(widths=(32, 32), downsample=1, resolution=16))
    for network, inputs in ((generator, torch.randn(16, 128)), (discriminator, torch.randn(16, 3, 16, 16))):
        randomize(network)
        twin, reference, found = copy.deepcopy(network), copy.deepcopy(network), []
        exact = run(reference, reference, inputs, enabled=False)
        with plain_passes():
            plain = run(twin, compiled(twin, found), inputs)
        assert not set(found) & set(OPERATORS)
        outputs = run(network, compiled(network, found), inputs)
        assert set(found) & set(OPERATORS)
        for ours, theirs, wanted in zip(outputs, plain, exact, strict=True):
            assert (ours - wanted).norm() <= 3 * (
                theirs - wanted
            ).norm() + 1e-2 * wanted.norm()  # some are all rounding


def test_folding_a_generator_keeps_its_last_convolution():
    generator = build_generator(GeneratorConfig(widths=(16,), normalization="WC")).eval()
    noise = torch.randn(4, 128)
    torch.testing.assert_close(wcgan.fold(generator)(noise), generator(noise), rtol=1e-4, atol=1e-4)
