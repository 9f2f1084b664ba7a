"""Generators: what goes in, what comes out, and that each normalisation trains."""

import copy

import pytest
import torch
from tests.nets.cases import (
    CLASSES,
    CONDITIONAL,
    KINDS,
    NOISE,
    SAMPLES,
    VARIANTS,
    labels_for,
    make_generator,
    make_labels,
    make_noise,
    randomize,
)
from torch.autograd import grad
from torch.nn.functional import conv2d
from torch.nn.utils import parametrize

import wcgan
from wcgan.norm import use_batch_statistics
from wcgan.norm._base import WhiteningLayer

RESOLUTIONS = {28: (7, 2), 32: (4, 3), 48: (6, 3), 64: (4, 4), 128: (4, 5)}  # side -> base, blocks


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", RESOLUTIONS)
def test_images_have_the_resolution_and_channels_of_the_config(kind, side):
    base, blocks = RESOLUTIONS[side]
    generator = make_generator(kind=kind, base=base, widths=(4,) * blocks, channels=2)
    assert generator.config.resolution == side
    assert generator(make_noise(2)).shape == (2, 2, side, side)


@pytest.mark.parametrize("kind", KINDS)
def test_images_lie_between_minus_one_and_one_however_large_the_weights(kind):
    generator = make_generator(kind=kind)
    randomize(generator)
    with torch.no_grad():
        generator.conv.weight.mul_(20)
    images = generator(make_noise())
    assert images.min() == -1
    assert images.max() == 1


@pytest.mark.parametrize("name", VARIANTS)
def test_with_batch_statistics_a_generator_makes_the_images_of_training(name):
    generator = make_generator(name)
    noise, labels = make_noise(), labels_for(generator)
    with torch.no_grad():
        wanted = copy.deepcopy(generator)(noise, *labels)
        assert torch.equal(use_batch_statistics(generator).eval()(noise, *labels), wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_is_dense_blocks_norm_relu_convolution_tanh(kind):
    generator = make_generator("cWC", kind=kind)
    randomize(generator)
    h = generator.dense(make_noise()).reshape(SAMPLES, 8, 4, 4)
    for block in generator.blocks:
        h = block(h, make_labels())
    h = generator.norm(h).clamp_min(0)
    expected = conv2d(h, generator.conv.weight, generator.conv.bias, padding=1).tanh()
    torch.testing.assert_close(generator(make_noise(), make_labels()), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", VARIANTS)
def test_a_step_of_training_moves_every_weight_with_finite_gradients(name, kind):
    generator = make_generator(name, kind=kind)
    optimiser = torch.optim.Adam(generator.parameters(), lr=1e-2)
    before = copy.deepcopy(generator.state_dict())
    images = generator(make_noise(), *labels_for(generator))
    (images * torch.linspace(-1, 1, images.numel()).view_as(images)).sum().backward()
    assert [n for n, p in generator.named_parameters() if p.grad is None or not p.grad.isfinite().all()] == []
    optimiser.step()
    after = generator.state_dict()
    weights = [n for n, p in generator.named_parameters() if p.dim() > 1 and not n.endswith("class_bias")]
    assert [n for n in weights if torch.equal(before[n], after[n])] == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", VARIANTS)
def test_every_layer_but_the_last_is_the_named_normalisation(name, kind):
    generator = make_generator(name, kind=kind)
    layers = [module for module in generator.blocks.modules() if isinstance(module, WhiteningLayer)]
    variant = wcgan.VARIANTS[name]
    assert len(layers) == (4 if kind == "resnet" else 2)
    assert {(m.whitening, m.coloring, getattr(m, "shared", None)) for m in layers} == {
        (variant.whitening, variant.coloring, variant.shared)
    }


@pytest.mark.parametrize("name", VARIANTS)
def test_the_last_layer_has_the_same_whitening_and_no_labels(name):
    last = make_generator(name).norm
    assert last.whitening == wcgan.VARIANTS[name].whitening
    assert not hasattr(last, "classes")


def test_the_last_layer_is_another_one_if_asked():
    generator = make_generator("BN", last_normalization="cWC", classes=CLASSES)
    assert (generator.norm.whitening, generator.norm.classes) == ("cholesky", CLASSES)
    first, second = (generator(make_noise(), make_labels().roll(k)) for k in (0, 1))
    assert not torch.allclose(first, second)


def test_options_reach_every_layer():
    generator = make_generator("cWC_sa", options={"momentum": 0.5, "sync": True, "dictionary": 4})
    layers = [module for module in generator.modules() if isinstance(module, WhiteningLayer)]
    assert {(layer.momentum, layer.sync) for layer in layers} == {(0.5, True)}
    assert {layer.dictionary.shape[0] for layer in layers if hasattr(layer, "classes")} == {4}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CONDITIONAL)
def test_labels_change_the_image(name, kind):
    generator = make_generator(name, kind=kind)
    randomize(generator)
    generator.eval()
    noise = make_noise(1).expand(CLASSES, NOISE)
    images = generator(noise, torch.arange(CLASSES))
    assert all(not torch.allclose(images[i], images[j]) for i in range(CLASSES) for j in range(i))


@pytest.mark.parametrize("name", CONDITIONAL)
def test_weights_of_one_class_are_its_label(name):
    generator, labels = make_generator(name).eval(), make_labels()
    weights = torch.nn.functional.one_hot(labels, CLASSES).float()
    torch.testing.assert_close(generator(make_noise(), weights), generator(make_noise(), labels))


def test_weights_of_two_classes_give_an_image_of_neither():
    generator = make_generator("cWC").eval()
    noise = make_noise(1).expand(3, NOISE)
    mixed, first, second = generator(noise, torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    assert not torch.allclose(mixed, first)
    assert not torch.allclose(mixed, second)


def test_a_conditional_generator_without_labels_says_so():
    with pytest.raises(ValueError, match="cWC depends on the class: call it with labels"):
        make_generator("cWC")(make_noise())


def test_an_unconditional_generator_with_labels_says_so():
    with pytest.raises(ValueError, match="WC has no classes: call it without labels"):
        make_generator("WC")(make_noise(), make_labels())


def test_a_label_out_of_range_is_named():
    with pytest.raises(ValueError, match=f"label {CLASSES} is out of range"):
        make_generator("cWC")(make_noise(), make_labels() + 1)


@pytest.mark.parametrize("shape", [(5, NOISE + 1), (NOISE,), (5, NOISE, 1)])
def test_noise_of_another_shape_is_an_error_that_names_both(shape):
    with pytest.raises(ValueError, match=rf"noise must be \(N, {NOISE}\), got shape \({shape[0]}"):
        make_generator()(torch.randn(shape))


@pytest.mark.parametrize("kind", KINDS)
def test_a_generator_has_no_spectral_normalisation(kind):
    assert not any(parametrize.is_parametrized(module) for module in make_generator(kind=kind).modules())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["BN", "cWC_sa"])
def test_a_state_dict_carries_the_whole_generator(name, kind):
    trained, fresh = make_generator(name, kind=kind), make_generator(name, kind=kind, seed=1)
    labels = labels_for(trained)
    trained(make_noise(), *labels)  # moves the running statistics
    fresh.load_state_dict(trained.state_dict())
    assert torch.equal(fresh.eval()(make_noise(), *labels), trained.eval()(make_noise(), *labels))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_a_folded_generator_makes_the_same_images(name, kind):
    generator = make_generator(name, kind=kind)
    labels = labels_for(generator)
    generator(make_noise(), *labels)
    folded = wcgan.fold(generator)
    torch.testing.assert_close(folded(make_noise(), *labels), generator.eval()(make_noise(), *labels))


def test_a_deeper_generator_with_attention_trains_and_folds():
    generator = make_generator("cWC", depth=2, attention=8)
    names = [type(block).__name__ for block in generator.blocks]
    assert names == ["UpBlock", "SameBlock", "SelfAttention", "UpBlock", "SameBlock"]
    randomize(generator)
    generator(make_noise(), make_labels()).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in generator.parameters())
    generator.eval()
    images = generator(make_noise(), make_labels())
    torch.testing.assert_close(wcgan.fold(generator)(make_noise(), make_labels()), images, rtol=1e-4, atol=1e-4)


