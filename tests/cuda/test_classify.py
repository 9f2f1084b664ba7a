"""Classifiers on a GPU: side by side in one graph they learn what each learns alone."""

import pytest
import torch
from tests.train.classifier_cases import seeded, tiny_config, tiny_splits

from wcgan.core.device import Hardware
from wcgan.core.terminal import TrainingProgress
from wcgan.train.batches import dataset_on
from wcgan.train.classifier import ClassifierBatches, build_learner, make_step, measure_error
from wcgan.train.graph import WARM_UP
from wcgan.train.learner import learner_to_tensors

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:TensorFloat32"),  # the compiler advises what rounds more
    pytest.mark.filterwarnings("ignore:.torch._prims_common:FutureWarning"),  # PyTorch of itself
]
DEVICE = torch.device("cuda", 0)
ITERATIONS = WARM_UP + 5


@pytest.fixture(autouse=True)
def exact_convolutions(monkeypatch):
    """Not in tf32, whose rounding is another in each kernel that the compiler may choose."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


class Sentences(TrainingProgress):
    """Remembers what was said."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def train_together(normalization, seeds, graph=True, compiled=False):
    """Some iterations with each seed -> the tensors of each, the losses of the last iteration, and what was said."""
    hardware = Hardware(DEVICE, torch.float32, compiled, True, None if graph else "")
    configs = seeded(tiny_config(normalization, iterations=100, learning_rate=0.02), seeds)
    training, test = (dataset_on(split, DEVICE) for split in tiny_splits())
    learners = [build_learner(config, training.images, DEVICE, channels_last=True) for config in configs]
    batches = [ClassifierBatches(training, config.train, DEVICE) for config in configs]
    progress = Sentences()
    step = make_step(learners, batches, hardware, progress)
    for iteration in range(ITERATIONS):
        losses = step(iteration)
    errors = [measure_error(learner, test, DEVICE)["error"].item() for learner in learners]
    tensors = [{name: value.cpu() for name, value in learner_to_tensors(learner).items()} for learner in learners]
    return tensors, [{name: value.item() for name, value in one.items()} for one in losses], errors, progress.said


@pytest.mark.parametrize("normalization", ["BN", "WC", "DBN", "IterNorm"])
def test_replays_of_several_seeds_follow_each_alone_without_a_graph(normalization):
    together, losses, errors, said = train_together(normalization, (3, 4, 5))
    assert said == []
    for place, seed in enumerate((3, 4, 5)):
        alone, own, error, _ = train_together(normalization, (seed,), graph=False)
        for name, value in alone[0].items():
            torch.testing.assert_close(together[place][name], value, rtol=1e-3, atol=1e-4, msg=name)
        assert losses[place]["loss/training"] == pytest.approx(own[0]["loss/training"], rel=1e-3)
        assert errors[place] == error[0]


def test_seeds_are_not_one_another():
    tensors, losses, _, _ = train_together("WC", (3, 4))
    assert losses[0] != losses[1]
    assert not torch.equal(tensors[0]["classifier.conv.weight"], tensors[1]["classifier.conv.weight"])


def test_a_compiled_graph_follows_too():
    together, *_, said = train_together("WC", (3, 4), compiled=True)
    alone, *_ = train_together("WC", (4,), graph=False)
    assert said == []
    for name, value in alone[0].items():
        torch.testing.assert_close(together[1][name], value, rtol=1e-2, atol=1e-3, msg=name)
