"""Random inputs of wrong shapes, types and values: an output of the input's shape, or a sentence and no change."""

import random

import torch
from tests.attack.tally import quick_and_long
from tests.norm.cases import CHANNELS, CLASSES, CONDITIONAL, VARIANTS, assert_unchanged, make_layer, snapshot

TYPES = [torch.float32] * 6 + [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
VALUES = [0.0, 1.0, -1.0, 1e-38, 1e30, 3e38, float("inf"), float("-inf"), float("nan")]


def draw_shape(chance):
    if chance.random() < 0.6:
        return (chance.choice((1, 2, 5, 8)), CHANNELS, chance.choice((1, 2, 3)), chance.choice((1, 2)))
    return tuple(chance.choice((0, 1, 2, CHANNELS, 5)) for _ in range(chance.randrange(6)))


def draw_batch(chance):
    x = torch.randn(draw_shape(chance), generator=torch.Generator().manual_seed(chance.randrange(10**6)))
    if chance.random() < 0.3:
        x = x * 0 + chance.choice(VALUES)
    elif chance.random() < 0.3 and x.numel():
        x.view(-1)[chance.randrange(x.numel())] = chance.choice(VALUES)
    return x.to(chance.choice(TYPES))


def draw_labels(chance, samples):
    """Right ones, half of the time."""
    if chance.random() < 0.5:
        return torch.tensor([chance.randrange(CLASSES) for _ in range(samples)], dtype=torch.int64)
    shape = chance.choice(((samples,), (samples, CLASSES), (samples, 1), (samples + 1,), (), (0,), (2, 3, 4)))
    labels = torch.full(shape, chance.choice((0, 1, CLASSES, -1, 2**40, 0.5, float("nan"))), dtype=torch.float64)
    return labels.to(chance.choice((torch.int64, torch.int32, torch.uint8, torch.float32, torch.float64, torch.bool)))


@quick_and_long(300, 5_000)
def test_inputs_of_layers(attack, cases):
    refused = 0
    for seed in range(cases):
        chance = random.Random(seed)
        name, dim = chance.choice(VARIANTS), chance.choice((1, 2, 2, 2))
        layer = make_layer(name, dtype=torch.float32, dim=dim, momentum=0.5).train(chance.random() < 0.6)
        x = draw_batch(chance)
        inputs = [x]
        if name in CONDITIONAL:
            inputs += [draw_labels(chance, x.shape[0] if x.dim() else 1)]
        before = snapshot(layer)
        with attack.case():
            try:
                out = layer(*inputs)
            except (ValueError, TypeError, IndexError) as error:
                refused += 1
                sentence = str(error)
                assert_unchanged(layer, before)
            else:
                sentence = ""
                assert out.shape == x.shape
                assert out.dtype == x.dtype
            assert len(sentence) < 400
            assert "\n" not in sentence
    assert 0 < refused < cases
