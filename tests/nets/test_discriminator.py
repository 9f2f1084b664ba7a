"""Discriminators: features, heads, spectral normalisation, gradient penalty."""

import pytest
import torch
from tests.nets.cases import CLASSES, KINDS, SAMPLES, make_discriminator, make_images, make_labels, randomize
from torch import nn
from torch.nn.functional import one_hot, relu
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm

from wcgan.nets import Scores

HEADS = ("plain", "projection", "acgan")
RESOLUTIONS = (28, 32, 48, 64, 128)
WEIGHTED = (nn.Conv2d, nn.Linear, nn.Embedding)
POWER_ITERATIONS = 300


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", RESOLUTIONS)
def test_any_resolution_gives_one_score_an_image(kind, side):
    discriminator = make_discriminator(kind=kind, resolution=side, channels=2)
    assert discriminator(make_images(2, 2, side)).realness.shape == (2,)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", HEADS)
def test_only_an_acgan_head_scores_the_classes(kind, head):
    scores = make_discriminator(head, kind=kind)(make_images(), make_labels())
    assert isinstance(scores, Scores)
    assert scores.realness.shape == (SAMPLES,)
    assert (scores.logits is None) == (head != "acgan")
    assert scores.logits is None or scores.logits.shape == (SAMPLES, CLASSES)


def test_resnet_features_are_sums_over_all_positions_not_means():
    discriminator = make_discriminator().eval()
    maps = relu(discriminator.blocks(make_images()))
    assert maps.shape[2:] == (4, 4)
    torch.testing.assert_close(discriminator.features(make_images()), 16 * maps.mean((2, 3)))


def test_only_the_first_resnet_block_takes_its_input_without_a_relu():
    assert [block.first for block in make_discriminator().blocks] == [True, False, False]


def test_dcgan_features_are_the_flattened_maps():
    discriminator = make_discriminator(kind="dcgan").eval()
    assert torch.equal(discriminator.features(make_images()), discriminator.blocks(make_images()).reshape(SAMPLES, -1))


@pytest.mark.parametrize("downsample", [0, 1, 3])
def test_as_many_resnet_blocks_halve_the_side_as_the_config_says(downsample):
    discriminator = make_discriminator(downsample=downsample)
    sides = [16]
    h = make_images()
    for block in discriminator.blocks:
        h = block(h)
        sides.append(h.shape[-1])
    assert sides[1:] == [16 // 2 ** min(k + 1, downsample) for k in range(3)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_projected_score_is_the_plain_score_plus_the_inner_product_with_the_embedding(kind):
    discriminator, labels = make_discriminator("projection", kind=kind), make_labels()
    randomize(discriminator)
    discriminator.eval()
    features = discriminator.features(make_images())
    plain = features @ discriminator.head.dense.weight[0] + discriminator.head.dense.bias
    projection = torch.stack(
        [f @ discriminator.head.embedding.weight[y] for f, y in zip(features, labels, strict=True)]
    )
    torch.testing.assert_close(discriminator(make_images(), labels).realness, plain + projection)


def test_class_scores_are_an_affine_map_of_the_features():
    discriminator = make_discriminator("acgan").eval()
    features = discriminator.features(make_images())
    classifier = discriminator.head.classifier
    expected = features @ classifier.weight.T + classifier.bias
    torch.testing.assert_close(discriminator(make_images()).logits, expected)


def test_weights_of_one_class_are_its_label():
    discriminator, labels = make_discriminator("projection").eval(), make_labels()
    weights = one_hot(labels, CLASSES).float()
    by_weights, by_labels = (discriminator(make_images(), y).realness for y in (weights, labels))
    torch.testing.assert_close(by_weights, by_labels)


def test_weights_of_classes_mix_their_projections():
    discriminator = make_discriminator("projection").eval()
    weights = torch.tensor([0.2, 0.3, 0.5])
    mixed = discriminator(make_images(), weights.expand(SAMPLES, CLASSES)).realness
    single = torch.stack([discriminator(make_images(), torch.full((SAMPLES,), y)).realness for y in range(CLASSES)])
    torch.testing.assert_close(mixed, weights @ single)


@pytest.mark.parametrize("head", ["plain", "acgan"])
def test_other_heads_leave_labels_unread(head):
    discriminator = make_discriminator(head).eval()
    assert torch.equal(discriminator(make_images(), make_labels()).realness, discriminator(make_images()).realness)


def test_a_projection_head_without_labels_says_so():
    with pytest.raises(ValueError, match="a projection head depends on the class"):
        make_discriminator("projection")(make_images())


def test_a_label_out_of_range_is_named():
    with pytest.raises(ValueError, match=f"label {CLASSES} is out of range"):
        make_discriminator("projection")(make_images(), make_labels() + 1)


@pytest.mark.parametrize("shape", [(2, 1, 16, 16), (2, 3, 8, 8), (3, 16, 16)])
def test_images_of_another_shape_are_an_error_that_names_both(shape):
    with pytest.raises(ValueError, match=rf"images must be \(N, 3, 16, 16\), got shape \({shape[0]}, {shape[1]}"):
        make_discriminator()(torch.randn(shape))


def weighted_layers(discriminator):
    return {name: m for name, m in discriminator.named_modules() if isinstance(m, WEIGHTED)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", HEADS)
def test_every_layer_but_the_class_scores_is_spectrally_normalised(kind, head):
    layers = weighted_layers(make_discriminator(head, kind=kind))
    bare = [name for name, layer in layers.items() if not parametrize.is_parametrized(layer, "weight")]
    assert bare == (["head.classifier"] if head == "acgan" else [])


@pytest.mark.parametrize("kind", KINDS)
def test_spectral_normalisation_can_be_left_out(kind):
    layers = weighted_layers(make_discriminator("projection", kind=kind, spectral_norm=False))
    assert not any(parametrize.is_parametrized(layer) for layer in layers.values())


def test_a_forward_pass_makes_one_power_iteration():
    discriminator = make_discriminator("projection")
    for name, layer in weighted_layers(discriminator).items():
        assert layer.parametrizations.weight[0].n_power_iterations == 1, name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_weights_normalised_together_are_those_of_pytorch_one_by_one(kind, memory_format):
    ours = make_discriminator("projection", kind=kind, widths=(4, 6, 6)).double()
    theirs = make_discriminator("projection", kind=kind, widths=(4, 6, 6), spectral_norm=False).double()
    for layer in weighted_layers(theirs).values():
        spectral_norm(layer)
    randomize(ours)
    theirs.load_state_dict(ours.state_dict())  # their state is the same too
    ours, theirs = (network.to(memory_format=memory_format) for network in (ours, theirs))
    images = make_images(dtype=torch.float64).to(memory_format=memory_format)
    for _ in range(2):
        both = [network(images, make_labels()).realness for network in (ours, theirs)]
        torch.testing.assert_close(*both, rtol=1e-12, atol=1e-12)
        for network, realness in zip((ours, theirs), both, strict=True):
            network.zero_grad()
            realness.square().sum().backward()
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=1e-10, atol=1e-10)
        assert parameter.grad.stride() == parameter.stride(), name
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-12, atol=1e-12)


