"""The count of operations: PyTorch's own counter finds as many."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from tests.benchmarks.scripts import load_script
from torch.utils.flop_counter import FlopCounterMode

from wcgan.nets import build_discriminator, build_generator
from wcgan.paper.presets import preset

roofline = load_script("roofline")
PRESETS = ("cifar10/WC SN + ResNet", "cifar10/cWC SN + Proj. Discr.", "cifar10/WC SN + DCGAN")
OPERATORS = (torch.ops.aten.convolution, torch.ops.aten.convolution_backward, torch.ops.aten.addmm)


def counted(run):
    """Operations of convolutions and of the dense layer's forward pass, by PyTorch's counter."""
    with FlopCounterMode(display=False) as counter:
        run()
    found = counter.get_flop_counts()["Global"]
    return sum(found.get(operator, 0) for operator in OPERATORS)


@cache
def iteration(normalization):
    """The work of an iteration of the first preset, with another normalization."""
    config = preset(PRESETS[0])
    return roofline.config_to_work(replace(config, generator=replace(config.generator, normalization=normalization)))


@pytest.mark.parametrize("name", PRESETS)
def test_a_generators_forward_pass_has_the_operations_that_pytorch_counts(name):
    config = preset(name).generator
    with torch.device("meta"):
        generator, noise = build_generator(config), torch.zeros(2, config.noise)
        labels = torch.zeros(2, dtype=torch.int64) if config.conditional else None
    layers = roofline.network_to_layers(generator, lambda: generator(noise, labels))
    products = [work.flops for work in roofline.forward(layers, 2) if work.kind == "convolution"]
    assert sum(products) == counted(lambda: generator(noise, labels))


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("weights", [True, False])
def test_a_discriminators_both_passes_have_the_operations_that_pytorch_counts(name, weights):
    config = preset(name).discriminator
    config = replace(config, spectral_norm=False)  # whose small products PyTorch counts too
    with torch.device("meta"):
        network = build_discriminator(config).requires_grad_(weights)
        images = torch.zeros(2, 3, 32, 32, requires_grad=not weights)
    run = lambda: network.features(images)  # noqa: E731
    layers = roofline.network_to_layers(network.blocks, run)
    work = roofline.forward(layers, 2) + roofline.backward(layers, 2, weights)
    assert sum(part.flops for part in work) == counted(lambda: run().sum().backward())


def test_an_iteration_has_the_operations_of_its_passes():
    floor = roofline.work_to_floor(iteration("BN"))
    g, d = 2.349, 0.328  # GFLOP of a forward pass of an image
    assert floor.tflop == pytest.approx((5 * (64 * g + 3 * 128 * d) + 128 * (3 * g + 2 * d)) / 1e3, rel=0.01)
    assert floor.tflop_of_whitening == 0


def test_consistency_shows_real_images_twice():
    plain = preset("cifar10/best")
    whole = replace(plain, train=replace(plain.train, consistency=10.0))
    more, less = (roofline.work_to_floor(roofline.config_to_work(config)).tflop for config in (whole, plain))
    d = 1.304  # GFLOP of a forward pass of an image
    assert more - less == pytest.approx(5 * 64 * 3 * d / 1e3, rel=0.01)


def test_an_iteration_as_the_paper_writes_it_takes_over_three_teraflop():
    floor = roofline.work_to_floor(iteration("BN"))
    assert (round(floor.tflop, 1), round(floor.tflop_as_written, 1)) == (2.4, 3.4)
    assert floor.compute_as_written_ms == pytest.approx(4.3, abs=0.1)


def test_whitening_adds_products_and_not_a_byte():
    wc, bn = iteration("WC"), iteration("BN")
    parameters = 6 * 256 * 256 + 256 * 256 - 7 * 256  # of seven colorings, full instead of diagonal
    assert sum(w.bytes for w in wc) - sum(w.bytes for w in bn) == 7 * 4 * parameters
    d, positions = 256, (4**2 + 8**2 + 16**2) + (8**2 + 16**2 + 32**2) + 32**2
    wanted = d**2 * positions * (3 * 5 * 64 + (3 + 6) * 128)
    assert sum(w.flops for w in wc) - sum(w.flops for w in bn) == wanted


def test_a_layer_takes_the_longer_of_computing_and_moving():
    work = [roofline.Work("convolution", 790e9, 0.0, 790e9), roofline.Work("normalization", 0.0, 4.3e9, 0.0)]
    floor = roofline.work_to_floor(work)
    assert (floor.compute_ms, floor.memory_ms, floor.roofline_ms) == pytest.approx((1.0, 1.0, 2.0))


def test_the_command_prints_a_floor_for_each_preset(capsys):
    roofline.main([PRESETS[1], PRESETS[2]])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(PRESETS[1:])
    assert sum("roofline_ms" in line for line in lines) == 2
