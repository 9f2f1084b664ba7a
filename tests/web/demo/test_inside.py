"""What is shown of a generator's layers."""

import numpy as np
import pytest
import torch
from tests.web.demo.cases import sampler

from wcgan.web.demo.inside import (
    BATCH,
    STATISTICS,
    assignment_picture,
    batch_covariance,
    class_table,
    covariances,
    covariances_to_maps,
    covariances_to_spectrum,
    find_layer,
    heat_map,
    layers_of,
    nearest_classes,
    values_to_colours,
)

FRESH, RUNNING = STATISTICS
LAYER = "blocks.1.norm1"


def layer_input(generator, name, seed):
    """What the first block gives to the second, computed without a hook."""
    assert name == LAYER
    network, labels = generator.network, generator.labels(BATCH, None)
    with torch.no_grad():
        h = network.dense(generator.noise(BATCH, seed)).view(-1, 8, 4, 4)
        return network.blocks[0](h, labels)


def test_the_layers_are_those_of_the_network_in_order():
    assert list(layers_of(sampler())) == ["blocks.0.norm1", "blocks.0.norm2", LAYER, "blocks.1.norm2", "norm"]


@pytest.mark.parametrize("name", ["cWC", "cBN", "WC", "C-only"])
def test_a_fresh_batch_has_the_covariance_of_its_features(name):
    generator = sampler(name)
    features = layer_input(generator, LAYER, 3).double().transpose(0, 1).flatten(1)  # (d, N H W)
    found = batch_covariance(generator, find_layer(generator, LAYER), 3)
    torch.testing.assert_close(found, torch.cov(features), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("name", "options"), [("cWC", {}), ("WzcaC", {}), ("WzcaC", {"groups": 2})])
def test_whitening_leaves_of_the_running_averages_the_identity_but_for_shrinkage(name, options):
    generator = sampler(name, **options)
    found = covariances(generator, LAYER, RUNNING)
    eps = find_layer(generator, LAYER).eps
    # W ((1 - eps) S + eps I) W' = I: with S = V diag(l) V', the eigenvalues of W S W' are l / ((1 - eps) l + eps).
    values = torch.linalg.eigvalsh(found.before)
    expected = values / ((1 - eps) * values + eps)
    torch.testing.assert_close(torch.linalg.eigvalsh(found.after), expected, rtol=1e-4, atol=1e-5)
    assert expected.min() < 0.999  # shrinkage shows


def test_batch_normalisation_leaves_ones_on_the_diagonal_and_the_correlations():
    generator = sampler("cBN")
    running = covariances(generator, LAYER, RUNNING)
    assert torch.equal(running.before, torch.diag(running.before.diagonal()))
    variance = find_layer(generator, LAYER).running_var.double()
    torch.testing.assert_close(running.after.diagonal(), variance / (variance + 1e-3), rtol=1e-5, atol=0)
    fresh = covariances(generator, LAYER, FRESH)
    deviations = fresh.before.diagonal().sqrt()
    correlations = fresh.before / deviations.outer(deviations)
    again = fresh.after / fresh.after.diagonal().sqrt().outer(fresh.after.diagonal().sqrt())
    torch.testing.assert_close(again, correlations, rtol=1e-6, atol=1e-6)


def test_a_layer_that_does_not_whiten_leaves_everything():
    found = covariances(sampler("C-only"), LAYER, FRESH)
    assert torch.equal(found.before, found.after)


def test_a_layer_without_running_averages_whitens_the_batch_itself():
    generator = sampler("cWC", track_running_stats=False)
    found = covariances(generator, LAYER, FRESH)
    values = torch.linalg.eigvalsh(found.before)
    expected = values / ((1 - 1e-3) * values + 1e-3)
    torch.testing.assert_close(torch.linalg.eigvalsh(found.after), expected, rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match="keeps no running averages"):
        covariances(generator, LAYER, RUNNING)


def test_looking_inside_leaves_the_generator_as_it_was():
    generator = sampler()
    before = generator.sample(4)
    state = {key: value.clone() for key, value in generator.network.state_dict().items()}
    covariances(generator, LAYER)
    assert torch.equal(generator.sample(4), before)
    assert all(torch.equal(value, state[key]) for key, value in generator.network.state_dict().items())
    assert not find_layer(generator, LAYER)._forward_pre_hooks


