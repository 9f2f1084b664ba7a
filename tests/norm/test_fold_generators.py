"""Whole generators folded: what is left of their normalisations, and that images stay what they were."""

import copy

import pytest
import torch
from tests.nets.cases import CLASSES, CONDITIONAL, KINDS, labels_for, make_generator, make_noise
from tests.norm.cases import PATHS, folded_maps, randomize
from torch import nn

import wcgan
from wcgan.norm.fold import AbsorbedMap

ROUNDING = {"rtol": 0, "atol": 1e-12}


BLOCKS = {"up": {}, "same": {"depth": 2}, "attention": {"attention": 8}, "deconvolution": {"kind": "dcgan"}}


def trained_generator(name, kind="resnet", **fields):
    """In float64, with biases that are not 0 and statistics that are not those of the beginning."""
    generator = make_generator(name, kind=kind, options={"momentum": 0.5}, **fields).double()
    for module in generator.modules():
        if getattr(module, "bias", None) is not None:
            randomize(nn.ParameterList([module.bias]))
    for _ in range(2):
        generator(*inputs(generator))
    return generator.eval().requires_grad_(False)


def inputs(generator, dtype=torch.float64):
    return make_noise(20, dtype=dtype), *labels_for(generator, 20)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PATHS)
def test_images_stay_what_they_were(name, kind):
    generator = trained_generator(name, kind)
    folded = wcgan.fold(generator)
    torch.testing.assert_close(folded(*inputs(generator)), generator(*inputs(generator)), **ROUNDING)


QUICK = ("cBN", "cWC", "cWC_sa", "cWC-diag")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CONDITIONAL])
def test_images_of_one_class_stay_what_they_were(name, kind):
    generator = trained_generator(name, kind)
    noise, labels = inputs(generator)
    expected = generator(noise, torch.full_like(labels, 2))
    torch.testing.assert_close(wcgan.fold(generator, label=2)(noise), expected, **ROUNDING)


QUICKLY_COMPILED = ("attention", "deconvolution")  # the first has what the other residual blocks have
CHANNELS_LAST = [
    pytest.param(
        *(block, compiled),
        id=f"{block}-{'compiled' if compiled else 'eager'}",
        marks=pytest.mark.slow if compiled and block not in QUICKLY_COMPILED else (),
    )
    for block in BLOCKS
    for compiled in (False, True)
]


@pytest.mark.parametrize(("block", "compiled"), CHANNELS_LAST)
@torch.no_grad()
def test_images_in_channels_last_stay_what_they_were(block, compiled):
    generator = trained_generator("WC", **BLOCKS[block])
    folded = wcgan.fold(generator).to(memory_format=torch.channels_last)
    if compiled:
        torch._dynamo.reset()
        folded = torch.compile(folded, backend="aot_eager", fullgraph=True)
    images = folded(*inputs(generator))
    assert images.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(images, generator(*inputs(generator)), **ROUNDING)


@pytest.mark.parametrize("name", ["BN", "WC", "cWC", "cWC_sa"])
def test_in_float32_folding_rounds_no_more_than_the_layers_do(name):
    generator = trained_generator(name)
    single = copy.deepcopy(generator).float()
    exact = generator(*inputs(generator))
    errors = [(model(*inputs(generator, torch.float32)) - exact).abs().max() for model in (single, wcgan.fold(single))]
    assert errors[1] < 4 * errors[0]


def test_of_a_residual_generator_one_map_a_block_is_left():
    folded = wcgan.fold(trained_generator("WC"))
    assert list(folded_maps(folded)) == ["blocks.0.norm1", "blocks.1.norm1"]
    assert folded.blocks[1].norm1.kept == "blocks.1.shortcut (Conv2d) also reads its input"
    assert folded.norm.into == ("blocks.1.conv2", "blocks.1.shortcut")


def test_of_a_convolutional_generator_no_map_is_left():
    folded = wcgan.fold(trained_generator("WC", "dcgan"))
    assert list(folded_maps(folded)) == []
    assert folded.blocks[0].norm.into == ("dense",)


def test_maps_of_classes_stay_and_the_last_one_does_not():
    folded = wcgan.fold(trained_generator("cWC", "dcgan"))
    assert list(folded_maps(folded)) == ["blocks.0.norm", "blocks.1.norm"]
    assert list(folded_maps(folded, AbsorbedMap)) == ["norm"]


def test_one_class_of_a_convolutional_generator_is_as_large_as_one_without_normalisation():
    folded = wcgan.fold(trained_generator("cWC", "dcgan"), label=0)
    plain = [
        m for m in trained_generator("BN", "dcgan").modules() if isinstance(m, nn.Linear | nn.modules.conv._ConvNd)
    ]
    assert sum(t.numel() for t in folded.state_dict().values()) == sum(p.numel() for m in plain for p in m.parameters())


def test_a_folded_generator_still_checks_its_input():
    folded = wcgan.fold(trained_generator("cWC"))
    with pytest.raises(ValueError, match=r"noise must be \(N, 6\), got shape \(2, 5\)"):
        folded(torch.zeros(2, 5, dtype=torch.float64), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match=f"label {CLASSES} is out of range"):
        folded(make_noise(1, dtype=torch.float64), torch.tensor([CLASSES]))
