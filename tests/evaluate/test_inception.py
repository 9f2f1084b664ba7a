"""Inception's features: torch-fidelity's own, whatever file the weights come from; other weights are refused."""

import os
from pathlib import Path
from urllib.error import URLError

import pytest
import safetensors.torch
import torch
from tests.evaluate.cases import pictures, pictures_of, plan, random_weights

from wcgan.evaluate.inception import empty_network, load_inception
from wcgan.evaluate.score import evaluate_images

REAL = os.environ.get("WCGAN_INCEPTION_WEIGHTS")  # read before each test is given an environment of its own
needs_real = pytest.mark.skipif(REAL is None, reason="needs WCGAN_INCEPTION_WEIGHTS=FILE, Inception's real weights")


def relative(one, other):
    return float((one - other).norm() / other.norm())


@pytest.fixture(scope="module")
def saved(weights_file):
    """Saves weights with some of them changed -> the file."""
    state = torch.load(weights_file, weights_only=True)

    def save(folder, drop=(), **changes):
        kept = {key: value for key, value in state.items() if key not in drop}
        torch.save({**kept, **changes}, folder / "weights.pth")
        return folder / "weights.pth"

    return save


def test_features_and_logits_are_those_of_torch_fidelitys_network(inception, weights_file):
    plain = empty_network(("2048", "logits_unbiased"))
    plain.load_state_dict(torch.load(weights_file, weights_only=True))
    images = pictures(3, size=20)
    with torch.no_grad():
        expected = plain(images)
    features, logits = inception.predict(images)
    assert (features.shape, logits.shape) == ((3, 2048), (3, 1008))
    assert relative(features, expected[0]) < 1e-5
    assert relative(logits, expected[1]) < 1e-5
    assert relative(features[:1], features[1:2]) > 1e-2  # the images are told apart


@needs_real
@pytest.mark.slow
def test_real_weights_give_torch_fidelitys_features():
    state = torch.load(REAL, weights_only=True)
    plain = empty_network(("2048",))
    plain.load_state_dict(state)
    images = pictures(16, size=32)
    with torch.no_grad():
        (expected,) = plain(images)
    features, logits = load_inception(Path(REAL), "cpu").predict(images)
    assert relative(features, expected) < 1e-5
    assert (logits is None) == ("fc.weight" not in state)


def test_grey_images_are_repeated_over_the_channels(inception):
    grey = pictures(2)[:, :1]
    features = [inception.predict(images)[0] for images in (grey, grey.repeat(1, 3, 1, 1))]
    assert torch.equal(*features)


def test_autocast_changes_no_feature(inception):
    images = pictures(2)
    expected = inception.predict(images)
    with torch.autocast("cpu", torch.bfloat16):
        found = inception.predict(images)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 3, 8, 8), r"uint8 tensor .* got torch.float32 \(2, 3, 8, 8\)"),
        (torch.full((2, 3, 8, 8), float("nan")), "must be a uint8 tensor"),
        (torch.zeros(2, 4, 8, 8, dtype=torch.uint8), "must be grey or RGB, got 8x8 RGBA"),
    ],
    ids=["floats", "NaN", "transparent"],
)
def test_other_images_are_refused(inception, images, message):
    with pytest.raises(ValueError, match=message):
        inception.predict(images)


def test_a_safetensors_file_and_the_variable_give_the_same_network(inception, tmp_path, monkeypatch):
    file = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(random_weights(), file)
    monkeypatch.setenv("WCGAN_INCEPTION_WEIGHTS", str(file))
    again = load_inception(device="cpu")
    assert again.fingerprint == inception.fingerprint
    images = pictures(1)
    assert torch.equal(again.predict(images)[0], inception.predict(images)[0])


def test_without_the_last_layer_there_are_features_and_no_score(inception, saved, tmp_path):
    lacking = load_inception(saved(tmp_path, drop=("fc.weight", "fc.bias")), "cpu")
    features, logits = lacking.predict(pictures(1))
    assert torch.equal(features, inception.predict(pictures(1))[0])
    assert (logits, lacking.classes) == (None, None)
    images = pictures_of(pictures(4))
    with pytest.raises(ValueError, match=r"these weights lack its last layer \(fc.weight\): leave IS out"):
        evaluate_images(images, images, [lacking], plan(4, 4), metrics=("is",))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drop": ("Mixed_5b.branch1x1.conv.weight",)}, r"it lacks Mixed_5b.branch1x1.conv.weight"),
        ({"AuxLogits.fc.weight": torch.zeros(1)}, r"it has besides AuxLogits.fc.weight"),
        ({"fc.weight": torch.zeros(1000, 2048)}, r"it has in another shape fc.weight"),
        ({"fc.weight": torch.full((1008, 2048), float("nan"))}, r"NaN or infinite weights in fc.weight"),
    ],
    ids=["missing", "more", "shape", "NaN"],
)
def test_weights_of_another_network_are_refused(saved, tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        load_inception(saved(tmp_path, **change), "cpu")


DAMAGED = [b"\x80\x02R.", b"\x80\x02X\x00", b"\x80\x02}(K\x01u."]  # PyTorch raises IndexError, struct.error, ...


@pytest.mark.parametrize("content", [b"", b"not weights", *DAMAGED, None])
def test_a_file_that_holds_no_weights_is_refused(tmp_path, content):
    file = tmp_path / "file.pth"
    if content is None:
        torch.save({"network": torch.nn.Linear(1, 1)}, file)  # would run code when read
    else:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=r"file.pth is not a file of weights, or holds more .*--features classifier"):
        load_inception(file, "cpu")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no Inception weights in .*nowhere\.pth"):
        load_inception(tmp_path / "nowhere.pth", "cpu")


def test_without_a_network_the_ways_out_are_named(monkeypatch):
    def unreachable(*arguments, **options):
        raise URLError("no network")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", unreachable)
    ways = r"cannot be downloaded.*--inception-weights or WCGAN_INCEPTION_WEIGHTS, or use --features classifier"
    with pytest.raises(ValueError, match=ways):
        load_inception(device="cpu")


def test_loading_leaves_the_callers_random_numbers_alone(weights_file):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    load_inception(weights_file, "cpu")
    assert torch.equal(torch.rand(3), expected)
