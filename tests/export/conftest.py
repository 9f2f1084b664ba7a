"""A finished run, trained once, for all tests of this folder."""

import pytest
from tests.train.cases import tiny_config, tiny_data, tiny_run

from wcgan.train.gan import train


def _trained(folder, normalization, head):
    config = tiny_config(normalization, head, ema=0.5, keep_checkpoints=2)
    run = tiny_run(folder / "run", config)
    train(config, tiny_data(), run, lambda sampler: {"FID(classifier)": 1.25})
    return run


@pytest.fixture(scope="session")
def conditional_run(tmp_path_factory):
    return _trained(tmp_path_factory.mktemp("conditional"), "cWC", "projection")


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory):
    return _trained(tmp_path_factory.mktemp("plain"), "WC", "plain")
