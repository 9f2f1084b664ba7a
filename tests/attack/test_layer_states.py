"""Random histories of a layer: it evaluates as a fresh layer with the same state does, bit for bit."""

import copy
import io
import pickle
import random

import torch
from tests.attack.tally import quick_and_long
from tests.norm.cases import CHANNELS, CONDITIONAL, GROUPED, VARIANTS, make_inputs, make_layer, randomize
from torch.func import functional_call

SHAPE = (5, CHANNELS, 2, 2)


def new_layer(name):
    return make_layer(name, momentum=0.5)


def inputs_for(layer, chance):
    dtype = next(iter(layer.state_dict().values())).dtype
    return make_inputs(layer, *SHAPE, seed=chance.randrange(1000), dtype=dtype)


def train_a_batch(layer, chance):
    layer.train()(*inputs_for(layer, chance))
    return layer


def evaluate_a_batch(layer, chance):
    layer.eval()(*inputs_for(layer, chance))
    return layer


def copy_it(layer, chance):
    return copy.deepcopy(layer)


def pickle_it(layer, chance):
    return pickle.loads(pickle.dumps(layer))


def save_whole(layer, chance):
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def load_into_a_new_one(layer, chance):
    fresh = new_layer(chance.kind)
    fresh.load_state_dict(layer.state_dict(), assign=chance.random() < 0.5)
    return fresh


def load_on_the_meta_device(layer, chance):
    with torch.device("meta"):
        fresh = new_layer(chance.kind)
    if chance.random() < 0.5:
        fresh.load_state_dict(layer.state_dict(), assign=True)
    else:
        fresh.to_empty(device="cpu").load_state_dict(layer.state_dict())
    return fresh


def load_others(layer, chance):
    other = new_layer(chance.kind)
    randomize(other, chance.randrange(1000))
    other(*make_inputs(other, *SHAPE, seed=chance.randrange(1000)))
    layer.load_state_dict(other.state_dict())
    return layer


def call_with_another_state(layer, chance):
    """A stateless call leaves nothing behind."""
    state = {name: tensor * 2 if tensor.is_floating_point() else tensor for name, tensor in layer.state_dict().items()}
    functional_call(layer.eval(), state, inputs_for(layer, chance))
    return layer


def average_through_data(layer, chance):
    for tensor in layer.state_dict().values():
        if tensor.is_floating_point():
            tensor.data.mul_(chance.choice((0.5, 0.9, 2.0)))
    return layer


def scale_in_place(layer, chance):
    for buffer in layer.buffers():
        if buffer.is_floating_point():
            buffer.mul_(chance.choice((0.5, 2.0)))
    return layer


def replace_buffers(layer, chance):
    for name, buffer in [*layer.named_buffers()]:
        if buffer.is_floating_point():
            setattr(layer, name, buffer * chance.choice((0.5, 2.0)))
    return layer


def convert_and_back(layer, chance):
    return layer.to(chance.choice((torch.float32, torch.float64))).double()


def reset(layer, chance):
    layer.reset_running_stats()
    return layer


STEPS = [
    train_a_batch,
    train_a_batch,
    evaluate_a_batch,
    copy_it,
    pickle_it,
    save_whole,
    load_into_a_new_one,
    load_on_the_meta_device,
    load_others,
    call_with_another_state,
    average_through_data,
    scale_in_place,
    replace_buffers,
    convert_and_back,
    reset,
]


@quick_and_long(300, 3_000)
def test_histories_of_layers(attack, cases):
    for seed in range(cases):
        chance = random.Random(seed)
        chance.kind = chance.choice(VARIANTS)
        steps = chance.choices(STEPS, k=chance.randrange(1, 9))
        with attack.case(), torch.no_grad():
            layer = new_layer(chance.kind)
            for step in steps:
                layer = step(layer, chance)
            fresh = new_layer(chance.kind)
            fresh.load_state_dict(layer.state_dict())
            inputs = inputs_for(layer, chance)
            if average_through_data in steps:
                layer.eval()  # what is written through `.data` is noticed here, and only here
            layer.training = False
            found, expected = layer(*inputs), fresh.eval()(*inputs)
            assert torch.equal(found, expected), [step.__name__ for step in steps]
            assert found.isfinite().all(), [step.__name__ for step in steps]


def test_the_layers_are_of_every_kind():
    assert {*CONDITIONAL, *GROUPED} < {random.Random(seed).choice(VARIANTS) for seed in range(300)}