def test_no_normalised_weight_is_left_after_an_error():
    discriminator = make_discriminator("projection")
    with pytest.raises(ValueError, match="call the discriminator with labels"):
        discriminator(make_images())
    with torch.no_grad():
        for layer in weighted_layers(discriminator).values():
            layer.parametrizations.weight.original.zero_()
            assert not layer.weight.nan_to_num().any()


@pytest.mark.parametrize("kind", KINDS)
def test_spectral_norms_are_one_after_some_iterations(kind):
    discriminator = make_discriminator("projection", kind=kind)
    randomize(discriminator)  # away from the weights that the iteration was started with
    for _ in range(POWER_ITERATIONS):
        for layer in weighted_layers(discriminator).values():
            _ = layer.weight
    discriminator.eval()
    for name, layer in weighted_layers(discriminator).items():
        assert torch.linalg.matrix_norm(layer.weight.flatten(1), 2).item() == pytest.approx(1, abs=1e-3), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("spectral_norm", [True, False])
def test_a_gradient_penalty_reaches_every_weight_with_finite_gradients(kind, head, spectral_norm):
    discriminator = make_discriminator(head, kind=kind, spectral_norm=spectral_norm)
    images = make_images().requires_grad_()
    realness = discriminator(images, make_labels()).realness
    (slope,) = torch.autograd.grad(realness.sum(), images, create_graph=True)
    (slope.flatten(1).norm(dim=1) - 1).square().mean().backward()
    weights = [(n, p) for n, p in discriminator.named_parameters() if p.dim() > 1 and "classifier" not in n]
    assert [n for n, p in weights if p.grad is None or not p.grad.isfinite().all() or not p.grad.any()] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_dict_carries_the_whole_discriminator(kind):
    trained, fresh = (make_discriminator("projection", kind=kind, seed=seed) for seed in (0, 1))
    trained(make_images(), make_labels())  # moves the power iteration
    fresh.load_state_dict(trained.state_dict())
    before, after = (d(make_images(), make_labels()).realness for d in (trained, fresh))
    assert torch.equal(before, after)


def test_attention_stands_once_after_the_first_block_of_its_side():
    network = make_discriminator(downsample=1, attention=8)  # 16 x 16, then 8 x 8 three times
    assert [type(block).__name__ for block in network.blocks] == [
        "DownBlock",
        "SelfAttention",
        "DownBlock",
        "DownBlock",
    ]
    assert network(make_images()).realness.shape == (5,)
