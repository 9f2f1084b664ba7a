"""The script that compares images of a generator which were computed in two ways."""

import pytest
import torch
from tests.benchmarks.scripts import load_script

from wcgan.runs.sampler import load_generator

two_samples = load_script("two_samples")
DIGITS = "digits-cWC_sa"


def test_images_are_normalised_by_the_batches_asked_for():
    found = two_samples.draw(DIGITS, "20", 30, 0, torch.device("cpu"))
    assert found.shape == (30, 1, 16, 16)
    sampler = load_generator(DIGITS, device="cpu")
    with torch.no_grad():
        expected = sampler.network.train()(sampler.noise(20, 0), torch.arange(20) % 10)
    torch.testing.assert_close(found[:20], expected)
    half = two_samples.draw(DIGITS, "20:bfloat16", 20, 0, torch.device("cpu"))
    assert 1e-4 < (half - expected).square().mean().sqrt() < 0.05


def test_other_noise_makes_other_images():
    device = torch.device("cpu")
    assert not torch.equal(*(two_samples.draw(DIGITS, "20", 20, seed, device) for seed in (0, 1)))


@pytest.mark.parametrize(("scale", "least", "most"), [(1.0, 0.4, 0.6), (1.5, 0.9, 1.0)])
def test_sets_that_differ_are_told_apart_and_others_are_not(scale, least, most):
    torch.manual_seed(0)
    first, second = torch.randn(2, 640, 1, 8, 8)
    right, count = two_samples.tell_apart(first, scale * second, 3)
    assert count == 280
    assert least <= right <= most


@pytest.mark.parametrize("kind", ["many", "64:half", ""])
def test_a_kind_that_is_none_is_refused(kind):
    with pytest.raises(ValueError, match="a kind of images is a size of batches"):
        two_samples.draw(DIGITS, kind, 4, 0, torch.device("cpu"))


def test_the_table_names_each_pair(capsys):
    two_samples.main([DIGITS, "16", "16", "8:bfloat16", "--images", "64", "--epochs", "1", "--device", "cpu"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| batches of | told apart | standard error |"
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| 16 and 16", "| 16 and 8:bfloat16"]
