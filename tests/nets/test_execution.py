"""The same networks in another memory format, under autocast and compiled."""

import copy

import pytest
import torch
from tests.nets.cases import KINDS, labels_for, make_discriminator, make_generator, make_images, make_labels, make_noise

CHANNELS_LAST = torch.channels_last


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["BN", "WC", "cWC"])
def test_a_channels_last_generator_makes_the_same_images(kind, name):
    generator = make_generator(name, kind=kind).double()
    other = copy.deepcopy(generator).to(memory_format=CHANNELS_LAST)
    noise, labels = make_noise(dtype=torch.float64), labels_for(generator)
    images = other(noise, *labels)
    assert images.is_contiguous(memory_format=CHANNELS_LAST)
    torch.testing.assert_close(images, generator(noise, *labels), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_channels_last_discriminator_gives_the_same_scores(kind):
    discriminator = make_discriminator(kind=kind).double()
    other = copy.deepcopy(discriminator).to(memory_format=CHANNELS_LAST)
    images = make_images(dtype=torch.float64)
    scores = other(images.contiguous(memory_format=CHANNELS_LAST)).realness
    assert other.blocks(images).is_contiguous(memory_format=CHANNELS_LAST)
    torch.testing.assert_close(scores, discriminator(images).realness, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_under_autocast_convolutions_are_in_half_precision_and_images_are_not(kind):
    generator = make_generator("cWC", kind=kind)
    with torch.autocast("cpu", torch.bfloat16):
        maps = generator.blocks[0](torch.randn(4, 8, 4, 4), make_labels(4))
        images = generator(make_noise(), make_labels())
    assert (maps.dtype, images.dtype) == (torch.bfloat16, torch.float32)
    assert (images != images.bfloat16()).any()
    images.sum().backward()
    assert all(p.grad.isfinite().all() for p in generator.parameters())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", ["plain", "projection", "acgan"])
def test_under_autocast_convolutions_are_in_half_precision_and_scores_are_not(kind, head):
    discriminator = make_discriminator(head, kind=kind)
    with torch.autocast("cpu", torch.bfloat16):
        maps = discriminator.blocks[0](make_images())
        scores = discriminator(make_images(), make_labels())
    assert maps.dtype == torch.bfloat16
    found = [score for score in scores if score is not None]
    assert {score.dtype for score in found} == {torch.float32}
    assert all((score != score.bfloat16()).any() for score in found)
    scores.realness.sum().backward()
    assert all(p.grad.isfinite().all() for n, p in discriminator.named_parameters() if "classifier" not in n)


@pytest.fixture
def compiled():
    """A function that compiles without a graph break, and without a compiler of C++."""

    def compile_whole(module):
        torch._dynamo.reset()
        return torch.compile(module, backend="aot_eager", fullgraph=True)

    yield compile_whole
    torch._dynamo.reset()


OTHERS = [("resnet", "WC"), ("dcgan", "cWC")]


@pytest.mark.parametrize(
    ("kind", "name"), [("resnet", "cWC"), ("dcgan", "WC"), *(pytest.param(*o, marks=pytest.mark.slow) for o in OTHERS)]
)
def test_a_compiled_generator_trains_as_one_graph(compiled, kind, name):
    eager = make_generator(name, kind=kind, widths=(4,)).double()
    other = copy.deepcopy(eager)
    noise, labels = make_noise(dtype=torch.float64), labels_for(eager)
    assert_same_step(eager, other, lambda network: network(noise, *labels).square(), compiled)


@pytest.mark.parametrize(
    ("kind", "head"), [("resnet", "projection"), pytest.param("dcgan", "acgan", marks=pytest.mark.slow)]
)
def test_a_compiled_discriminator_with_spectral_normalisation_trains_as_one_graph(compiled, kind, head):
    eager = make_discriminator(head, kind=kind, widths=(4, 4), downsample=1, resolution=8).double()
    images = make_images(side=8, dtype=torch.float64)
    assert_same_step(
        eager, copy.deepcopy(eager), lambda network: sum_of_scores(network(images, make_labels())), compiled
    )


def sum_of_scores(scores):
    return scores.realness.sum() + (0 if scores.logits is None else scores.logits.square().sum())


def assert_same_step(eager, other, run, compiled):
    """Outputs, gradients, and what a training pass leaves in buffers."""
    expected, output = run(eager), run(compiled(other))
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)
    expected.sum().backward()
    output.sum().backward()
    for first, second in zip(eager.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(second.grad, first.grad, rtol=1e-8, atol=1e-8)
    for first, second in zip(eager.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(second, first, rtol=1e-10, atol=1e-10)