CASES = [("resnet", {}), ("dcgan", {}), ("resnet", {"depth": 2}), ("resnet", {"attention": 8})]


def largest_gradients(generator):
    """Of the biases that are redundant, and of the others, by their names."""
    generator.double()
    randomize(generator)
    out = generator(make_noise(dtype=torch.float64), *labels_for(generator))
    biases = {n: p for n, p in generator.named_parameters() if n.endswith("bias") and ".norm" not in f".{n}"}
    largest = {n: g.abs().max().item() for n, g in zip(biases, grad(out.square().sum(), biases.values()), strict=True)}
    redundant = {id(bias) for bias in generator.redundant_biases()}
    return [{n: g for n, g in largest.items() if (id(biases[n]) in redundant) == wanted} for wanted in (True, False)]


@pytest.mark.parametrize(("kind", "fields"), CASES)
@pytest.mark.parametrize("name", ["BN", "WC", "cWC", "C-only"])
def test_redundant_biases_are_those_of_the_blocks_that_get_no_gradient(name, kind, fields):
    redundant, others = largest_gradients(make_generator(name, kind=kind, **fields))
    assert max(redundant.values(), default=0) < 1e-9
    assert min(others.values()) > 1e-4


@pytest.mark.parametrize(("name", "last"), [("BN", "C-only"), ("C-only", "BN")])
def test_no_bias_with_a_gradient_is_redundant_where_one_layer_does_not_whiten(name, last):
    redundant, _ = largest_gradients(make_generator(name, last_normalization=last))
    assert max(redundant.values(), default=0) < 1e-9
