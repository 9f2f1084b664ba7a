from contextlib import contextmanager

import pytest
import torch
from tests.evaluate.cases import digits, random_weights, stripes

from wcgan.evaluate.inception import load_inception
from wcgan.evaluate.small_classifier import ClassifierSettings
from wcgan.evaluate.train_small_classifier import load_small_classifier, train_small_classifier


@contextmanager
def one_thread():
    """Networks this small gain nothing from a second thread, and lose much where the cores are busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture(scope="session")
def digit_classifier(digits_cache):
    """The classifier of the digits with its default settings."""
    return load_small_classifier(digits("train"), digits("test"), device="cpu", cache=digits_cache)


@pytest.fixture(scope="session")
def quick():
    """Settings that train in a moment."""
    return ClassifierSettings(width=4, epochs=2, batch=8)


@pytest.fixture(scope="session")
def stripe_classifier(quick):
    with one_thread():
        return train_small_classifier(stripes(), stripes(20, split="test", seed=1), quick, device="cpu")


@pytest.fixture(scope="session")
def weights_file(tmp_path_factory):
    """Complete weights of the right shapes, drawn at random."""
    file = tmp_path_factory.mktemp("weights") / "complete.pth"
    torch.save(random_weights(), file)
    return file


@pytest.fixture(scope="session")
def inception(weights_file):
    with one_thread():
        return load_inception(weights_file, "cpu")