def test_maps_say_what_their_strongest_colours_stand_for():
    found = covariances(sampler(), LAYER)
    (before, first), (after, second) = covariances_to_maps(found)
    assert before.size == after.size == (512, 512)
    assert first == f"Before whitening, \u00b1{found.before.abs().max():.3g}"
    assert second == f"After whitening, \u00b1{found.after.abs().max():.3g}"
    colours = values_to_colours(found.before, float(found.before.abs().max()))
    assert np.array_equal(np.asarray(before)[32::64, 32::64], colours.permute(1, 2, 0))


def test_colours_fade_to_nothing_at_0_and_stop_at_the_bound():
    colours = values_to_colours(torch.tensor([[-4.0, -2.0, 0.0, 1.0, 4.0]]), 2.0).squeeze(1).T.tolist()
    assert colours[0] == colours[1] == [67, 147, 195, 255]
    assert [opacity for *_, opacity in colours[2:]] == [0, 128, 255]
    assert colours[3][:3] == colours[4][:3] == [214, 96, 77]


def test_a_heat_map_has_a_square_for_each_value():
    picture = np.asarray(heat_map(torch.tensor([[1.0, -1.0], [0.0, 1.0]]), 1.0, 3))
    assert picture.shape == (6, 6, 4)
    assert (picture[:3, 3:] == (67, 147, 195, 255)).all()
    assert (picture[3:, :3, 3] == 0).all()


def test_the_spectrum_has_a_curve_before_and_one_after():
    found = covariances(sampler(), LAYER)
    svg = covariances_to_spectrum(found)
    assert svg.count("<circle") == 2 * 8
    smallest = torch.linalg.eigvalsh(found.before)[0].item()
    assert f"before ends at {smallest:.4g}"[:20] in svg


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("blocks.9",), "this generator has the layers blocks.0.norm1"),
        ((["norm"],), "got ['norm']"),
        ((LAYER, "luck"), "statistics are those of a fresh batch or the running averages, got 'luck'"),
        ((LAYER, FRESH, -1), "seed must be a whole number"),
    ],
)
def test_what_is_not_there_is_refused_with_a_sentence(arguments, said):
    with pytest.raises(ValueError) as refusal:
        covariances(sampler(), *arguments)
    assert said in str(refusal.value)


# Classes


def test_classes_are_told_apart_by_assignment_or_by_their_matrices():
    soft, plain, none = (find_layer(sampler(name), LAYER) for name in ("cWC_sa", "cWC", "WC"))
    rows, what = class_table(soft)
    assert what == "assignment"
    assert torch.equal(rows, soft.assignment.double())
    rows, what = class_table(plain)
    assert what == "coloring matrix"
    assert rows.shape == (4, 64)
    assert class_table(none) is None


def test_a_normalised_assignment_is_shown_as_it_is_used():
    rows, _ = class_table(find_layer(sampler("cWC_sa", normalize_assignment=True), LAYER))
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(4, dtype=torch.float64))


def test_the_nearest_classes_come_first_and_are_others():
    rows = torch.tensor([[1.0, 0.0], [1.0, 1.0], [-1.0, 0.0], [5.0, 0.1]])
    found = nearest_classes(rows, 0)
    assert [label for label, _ in found] == [3, 1, 2]
    assert found[-1][1] == pytest.approx(-1)


def test_the_picture_of_a_has_a_cell_for_each_class_and_filter():
    generator = sampler("cWC_sa")
    layer = find_layer(generator, LAYER)
    picture = np.asarray(assignment_picture(generator, layer, 0))
    cells = picture[-4 * 24 + 12 :: 24, -2 * 24 + 12 :: 24]  # (4 classes, 2 filters)
    values = layer.assignment.detach()
    assert np.array_equal(cells, values_to_colours(values, float(values.abs().max())).permute(1, 2, 0))


def test_of_many_classes_those_near_the_chosen_one_are_drawn():
    generator = sampler("cWC_sa", classes=150)
    picture = assignment_picture(generator, find_layer(generator, LAYER), 7)
    assert 25 * 24 < picture.height < 26 * 24 + 24


def test_without_an_assignment_there_is_no_picture():
    assert assignment_picture(sampler("cWC"), find_layer(sampler("cWC"), LAYER), 0) is None


def test_a_fresh_batch_goes_no_further_than_the_layer_that_is_looked_at():
    generator, passed = sampler(), []
    layers = layers_of(generator)
    for name, layer in layers.items():
        layer.register_forward_hook(lambda *_, name=name: passed.append(name))
    batch_covariance(generator, layers[LAYER])
    assert passed == list(layers)[: list(layers).index(LAYER)] != []
    assert not generator.network.training
