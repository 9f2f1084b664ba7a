"""Layers that learn their number of channels from the first batch, as those of PyTorch do."""

import pickle

import pytest
import torch
from tests.norm.cases import CHANNELS, CLASSES, EXACT, make_batch, make_labels
from torch import nn

import wcgan

SHAPES = {1: (5, CHANNELS), 2: (5, CHANNELS, 3, 2), 3: (5, CHANNELS, 3, 2, 2)}
PAIRS = {
    name.removeprefix("Lazy"): (getattr(wcgan, name), getattr(wcgan, name.removeprefix("Lazy")))
    for name in wcgan.__all__
    if name.startswith("Lazy")
}


def build(name, **options):
    """A lazy layer, what it should become, and its inputs."""
    lazy, kind = PAIRS[name]
    x = make_batch(*SHAPES[int(name[-2])])
    options = {"dtype": torch.float64, **options}
    if name.startswith("Conditional"):
        return lazy(CLASSES, **options), lambda: kind(CHANNELS, CLASSES, **options), (x, make_labels(5))
    return lazy(**options), lambda: kind(CHANNELS, **options), (x,)


@pytest.mark.parametrize("name", PAIRS)
def test_the_first_batch_makes_it_the_layer_that_it_stands_for(name):
    layer, make, inputs = build(name, momentum=0.5)
    torch.manual_seed(0)
    out = layer(*inputs)
    torch.manual_seed(0)
    expected = make()
    assert type(layer) is type(expected)
    assert torch.equal(out, expected(*inputs))
    assert repr(layer) == repr(expected)
    assert layer.state_dict().keys() == expected.state_dict().keys()
    assert torch.equal(layer.eval()(*inputs), expected.eval()(*inputs))


OPTIONS = [{"groups": 2}, {"whitening": "standardize"}, {"track_running_stats": False}, {"affine": False}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_are_those_of_the_layer(options):
    layer, make, inputs = build("WhiteningColoring2d", init="identity", **options)
    torch.testing.assert_close(layer(*inputs), make()(*inputs), **EXACT)


def test_wrong_options_are_refused_before_the_first_batch_and_groups_with_it():
    with pytest.raises(ValueError, match="unknown coloring 'half'"):
        wcgan.LazyWhiteningColoring2d(coloring="half")
    with pytest.raises(ValueError, match="divisor of the 4 channels, got 3"):
        wcgan.LazyWhiteningColoring2d(groups=3)(make_batch(*SHAPES[2]).float())


def test_a_state_is_loaded_before_the_first_batch_and_kept():
    layer, make, inputs = build("ConditionalWhiteningColoring2d", momentum=0.5)
    trained = make()
    trained(*inputs)
    layer.load_state_dict(trained.state_dict())
    torch.testing.assert_close(layer.eval()(*inputs), trained.eval()(*inputs), **EXACT)
    assert layer.num_batches_tracked == 1


def test_a_state_that_was_loaded_is_used_when_compiled_too():
    torch._dynamo.reset()
    layer, make, inputs = build("WhiteningColoring2d", momentum=0.5, whitening="standardize", coloring="diagonal")
    trained = make()
    trained(*inputs)
    layer.load_state_dict(trained.state_dict())
    layer.eval()(*inputs)  # by batch normalisation, which needs no matrix
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), trained.eval()(*inputs), **EXACT)
    torch._dynamo.reset()


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_the_statistics_of_a_layer_in_half_precision_are_in_float32(half):
    network = nn.Sequential(wcgan.LazyWhiteningColoring2d()).to(half)
    out = network(make_batch(*SHAPES[2]).to(half))
    assert (out.dtype, network[0].weight.dtype) == (half, half)
    assert (network[0].running_mean.dtype, network[0].running_covariance.dtype) == (torch.float32, torch.float32)


def test_an_optimiser_made_before_the_first_batch_trains_the_layer():
    layer, _, inputs = build("WhiteningColoring1d")
    parameters = list(layer.parameters())
    layer(*inputs).square().sum().backward()
    assert parameters[0] is layer.weight
    assert layer.weight.grad.shape == (CHANNELS, CHANNELS)


def test_it_moves_changes_mode_and_type_and_is_pickled_before_the_first_batch():
    network = nn.Sequential(nn.LazyConv2d(CHANNELS, 1), wcgan.LazyWhiteningColoring2d())
    network = pickle.loads(pickle.dumps(network.half().to("cpu").eval()))
    network.float()(torch.randn(3, 2, 4, 4))
    assert network[1].running_covariance.dtype == torch.float32
    assert not network[1].training


def test_a_frozen_layer_stays_in_evaluation_before_and_after_the_first_batch():
    layer = wcgan.freeze_statistics(wcgan.LazyWhiteningColoring2d()).train()
    assert not layer.training
    layer(torch.randn(4, 3, 5, 5))
    assert not layer.training
    assert layer.num_batches_tracked == 0


def test_statistics_are_updated_from_the_first_batch():
    network = nn.Sequential(wcgan.LazyWhiteningColoring2d())
    wcgan.update_statistics([torch.randn(4, 3, 5, 5) for _ in range(2)], network)
    assert network[0].num_batches_tracked == 2
    assert network[0].momentum == 0.01


def test_a_lazy_layer_cannot_be_folded_before_the_first_batch():
    with pytest.raises(ValueError, match=r"^0 is a lazy layer: run a batch through it first"):
        wcgan.fold(nn.Sequential(wcgan.LazyWhiteningColoring2d()))
