"""What the script on the gradient of ZCA measures and draws."""

import sys
from xml.etree import ElementTree

import pytest
import torch
from tests.benchmarks.scripts import load_script
from tests.train.test_start import TINY

from wcgan.data import load
from wcgan.paper.presets import configure
from wcgan.runs.folder import new_run
from wcgan.runs.sampler import load_generator
from wcgan.train.gan import train

script = load_script("zca_gradient")


def test_the_covariance_has_the_two_close_eigenvalues_and_no_others_as_close():
    values = torch.linalg.eigvalsh(script.close_pair(8, 1e-3, seed=0))
    gaps = values.diff().sort().values
    torch.testing.assert_close(gaps[0].item(), 1e-3, rtol=1e-6, atol=0)
    assert gaps[1] > 1e-2


def test_the_error_grows_with_the_decomposition_alone():
    wide, narrow = ([script.error(kind, 8, gap, trials=3) for kind in script.KINDS] for gap in (0.5, 1e-5))
    assert max(*wide, *narrow[:2]) < 1e-5
    assert narrow[2] > 1e-4


def test_autodiff_whitens_as_the_library_does():
    x = torch.randn(40, 6, dtype=torch.float32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(script.whiten_by_autodiff(x), script.whiten(x, "zca"), rtol=1e-4, atol=1e-4)


def test_a_batch_of_fewer_positions_than_channels_has_no_gradient_through_the_decomposition():
    assert [script.count_nonfinite(kind, 8, 24, 0.03, trials=3) for kind in script.KINDS] == [0, 0, 3]
    assert script.count_nonfinite("autodiff of `eigh`", 8, 24, 0.03, trials=3) > 0


def test_the_script_prints_both_tables_and_draws_a_curve_for_each_kind(tmp_path, capsys, monkeypatch):
    picture = tmp_path / "error.svg"
    monkeypatch.setattr(sys, "argv", ["zca_gradient", "--channels", "6", "--trials", "1", "--picture", str(picture)])
    script.main()
    printed = capsys.readouterr().out
    assert printed.count("| cholesky | zca | zca-decomposition |") == 2
    svg = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    lines = [path for path in svg.iter("{http://www.w3.org/2000/svg}path") if path.get("class", "").startswith("line")]
    assert len(lines) == 2 * len(script.KINDS)  # curves, and their marks in the legend


@pytest.mark.parametrize("kind", script.KINDS)
def test_the_exact_gradient_is_that_of_the_same_matrix(kind):
    covariance = script.close_pair(6, 0.5, seed=1)
    wide, other = (script.gradient(covariance, name, 1) for name in (kind, "zca" if "zca" in kind else kind))
    torch.testing.assert_close(wide, other, rtol=1e-9, atol=1e-9)


def test_the_smallest_gap_of_a_run_is_the_least_over_the_layers_of_its_generator(tmp_path):
    config = configure("digits/WzcaC", settings=[*TINY, "train.ema=0"])
    run = new_run(tmp_path / "run", config)
    train(config, load("digits"), run)
    network = load_generator(run.folder).network.train()
    gaps = []

    def look(layer, inputs, _):
        values = torch.linalg.eigvalsh(torch.cov(inputs[0].double().transpose(0, 1).flatten(1))) * 0.999 + 0.001
        gaps.append(((values[1:] - values[:-1]) / values[1:]).min().item())

    for layer in network.modules():
        if type(layer).__name__ == "WhiteningColoring2d":
            layer.register_forward_hook(look)
    shape = config.train.generator_batch, config.generator.noise
    network(torch.randn(shape, generator=torch.Generator().manual_seed(0)))
    assert script.smallest_gap(run, "last") == pytest.approx(min(gaps), rel=1e-6)
