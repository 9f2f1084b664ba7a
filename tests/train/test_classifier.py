"""One update of a classifier, its learning rate, and its examination."""

import math
from dataclasses import replace

import pytest
import torch
from tests.train.classifier_cases import CPU, tiny_config, tiny_splits
from torch.nn.functional import cross_entropy

from wcgan.runs.config import ClassifyTrainConfig
from wcgan.train.classifier import (
    ClassifierBatches,
    SideBySide,
    build_learner,
    classifier_step,
    learning_rate,
    measure_error,
)
from wcgan.train.learner import learner_to_tensors


def pupil_and_batches(normalization="WC", **train):
    config, (training, _) = tiny_config(normalization, **train), tiny_splits()
    return build_learner(config, training.images, CPU), ClassifierBatches(training, config.train, CPU)


def test_the_rate_drops_to_a_tenth_at_each_drop():
    train = ClassifyTrainConfig(learning_rate=0.1, drops=(10, 20))
    rates = [learning_rate(train, iteration) for iteration in (0, 9, 10, 19, 20, 50)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def test_the_rate_warms_up_at_a_tenth():
    train = ClassifyTrainConfig(learning_rate=0.1, drops=(10,), warm_up=4)
    assert [learning_rate(train, iteration) for iteration in (0, 3, 4, 10)] == pytest.approx([0.01, 0.01, 0.1, 0.01])


def test_the_defaults_are_the_protocol_of_he_et_al():
    train = ClassifyTrainConfig()
    assert (train.learning_rate, train.momentum, train.weight_decay, train.batch) == (0.1, 0.9, 1e-4, 128)
    assert (train.iterations, train.drops, train.crop, train.flip) == (64_000, (32_000, 48_000), 4, True)


def test_updates_are_gradient_descent_with_momentum_and_weight_decay():
    """Three updates, written out: v <- m v + g + w p, p <- p - r v."""
    learner, batches = pupil_and_batches("BN", momentum=0.8, weight_decay=0.1, learning_rate=0.05)
    twin, _ = pupil_and_batches("BN", momentum=0.8, weight_decay=0.1, learning_rate=0.05)
    parameters = list(twin.classifier.parameters())
    velocities = [torch.zeros_like(parameter) for parameter in parameters]
    for iteration in range(3):
        inputs = batches.draw(iteration)
        found = classifier_step(learner, inputs, torch.float32)
        loss = cross_entropy(twin.classifier(twin.pixels(inputs.images, inputs.moved, inputs.mirrored)), inputs.labels)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, velocity, gradient in zip(parameters, velocities, gradients, strict=True):
                velocity.mul_(0.8).add_(gradient + 0.1 * parameter)
                parameter.sub_(0.05 * velocity)
        assert found["loss/training"].item() == pytest.approx(loss.item(), rel=1e-5)
    for mine, theirs in zip(learner.classifier.parameters(), parameters, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_the_training_error_is_that_of_the_batch():
    learner, batches = pupil_and_batches(batch=20)
    twin, _ = pupil_and_batches(batch=20)
    inputs = batches.draw(0)
    logits = twin.classifier(twin.pixels(inputs.images, inputs.moved, inputs.mirrored))
    wrong = sum(int(row.argmax() != label) for row, label in zip(logits, inputs.labels, strict=True))
    assert classifier_step(learner, inputs, torch.float32)["error/training"].item() == pytest.approx(100 * wrong / 20)


@pytest.mark.parametrize("count", [1, 7, 2301])  # less than a chunk, and more than two
def test_an_examination_is_by_running_statistics_and_leaves_no_trace(count):
    learner, batches = pupil_and_batches()
    classifier_step(learner, batches.draw(0), torch.float32)
    test = tiny_splits()[1]
    index = torch.arange(count) % len(test)
    test = replace(test, images=test.images[index], labels=test.labels[index])
    before = {name: value.clone() for name, value in learner_to_tensors(learner).items()}
    found = measure_error(learner, test, CPU)
    assert learner.classifier.training
    assert all(torch.equal(before[name], value) for name, value in learner_to_tensors(learner).items())
    learner.classifier.eval()
    logits = torch.cat([learner.classifier(learner.pixels(image[None])) for image in test.images[:7]]).detach()[
        index % 7
    ]
    wrong = (logits.argmax(1) != test.labels).double().mean().item()
    assert found["error"].item() == pytest.approx(100 * wrong)
    assert found["loss/test"].item() == pytest.approx(cross_entropy(logits, test.labels).item(), rel=1e-4)


def test_a_network_that_knows_nothing_is_as_wrong_as_chance():
    learner, _ = pupil_and_batches("BN")
    with torch.no_grad():
        learner.classifier.dense.weight.zero_()
        learner.classifier.dense.bias.zero_()
    assert measure_error(learner, tiny_splits()[1], CPU)["loss/test"].item() == pytest.approx(math.log(3))


def test_seeds_decide_the_weights():
    first, again, other = (pupil_and_batches(seed=seed)[0].classifier.conv.weight for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_learners_side_by_side_keep_their_tensors_apart():
    learners = [pupil_and_batches(seed=seed)[0] for seed in (0, 1)]
    tensors = learner_to_tensors(SideBySide(learners))
    assert len(tensors) == 2 * len(learner_to_tensors(learners[0]))
    for place, learner in enumerate(learners):
        for name, value in learner_to_tensors(learner).items():
            assert tensors[f"{place}.{name}"].data_ptr() == value.data_ptr()
