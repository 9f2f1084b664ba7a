"""The overhead: networks that differ in the normalisation alone, ratios round by round, three files that agree."""

import csv
import json
from dataclasses import replace

import pytest
import torch

from wcgan.core.device import find_hardware
from wcgan.core.processes import Rank
from wcgan.paper.printed import ARCHITECTURES
from wcgan.reproduce import timed_iteration as timing
from wcgan.reproduce.overhead import (
    ITERATIONS,
    measure,
    measure_and_write,
    overhead_configs,
    prepare_whitening,
    times_to_costs,
    whitened_shapes,
)
from wcgan.reproduce.timed_iteration import iteration_config, rotated, step_to_seconds, synthetic_data

TINY = (
    "generator.widths=[4,4]",
    "discriminator.widths=[4,4]",
    "discriminator.downsample=1",
    "discriminator.resolution=16",
    "train.batch=4",
    "train.generator_batch=4",
    "train.critic_steps=1",
    "train.device=cpu",
)
NAMES = [*ITERATIONS, "whitening by Cholesky", "whitening by ZCA"]


@pytest.fixture(autouse=True)
def little_data(monkeypatch):
    monkeypatch.setattr(timing, "IMAGES", 16)


def test_the_three_files_hold_every_comparison_and_what_it_was_made_on(tmp_path, monkeypatch):
    monkeypatch.setenv("WCGAN_COMMIT", "abc")
    said = []
    path = measure_and_write(tmp_path / "new" / "overhead", TINY, said.append, rounds=2)
    assert path == tmp_path / "new" / "overhead" / "table.md"
    report = json.loads(path.with_suffix(".json").read_text())
    pairs = [(cost["name"], cost["over"]) for cost in report["costs"]]
    assert pairs == [
        ("BN", ""),
        ("WC", "BN"),
        ("WzcaC", "BN"),
        ("WzcaC", "WC"),
        ("cBN", ""),
        ("cWC", "cBN"),
        ("cWC_sa", "cBN"),
        ("whitening by Cholesky", ""),
        ("whitening by ZCA", "whitening by Cholesky"),
    ]
    assert (report["commit"], report["updates"]) == ("abc", "1 of D on 4 + 4, 1 of G on 4")
    assert all(
        cost["rounds"] == 2 and 0 < cost["ms_lower"] <= cost["ms"] <= cost["ms_upper"] for cost in report["costs"]
    )
    with path.with_suffix(".csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["name"], line["over"], float(line["ms"])) for line in lines] == [
        (cost["name"], cost["over"], cost["ms"]) for cost in report["costs"]
    ]
    text = path.read_text()
    assert "- device: CPU" in text
    assert "generator 4, 4; discriminator 4, 4 (the paper's: generator 256, 256, 256; discriminator 128" in text
    assert all(setting in text for setting in TINY)
    assert [line.removeprefix("preparing ") for line in said if line.startswith("preparing")] == NAMES[-2:] + NAMES[:-2]


def test_ratios_are_taken_round_by_round_and_stand_beside_the_papers():
    times = {"BN": [1.0, 2.0, 4.0], "WC": [2.0, 3.0, 4.0], "WzcaC": [8.0, 9.0, 8.0]}
    found = {(cost.name, cost.over): cost for cost in times_to_costs(times)}
    assert list(found) == [("BN", ""), ("WC", "BN"), ("WzcaC", "BN"), ("WzcaC", "WC")]
    wc = found["WC", "BN"]  # ratios 2, 1.5 and 1
    assert (wc.rounds, wc.ms, wc.ms_lower, wc.ms_upper) == (3, 3000, 2500, 3500)
    assert (wc.ratio, wc.ratio_lower, wc.ratio_upper) == (1.5, 1.25, 1.75)
    assert (wc.paper_ms, wc.paper_ratio) == (820, "1.32")
    assert wc.paper_ratio == f"{wc.paper_ms / found['BN', ''].paper_ms:.2f}"
    assert (found["WzcaC", "WC"].ratio, found["WzcaC", "WC"].paper_ratio) == (3.0, "more than 3.5")
    assert found["BN", ""].ratio is None


