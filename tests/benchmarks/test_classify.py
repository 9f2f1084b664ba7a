"""The benchmark of classifiers, in miniature."""

import json

import pytest
from tests.benchmarks.scripts import load_script

benchmark = load_script("classify")


def test_it_prints_and_writes_a_figure_for_each_row_and_number_of_seeds(tmp_path, capsys):
    file = tmp_path / "new" / "classify.json"
    tiny = ["--device", "cpu", "--quick", "--rounds", "1", "--rows", "BN,WC", "--seeds", "1,2"]
    benchmark.main([*tiny, "--out", str(file)])
    report = json.loads(file.read_text())
    assert list(report["times"]) == ["BN, 1", "BN, 2", "WC, 1", "WC, 2"]
    assert report["times"]["BN, 2"]["ratio_to_bn"] == 1
    assert report["network"] == "ResNet-8, first"
    assert "WC, 2" in capsys.readouterr().out


def test_an_epoch_is_counted_in_images_and_shared_by_seeds():
    report = benchmark.times_to_report({"BN, 1": [0.002, 0.002], "WC, 1": [0.003, 0.005], "BN, 5": [0.01]}, batch=100)
    assert report["BN, 1"] == {"iteration_ms": 2.0, "epoch_s_of_a_seed": 1.0, "ratio_to_bn": 1.0}
    assert report["WC, 1"]["ratio_to_bn"] == 2.0
    assert report["BN, 5"]["epoch_s_of_a_seed"] == 1.0


def test_a_processor_needs_quick(capsys):
    with pytest.raises(SystemExit, match="2"):
        benchmark.main(["--device", "cpu"])
    assert "--device cpu needs --quick" in capsys.readouterr().err
