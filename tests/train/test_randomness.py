"""Draws depend on seed, purpose and step alone; every image is seen once in each epoch."""

from dataclasses import replace

import pytest
import torch
from tests.train.cases import tiny_batches, tiny_config, tiny_data

from wcgan.core.device import random_generator
from wcgan.core.processes import Rank
from wcgan.train.batches import EpochOrder

AUGMENTED = {"augment": ("color", "translation", "cutout")}


def draw(seed=0, purpose="critic", step=0):
    return torch.rand(4, generator=random_generator(seed, purpose, step)).tolist()


def test_the_same_seed_purpose_and_step_give_the_same_draw():
    assert draw(3, "critic", 7) == draw(3, "critic", 7)


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"purpose": "generator"}, {"step": 1}], ids=lambda other: next(iter(other))
)
def test_another_seed_purpose_or_step_gives_another_draw(other):
    assert draw() != draw(**other)


def test_seed_and_step_are_not_mixed_up():
    assert draw(1, "x", 23) != draw(12, "x", 3)


def test_a_draw_leaves_the_global_randomness_alone():
    before = torch.get_rng_state()
    draw()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("size", "batch"), [(12, 4), (10, 4), (7, 7), (5, 3), (3, 8), (1, 5)])
def test_each_epoch_has_every_index_once(size, batch):
    order, epochs = EpochOrder(size, seed=0), 12
    steps = -(-size * epochs // batch)
    stream = torch.cat([order.indices(step, batch) for step in range(steps)])[: size * epochs]
    assert torch.equal(stream.view(epochs, size).sort(1).values, torch.arange(size).expand(epochs, size))


def test_each_epoch_has_an_order_of_its_own():
    order = EpochOrder(20, seed=0)
    assert not torch.equal(order.indices(0, 20), order.indices(1, 20))


def test_each_seed_has_an_order_of_its_own():
    assert not torch.equal(EpochOrder(20, seed=0).indices(0, 20), EpochOrder(20, seed=1).indices(0, 20))


def test_a_batch_that_spans_epochs_ends_one_and_begins_the_next():
    order = EpochOrder(10, seed=0)
    first, second = order.indices(0, 10), order.indices(1, 10)
    assert torch.equal(order.indices(1, 8), torch.cat([first[8:], second[:6]]))


def test_the_indices_of_a_step_do_not_depend_on_the_steps_before():
    walked, fresh = EpochOrder(10, seed=0), EpochOrder(10, seed=0)
    for step in range(9):
        walked.indices(step, 4)
    assert torch.equal(walked.indices(9, 4), fresh.indices(9, 4))
    assert torch.equal(walked.indices(2, 4), EpochOrder(10, seed=0).indices(2, 4))


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("labels", ["real", "uniform", "balanced"])
def test_the_shares_of_all_processes_make_up_the_draw_of_one(count, labels):
    config = tiny_config(
        critic_steps=3, generator_batch=8, gradient_penalty=10.0, generated_labels=labels, consistency=1.0, **AUGMENTED
    )
    config = replace(config, data=replace(config.data, flip=True))
    whole = tensors(tiny_batches(config).draw(3))
    parts = [tensors(tiny_batches(config, rank=Rank(index, count)).draw(3)) for index in range(count)]
    assert {"real", "shift.mirrored", "critic_view.hole", "view.color"} <= whole.keys()
    for name, expected in whole.items():
        shares = [part[name] for part in parts]
        samples = 0 if name.split(".")[0] in ("noise", "labels", "view") else 1
        assert torch.equal(torch.cat(shares, samples), expected), name


def tensors(inputs):
    """Name -> tensor, of inputs that may have others in them."""
    found = {}
    for name, value in inputs._asdict().items():
        if isinstance(value, tuple):
            found |= {f"{name}.{inner}": each for inner, each in tensors(value).items()}
        elif value is not None:
            found[name] = value
    return found


def test_an_iteration_is_drawn_for_all_its_updates():
    inputs = tiny_batches(tiny_config(critic_steps=3, batch=4, generator_batch=8, gradient_penalty=10.0)).draw(0)
    shapes = {name: tuple(values.shape) for name, values in tensors(inputs).items()}
    assert shapes == {
        "real": (3, 4, 1, 8, 8),
        "real_labels": (3, 4),
        "critic_noise": (3, 4, 6),
        "critic_labels": (3, 4),
        "between": (3, 4),
        "noise": (8, 6),
        "labels": (8,),
    }


def test_what_a_run_has_no_use_for_is_not_drawn():
    inputs = tiny_batches(tiny_config("WC", "plain")).draw(0)
    assert (inputs.real_labels, inputs.critic_labels, inputs.labels, inputs.between) == (None, None, None, None)


def test_every_purpose_has_a_draw_of_its_own():
    batches = tiny_batches(tiny_config(**AUGMENTED))
    inputs = batches.draw(3)
    noises = [inputs.critic_noise, inputs.noise, batches.latent(3, 1)[0]]
    colors = [view.color for view in (inputs.real_view, inputs.critic_view, inputs.view)]
    for draws in (noises, colors):
        assert len({tuple(values.flatten().tolist()) for values in draws}) == 3


def test_real_images_are_moved_mirrored_and_dequantised_by_draws_of_their_own():
    config = tiny_config(batch=64, gradient_penalty=10.0, consistency=1.0, augment=("translation",))
    plain = tiny_batches(config).draw(3)
    inputs = tiny_batches(replace(config, data=replace(config.data, flip=True))).draw(3)
    windows = [view.moved for view in (inputs.real_view, inputs.critic_view, inputs.shift)]
    pixels, others = ((each.real[0] + 1) * 128 for each in (inputs, plain))
    mirrored = (pixels.floor() != others.floor()).flatten(1).any(1)
    coins = [mirrored, pixels.frac().flatten()[:64] < 0.5, inputs.between[0] < 0.5]
    for draws in (windows, coins):
        assert len({tuple(values.flatten().tolist()) for values in draws}) == 3


def test_updates_go_through_the_data_in_its_order():
    batches = tiny_batches(tiny_config(critic_steps=3), tiny_data(10))
    labels = torch.cat([batches.draw(iteration).real_labels.flatten() for iteration in range(2)])
    order = EpochOrder(10, seed=0)
    assert torch.equal(labels, tiny_data(10).labels[order.indices(0, 24)])


def test_labels_stay_with_their_images():
    data = tiny_data()
    inputs = tiny_batches(tiny_config(critic_steps=2), data).draw(2)
    known = {image.numpy().tobytes(): int(label) for image, label in zip(data.images, data.labels, strict=True)}
    restored = ((inputs.real.flatten(0, 1) + 1) * 128).floor().to(torch.uint8)
    assert [known[image.numpy().tobytes()] for image in restored] == inputs.real_labels.flatten().tolist()


def test_with_real_labels_a_generated_batch_has_those_of_the_real_batch_beside_it():
    config = tiny_config(critic_steps=3, batch=4, generator_batch=10, generated_labels="real")
    inputs = tiny_batches(config).draw(5)
    assert torch.equal(inputs.critic_labels, inputs.real_labels)
    last = inputs.real_labels[-1].tolist()
    assert inputs.labels.tolist() == last + last + last[:2]


def test_the_choice_of_labels_changes_no_other_draw():
    choices = ("real", "uniform", "balanced")
    real, *others = (tensors(tiny_batches(tiny_config(generated_labels=choice)).draw(3)) for choice in choices)
    for other in others:
        changed = [name for name in real if not torch.equal(real[name], other[name])]
        assert changed == ["critic_labels", "labels"]


BALANCED = tiny_config(critic_steps=3, batch=8, generator_batch=16, generated_labels="balanced")  # of three classes


def counts_of(labels):
    """Labels `(..., b)` -> how often each of the three classes occurs, `(..., 3)`."""
    return torch.nn.functional.one_hot(labels, 3).sum(-2)


def are_balanced(labels):
    """Whether each batch `(..., b)` has every class equally often, give or take one."""
    counts = counts_of(labels)
    return bool((counts.amax(-1) - counts.amin(-1) <= 1).all())


def test_balanced_labels_have_each_class_equally_often_in_every_batch():
    for iteration in range(5):
        inputs = tiny_batches(BALANCED).draw(iteration)
        assert (inputs.critic_labels.shape, inputs.labels.shape) == ((3, 8), (16,))
        assert are_balanced(inputs.critic_labels)
        assert are_balanced(inputs.labels)


def test_balanced_labels_favour_no_class_over_many_iterations():
    drawn = [tiny_batches(BALANCED).draw(iteration) for iteration in range(10)]
    for labels in (inputs.critic_labels.flatten() for inputs in drawn), (inputs.labels for inputs in drawn):
        one_after_another = torch.cat(list(labels))
        assert torch.equal(one_after_another, torch.arange(len(one_after_another)) % 3)


def test_balanced_labels_are_balanced_in_the_share_of_each_process_too():
    config = tiny_config(batch=12, generator_batch=24, generated_labels="balanced")
    for index in range(3):
        inputs = tiny_batches(config, rank=Rank(index, 3)).draw(4)
        assert are_balanced(inputs.critic_labels)
        assert are_balanced(inputs.labels)


def test_balanced_labels_depend_on_the_iteration_alone():
    walked = tiny_batches(BALANCED)
    for iteration in range(7):
        walked.draw(iteration)
    after, resumed = walked.draw(7), tiny_batches(BALANCED).draw(7)
    assert torch.equal(after.critic_labels, resumed.critic_labels)
    assert torch.equal(after.labels, resumed.labels)


@pytest.mark.parametrize("choice", ["real", "balanced"])
def test_without_classes_a_choice_of_labels_asks_for_nothing(choice):
    inputs = tiny_batches(tiny_config("WC", "plain", generated_labels=choice)).draw(0)
    assert (inputs.real_labels, inputs.critic_labels, inputs.labels) == (None, None, None)


def test_uniform_labels_of_generated_images_are_uniform_over_the_classes():
    labels = tiny_batches(tiny_config(generator_batch=30_000)).draw(0).labels
    share = torch.bincount(labels, minlength=3) / len(labels)
    assert (share - 1 / 3).abs().max() < 0.015  # five standard deviations


def test_noise_is_standard_normal():
    z = tiny_batches(tiny_config("WC", "plain", generator_batch=20_000)).draw(0).noise
    assert z.mean().abs() < 0.015
    assert (z.std() - 1).abs() < 0.015


def test_every_update_sees_noise_of_its_own():
    inputs = tiny_batches(tiny_config(critic_steps=2)).draw(0)
    drawn = [*inputs.critic_noise, inputs.noise, tiny_batches(tiny_config()).draw(1).noise]
    assert len({z.numpy().tobytes() for z in drawn}) == 4