def test_networks_are_the_papers_but_for_the_normalisation_and_on_a_cpu_the_width():
    configs = overhead_configs(["train.device=cpu"])
    assert list(configs) == list(ITERATIONS)
    for baseline, row, embedding, names in (
        ("BN", "cifar10/WC SN + ResNet", "glorot", ("WC", "WzcaC")),
        ("cBN", "cifar10/cWC SN + Proj. Discr.", "uniform", ("cWC", "cWC_sa")),  # the authors' code
    ):
        config = configs[baseline]
        generator, discriminator = ARCHITECTURES[row]
        assert config.generator == replace(generator, normalization=baseline, widths=(32,) * 3)
        assert config.discriminator == replace(discriminator, widths=(32,) * 4, embedding_init=embedding)
        for name in names:
            assert configs[name] == replace(config, generator=replace(config.generator, normalization=name))


def test_widths_among_the_settings_are_the_widths():
    configs = overhead_configs(["train.device=cpu", "generator.widths=[8,8,8]"])
    assert configs["WC"].generator.widths == (8, 8, 8)
    assert configs["WC"].discriminator.widths == (128,) * 4


def test_a_normalisation_among_the_settings_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"leave generator\.normalization out of the settings"):
        measure_and_write(tmp_path / "out", ["generator.normalization=BN"], print)
    assert not (tmp_path / "out").exists()


def test_where_time_is_short_the_papers_own_comparison_is_left():
    said = []
    times = measure(overhead_configs(TINY), 0.0, said.append)
    assert {name: len(values) for name, values in times.items()} == {"BN": 1, "WC": 1}
    left_out = [line.partition(" is left out")[0] for line in said if "is left out: half of 0 seconds" in line]
    assert sorted(left_out) == sorted(set(NAMES) - {"BN", "WC"})


def test_rounds_end_when_there_are_enough():
    config = iteration_config("BN", None, TINY)
    times = measure({"BN": config}, 60.0, lambda text: None, rounds=3)
    assert {len(values) for values in times.values()} == {3}


def test_every_one_has_its_turn_at_being_the_first():
    assert [rotated("abc", turn) for turn in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_whitening_alone_is_at_the_seven_places_of_the_papers_generator():
    config = iteration_config("WC", 32, [])
    assert whitened_shapes(config) == [(128, 32, side, side) for side in (4, 8, 8, 16, 16, 32, 32)]


@pytest.mark.parametrize("whitening", ["cholesky", "zca"])
def test_whitening_alone_factorises_forward_once_at_each_place(whitening, monkeypatch):
    config = iteration_config("BN", None, TINY)
    step = prepare_whitening(whitening, config, find_hardware(config.train))
    calls = []
    for name in ("cholesky_ex", "eigh"):
        own = getattr(torch.linalg, name)
        monkeypatch.setattr(torch.linalg, name, lambda *a, n=name, own=own, **k: (calls.append(n), own(*a, **k))[1])
    step(0)
    assert calls == [{"cholesky": "cholesky_ex", "zca": "eigh"}[whitening]] * 5


def test_a_timing_on_a_cpu_is_of_one_iteration_and_its_number():
    numbers = []
    seconds = step_to_seconds(lambda n: (numbers.append(n), sum(range(100_000))), 7, torch.device("cpu"), Rank())
    assert numbers == [7]
    assert seconds > 0


@pytest.mark.parametrize(("name", "classes"), [("WC", 1), ("cWC", 10)])
def test_synthetic_images_fit_the_config(name, classes):
    data = synthetic_data(iteration_config(name, 4, []))
    assert data.images.shape == (16, 3, 32, 32)
    assert (len(data.classes), data.labels.max().item() < classes) == (classes, True)
