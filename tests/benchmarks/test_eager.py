"""The eager benchmark in miniature: what it prints, and networks that are converted."""

import re

import pytest
from tests.benchmarks.scripts import load_script
from torch import nn

import wcgan

eager = load_script("eager")


def test_every_mode_prints_the_ratio_of_every_peer(capsys):
    eager.main(["--shapes", "4x4x2x2", "--rounds", "1", "--calls", "1"])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.partition(":")[0] for line in lines] == [f"(4, 4, 2, 2), {mode}" for mode in eager.MODES]
    assert re.findall(r"([\w ,]+?) [\d.]+(?:, |$)", lines[0].partition("; ")[2]) == list(eager.PEERS)[1:]


def test_ratios_are_taken_round_by_round():
    times = {"BN": [1.0, 2.0, 4.0], "WC": [3.0, 4.0, 16.0]}
    assert eager.times_to_ratios(times) == {"BN": 1.0, "WC": 3.0}


def test_networks_are_trained_before_and_after_conversion():
    built = []

    def build():
        parts = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        built.append(nn.Sequential(*parts))
        return built[-1]

    times = eager.measure_networks(build, (4, 3, 6, 6), "cpu", rounds=2, calls=1)
    assert {name: len(values) for name, values in times.items()} == {"BN": 2, "WC": 2}
    assert [type(network[1]) for network in built] == [nn.BatchNorm2d, wcgan.WhiteningColoring2d]
    assert all(network[1].num_batches_tracked == 3 for network in built)


def test_a_torchvision_that_cannot_be_imported_is_said(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torchvision.models", None)
    with pytest.raises(RuntimeError, match="torchvision cannot be imported"):
        eager.build_resnet50()
