"""Moving averages of whole models, as other people's code makes them."""

import copy

import pytest
import torch
from tests.norm.cases import CHANNELS, EXACT, PATHS, WHITENED_PATHS, make_inputs, make_layer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def lerp_every_buffer(target, source, decay):
    """StudioGAN's `Ema.update`."""
    for p_ema, p in zip(target.parameters(), source.parameters(), strict=True):
        p_ema.copy_(p.lerp(p_ema, decay))
    for (name, b_ema), (_, b) in zip(target.named_buffers(), source.named_buffers(), strict=True):
        if "num_batches_tracked" in name:
            b_ema.copy_(b)
        else:
            b_ema.copy_(b.lerp(b_ema, decay))


def write_the_state_through_data(target, source, decay):
    """BigGAN's `utils.ema.update`."""
    ours, theirs = target.state_dict(), source.state_dict()
    for key in theirs:
        ours[key].data.copy_(ours[key].data * decay + theirs[key].data * (1 - decay))


def look_every_buffer_up_in_the_state(target, source, decay):
    """As keras-like and mean-teacher averages do."""
    state = source.state_dict()
    for name, tensor in [*target.named_parameters(), *target.named_buffers()]:
        if tensor.is_floating_point():
            tensor.data.lerp_(state[name].data, 1 - decay)
        else:
            tensor.data.copy_(state[name].data)


def flatten_all_tensors(target, source, decay):
    """timm's `ModelEmaV3`, over the values of the states."""
    ours = [t for t in target.state_dict().values() if t.is_floating_point()]
    theirs = [t for t in source.state_dict().values() if t.is_floating_point()]
    torch._foreach_lerp_(ours, theirs, weight=1 - decay)


AVERAGES = [lerp_every_buffer, write_the_state_through_data, look_every_buffer_up_in_the_state, flatten_all_tensors]


@pytest.mark.parametrize("average", AVERAGES, ids=lambda average: average.__name__)
@pytest.mark.parametrize("name", PATHS)
def test_an_average_evaluates_with_its_own_statistics(name, average):
    model = make_layer(name, momentum=0.5)
    target = copy.deepcopy(model).eval()
    inputs = make_inputs(model, 5, CHANNELS, 2, 2, seed=5)
    for seed in range(3):
        model(*make_inputs(model, 5, CHANNELS, 2, 2, seed=seed))
        with torch.no_grad():
            average(target, model, decay=0.7)
        fresh = make_layer(name)
        fresh.load_state_dict(target.state_dict())
        torch.testing.assert_close(target.eval()(*inputs), fresh.eval()(*inputs), rtol=0, atol=0)


@pytest.mark.parametrize("use_buffers", [False, True])
@pytest.mark.parametrize("name", [name for name in PATHS if name != "W-only"])  # PyTorch's wants a parameter
def test_an_averaged_model_of_pytorch_evaluates_with_its_own_statistics(name, use_buffers):
    model = make_layer(name, momentum=0.5)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.7), use_buffers=use_buffers)
    inputs = make_inputs(model, 5, CHANNELS, 2, 2, seed=5)
    for seed in range(3):
        model(*make_inputs(model, 5, CHANNELS, 2, 2, seed=seed))
        average.update_parameters(model)
    fresh = make_layer(name)
    fresh.load_state_dict(average.module.state_dict())
    torch.testing.assert_close(average.eval()(*inputs), fresh.eval()(*inputs), **EXACT)


@pytest.mark.parametrize("name", PATHS)
def test_the_buffers_are_those_of_the_state_and_no_others(name):
    layer = make_layer(name)
    assert {*dict(layer.named_buffers())} == {*layer.state_dict()} - {*dict(layer.named_parameters())}


@pytest.mark.parametrize("name", WHITENED_PATHS)
def test_the_only_buffer_that_is_an_integer_is_that_of_batch_normalisation(name):
    layer = make_layer(name)
    assert [key for key, b in layer.named_buffers() if not b.is_floating_point()] == ["num_batches_tracked"]


def test_a_layer_pickled_when_its_counters_were_buffers_is_read():
    layer = make_layer("WC", momentum=0.5)
    inputs = make_inputs(layer, 5, CHANNELS, 2, 2)
    layer(*inputs)
    state = layer.__getstate__()
    old = {**state, "_buffers": dict(state["_buffers"]), "_non_persistent_buffers_set": {"num_retried", "_whitening"}}
    for name in ("num_retried", "num_nonfinite", "_whitening"):
        old["_buffers"][name] = old.pop(name)
    read = type(layer).__new__(type(layer))
    read.__setstate__(old)
    assert {*dict(read.named_buffers())} == {*dict(layer.named_buffers())}
    assert (read.num_retried, read.num_nonfinite) == (0, 0)
    assert torch.equal(read.eval()(*inputs), layer.eval()(*inputs))
