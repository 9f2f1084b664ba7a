"""What the scripts say that look into a generator: averages of its checkpoints, and its classes one by one."""

import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from tests.benchmarks.scripts import load_script
from tests.train.test_start import TINY

from wcgan.data import load
from wcgan.evaluate.fid import features_to_moments, frechet_distance
from wcgan.paper.presets import configure
from wcgan.runs.folder import Run, new_run
from wcgan.runs.sampler import load_generator
from wcgan.train.gan import train

averages, classes = load_script("averages"), load_script("classes")


def predict(images):
    """Four means of pixels as features, and for logits the class of the brightest quarter."""
    quarters = images.double().mean(1).unflatten(2, (2, -1)).unflatten(1, (2, -1)).mean((2, 4)).flatten(1)
    return quarters, torch.nn.functional.pad(quarters, (0, 6))


FEATURES = SimpleNamespace(
    name="pixels", size=4, classes=10, fingerprint="0", device=torch.device("cpu"), batch=7, predict=predict
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three iterations each, with checkpoints after two and three: with a moving average, and without."""
    folders = {}
    for name, ema in (("averaged", 0.9), ("plain", 0)):
        config = configure("digits/cWC", settings=[*TINY, f"train.ema={ema}"])
        folders[name] = tmp_path_factory.mktemp("runs") / name
        train(config, load("digits"), new_run(folders[name], config))
    return folders


def test_the_mean_of_checkpoints_is_that_of_their_averages(runs):
    folder = runs["averaged"]
    first, last = (load_file(folder / "checkpoints" / f"000000{i}.safetensors") for i in (2, 3))
    mean = averages.checkpoints_to_mean(Run(folder), [2, 3])
    assert set(mean) == {name.removeprefix("average.") for name in last if name.startswith("average.")}
    for name, tensor in mean.items():
        old, new = (every[f"average.{name}"] for every in (first, last))
        expected = (old.double() + new.double()) / 2 if new.is_floating_point() else new
        torch.testing.assert_close(tensor.double(), expected.double(), rtol=1e-6, atol=1e-7)


def test_longer_averages_are_scored_one_after_the_other(runs, tmp_path, capsys):
    arguments = ["--run", str(runs["averaged"]), "--last", "1,2", "--images", "30", "--device", "cpu"]
    averages.main([*arguments, "--out", str(tmp_path / "out" / "found.json")], FEATURES)
    found = json.loads((tmp_path / "out" / "found.json").read_text())["averages"]
    assert [record["checkpoints"] for record in found] == [[3], [2, 3]]
    assert found[0]["FID"] != found[1]["FID"]
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == found


@pytest.mark.parametrize(("name", "last", "message"), [("plain", "1", "moving average"), ("averaged", "3", "1 to 2")])
def test_what_cannot_be_averaged_is_an_error(runs, tmp_path, capsys, name, last, message):
    with pytest.raises(SystemExit):
        averages.main(["--run", str(runs[name]), "--last", last, "--out", str(tmp_path / "o.json")], FEATURES)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "o.json").exists()


def test_a_class_that_runs_away_is_larger_and_has_more_of_the_variance(runs):
    sampler = load_generator(runs["plain"], device="cpu")
    block, inputs = sampler.network.blocks[-1], []
    with torch.no_grad():
        block.norm2.class_weight[3] *= 50
    hook = sampler.network.norm.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    found = classes.compare_activations(sampler)
    hook.remove()
    assert not any(module._forward_pre_hooks for module in sampler.network.modules())  # left as it was
    rows = torch.stack([each.permute(0, 2, 3, 1).flatten(0, 2).double() for each in inputs])  # (n, m, d)
    size = rows.square().mean((1, 2)).sqrt()
    assert found.size == pytest.approx((size / size.sort().values[4:6].mean()).tolist(), rel=1e-9)
    values, vectors = torch.linalg.eigh(torch.cov(rows.flatten(0, 1).mT))
    white = (rows - rows.mean((0, 1))) @ vectors / values.sqrt()
    energy = white.square().mean(1).sum(1)
    assert found.share == pytest.approx((energy / energy.sum()).tolist(), rel=1e-4)
    spectra = torch.linalg.eigvalsh(white.mT @ white / white.shape[1])
    assert found.rank == pytest.approx((spectra.sum(1).square() / spectra.square().sum(1)).tolist(), rel=1e-4)
    for each in (found.size, found.share):
        assert each.index(max(each)) == 3
    assert found.size[3] > 5
    assert found.share[3] > 0.5


def test_each_class_is_scored_against_its_own_test_images(runs):
    sampler, real = load_generator(runs["plain"], device="cpu"), load("digits", split="test")
    rows = classes.generator_to_rows(sampler, real, FEATURES, 20)
    assert [row[0] for row in rows] == list(real.classes)
    images = sampler.from_noise(sampler.noise(20, 4), torch.full((20,), 4))
    own, theirs = (predict(each)[0] for each in (images, real.images[real.labels == 4][:20]))
    distance = frechet_distance(features_to_moments(own), features_to_moments(theirs))
    assert rows[4][5] == f"{distance:.2f}"
    right = (predict(images)[1].argmax(1) == 4).double().mean()
    assert rows[4][4] == f"{right:.1%}"


def test_what_a_class_costs_is_what_training_images_in_its_place_would_gain(runs):
    sampler = load_generator(runs["plain"], device="cpu")
    real, training = load("digits", split="test"), load("digits", split="train")
    rows = classes.generator_to_rows(sampler, real, FEATURES, 20, training)
    own = [predict(sampler.from_noise(sampler.noise(20, c), torch.full((20,), c)))[0] for c in range(10)]
    theirs = features_to_moments(predict(real.images)[0])
    whole = frechet_distance(features_to_moments(torch.cat(own)), theirs)
    own[7] = predict(training.images[training.labels == 7][:20])[0]
    assert rows[7][6] == f"{whole - frechet_distance(features_to_moments(torch.cat(own)), theirs):.2f}"


def test_the_shares_of_the_layers_begin_alike_and_end_as_in_the_last_block(runs, capsys):
    sampler = load_generator(runs["plain"], device="cpu")
    rows = classes.layers_to_rows(sampler)
    assert [row[:2] for row in rows[:2]] == [("blocks.0.norm1", "before"), ("blocks.0.norm1", "after")]
    assert set(rows[0][3:] + rows[1][3:]) == {"10.0%"}  # the same noise for all classes
    pooled = classes.spread_of(classes.measure_moments(sampler)["blocks.0.norm1"]).mean(0)
    values = torch.linalg.svdvals(pooled)
    assert [row[2] for row in rows[:2]] == [f"{float(values.max() / values.quantile(0.5)):,.0f}", ""]
    assert rows[-1][:2] == ("norm", "after")
    assert list(rows[-1][3:]) == [f"{share:.1%}" for share in classes.compare_activations(sampler).share]
    classes.main([str(runs["plain"]), "--layers"])
    assert rows[-1][3] in capsys.readouterr().out.splitlines()[-2]


def test_a_generator_without_classes_has_none_to_compare(tmp_path, capsys):
    config = configure("digits/WC", settings=TINY)
    train(config, load("digits"), new_run(tmp_path / "run", config))
    with pytest.raises(SystemExit):
        classes.main([str(tmp_path / "run")])
    assert "has no classes" in capsys.readouterr().err
