"""What the script on dense layers and small batches measures."""

import sys

import torch
from tests.benchmarks.scripts import load_script

script = load_script("dense")
SETTINGS = {"epochs": 3, "batch": 64, "learning_rate": 1e-3}


def test_whitening_256_channels_of_64_digits_is_worse_than_in_groups():
    whole, groups = (script.seed_to_accuracy(name, 0, **SETTINGS) for name in ("WC", "WC, groups=16"))
    assert whole < 0.93 < 0.96 < groups


def test_a_seed_gives_the_same_weights_and_the_same_accuracy():
    found = [script.seed_to_accuracy("DBN", 3, **SETTINGS | {"epochs": 1}) for _ in range(2)]
    assert found[0] == found[1]


def test_accuracy_is_the_share_of_right_answers():
    answers = torch.eye(4)
    assert script.accuracy(torch.nn.Identity(), answers, torch.tensor([0, 1, 2, 0])) == 0.75


def test_the_script_prints_a_row_for_each_layer(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["dense.py", "--seeds", "1", "--epochs", "1"])
    script.main()
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == list(script.CONVERSIONS)
