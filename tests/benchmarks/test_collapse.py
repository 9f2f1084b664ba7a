"""What the scripts say that look for collapse and for a discriminator that knows its training images by heart."""

import json

import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score
from tests.benchmarks.scripts import load_script
from tests.train.test_start import TINY

from wcgan.core.images import grid, write_png
from wcgan.data import load
from wcgan.nets import build_discriminator
from wcgan.paper.presets import configure
from wcgan.runs.folder import new_run
from wcgan.runs.sampler import load_generator
from wcgan.train.gan import train

discriminator, twins = load_script("discriminator"), load_script("twins")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three iterations each, with classes and without."""
    folders = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WCGAN_CACHE", str(tmp_path_factory.mktemp("cache")))
        for preset in ("digits/cWC", "digits/WC"):
            config = configure(preset, settings=TINY)
            folders[preset] = tmp_path_factory.mktemp("runs") / "run"
            train(config, load("digits"), new_run(folders[preset], config))
    return folders


def images(rows, columns, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (rows, columns, 3, 32, 32), dtype=torch.uint8, generator=generator)


def test_a_grid_is_taken_apart_as_it_was_put_together(tmp_path):
    made = images(3, 10)
    write_png(grid(made.flatten(0, 1), 10), tmp_path / "grid.png", scale=2)
    assert torch.equal(twins.png_to_rows(tmp_path / "grid.png"), made)
    with pytest.raises(ValueError, match="is no grid of 9 images of 32 pixels a row"):
        twins.png_to_rows(tmp_path / "grid.png", columns=9)


def test_twins_are_found_within_a_row_and_not_across_rows(tmp_path, capsys):
    made = images(2, 10)
    made[0, 3] = made[0, 7] // 2  # darker, and the same
    made[1, 0] = made[0, 0]
    found = twins.nearest(made).view(2, 10)
    expected = max(
        torch.corrcoef(torch.stack([made[0, 1].flatten(), made[0, k].flatten()]).double())[0, 1].item()
        for k in range(10)
        if k != 1
    )
    assert found[0, 1] == pytest.approx(expected, abs=1e-12)
    assert (found > twins.TWIN).nonzero().tolist() == [[0, 3], [0, 7]]
    write_png(grid(made.flatten(0, 1), 10), tmp_path / "grid.png", scale=2)
    twins.main([str(tmp_path / "grid.png")])
    assert "10% twins" in capsys.readouterr().out


def test_a_runs_images_are_drawn_with_both_statistics_and_beside_real_ones(runs, capsys):
    run = runs["digits/cWC"]
    (running, a), (batch, b) = twins.run_to_rows(run)
    assert (running, batch) == (f"{run}, running statistics", f"{run}, statistics of the batch")
    assert a.shape == b.shape == (10, 10, 1, 16, 16)
    sampler = load_generator(run)
    assert torch.equal(a[3, 4], sampler.from_noise(sampler.noise(10, 0)[4:5], torch.tensor([3]))[0])
    assert not torch.equal(a, b)
    twins.main([str(run)])
    assert [line.split("twins  ")[1] for line in capsys.readouterr().out.splitlines()] == [
        running,
        batch,
        "digits test",
    ]


def test_a_run_without_classes_has_no_twins(runs):
    with pytest.raises(ValueError, match="run has no classes"):
        next(twins.run_to_rows(runs["digits/WC"]))


def test_the_share_of_pairs_is_the_area_under_the_curve():
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randint(0, 9, (n,), generator=generator).double() + s for n, s in ((40, 1), (30, 0)))
    truth = [1] * 40 + [0] * 30
    assert discriminator.share_above(first, second) == pytest.approx(roc_auc_score(truth, [*first, *second]), abs=1e-12)


@pytest.mark.parametrize(
    ("preset", "asked", "iterations"), [("digits/cWC", "2,last", [2, 3]), ("digits/WC", "last", [3])]
)
def test_a_runs_discriminator_is_asked_at_each_checkpoint(runs, tmp_path, preset, asked, iterations):
    out = tmp_path / "out" / "said.json"
    discriminator.main(["--run", str(runs[preset]), "--checkpoints", asked, "--out", str(out)])
    record = json.loads(out.read_text())
    assert (record["run"], record["seed"]) == (preset, 0)
    assert [found["iteration"] for found in record["checkpoints"]] == iterations
    for found in record["checkpoints"]:
        weights = load_file(runs[preset] / "checkpoints" / f"{found['iteration']:07d}.safetensors")
        network = build_discriminator(configure(preset, settings=TINY).discriminator).eval()
        network.load_state_dict(
            {k.removeprefix("discriminator."): v for k, v in weights.items() if k.startswith("discriminator.")}
        )
        said = {}
        for split in ("train", "test"):
            data = load("digits", split=split)
            with torch.no_grad():
                said[split] = network(data.images / 127.5 - 1, data.labels if preset == "digits/cWC" else None).realness
            assert found["mean"][split] == pytest.approx(said[split].mean().item(), abs=1e-4)
            assert found["standard_deviation"][split] == pytest.approx(said[split].std().item(), abs=1e-4)
        truth = [1] * len(said["train"]) + [0] * len(said["test"])
        expected = roc_auc_score(truth, torch.cat(list(said.values())))
        assert found["training_above_test"] == pytest.approx(expected, abs=1e-4)
        assert 0 <= found["test_above_generated"] <= 1
