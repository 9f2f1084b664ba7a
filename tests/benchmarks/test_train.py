"""The benchmark of training: the same networks but for their normalisation, and shares that add up."""

import json
import re
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from tests.benchmarks.scripts import load_script

from wcgan.core.processes import Rank
from wcgan.paper.printed import ARCHITECTURES
from wcgan.reproduce import timed_iteration as timing
from wcgan.reproduce.timed_iteration import iteration_config

benchmark = load_script("train")
TINY = [
    "--device",
    "cpu",
    "--width",
    "4",
    "--rounds",
    "1",
    "--set",
    "train.batch=4",
    "--set",
    "train.generator_batch=4",
]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """What a tiny run writes to its file."""
    path = tmp_path_factory.mktemp("benchmark") / "train.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "IMAGES", 16)
        patch.setattr(timing, "WARM_UP", 1)
        benchmark.main([*TINY, "--set", "train.critic_steps=2", "--out", str(path)])
    return json.loads(path.read_text())


def test_every_peer_is_measured(report):
    rows = report["measurements"]
    assert [row["peer"] for row in rows] == ["BN", "WC", "cBN", "cWC"]
    assert all(row["seconds"] > 0 and row["data"] > 0 for row in rows)


def test_a_report_says_what_was_run_and_on_what(report):
    assert (report["width"], report["processes"], report["precision"]) == ("4", "1", "float32")
    assert report["updates"] == "2 of D on 4 + 4, 1 of G on 4"


def test_data_and_both_updates_add_up_to_an_iteration(report):
    for row in report["measurements"]:
        assert row["data"] + row["discriminator"] + row["generator"] == pytest.approx(row["seconds"])


def test_a_single_process_sends_nothing(report):
    assert [row["calls"] for row in report["measurements"]] == [0, 0, 0, 0]


def test_the_update_of_the_discriminator_is_what_each_one_more_costs():
    found = benchmark.times_to_measurement("WC", whole=11.0, short=3.0, data=1.0, critic_steps=5)
    assert (found.seconds, found.data, found.discriminator, found.generator) == (11.0, 1.0, 9.0, 1.0)


def test_peers_are_the_papers_networks_and_differ_in_the_normalisation_alone():
    configs = {name: iteration_config(name, None, []) for name in benchmark.PEERS}
    for name, row in (("WC", "cifar10/WC SN + ResNet"), ("cWC", "cifar10/cWC SN + Proj. Discr.")):
        generator, discriminator = ARCHITECTURES[row]
        start = "uniform" if discriminator.head == "projection" else "glorot"
        assert configs[name].generator == generator
        assert configs[name].discriminator == replace(discriminator, embedding_init=start)
    for name, baseline in benchmark.BASELINES.items():
        config = configs[name]
        assert replace(config, generator=replace(config.generator, normalization=baseline)) == configs[baseline]


@pytest.mark.parametrize(("arguments", "width"), [([], 32), (["--full"], None), (["--width", "8"], 8)])
def test_the_width_on_a_cpu_is_said_or_32(arguments, width):
    assert benchmark.parse_arguments(["--device", "cpu", *arguments]).width == width


def test_networks_on_a_gpu_are_as_wide_as_the_papers():
    assert benchmark.parse_arguments(["--device", "cuda"]).width is None


def test_the_table_holds_ratios_to_the_baseline_and_shares(capsys):
    seconds = {"BN": 1.0, "WC": 1.25, "cBN": 2.0, "cWC": 4.0}
    rows = [benchmark.Measurement(name, s, 0.1 * s, 0.7 * s, 0.2 * s) for name, s in seconds.items()]
    benchmark.print_tables(rows)
    lines = [re.sub(" +", " ", line).strip() for line in capsys.readouterr().out.splitlines()]
    assert "BN 1000.00 1.00 BN 10.0% 70.0% 20.0% -" in lines
    assert "WC 1250.00 1.25 BN 10.0% 70.0% 20.0% 20.0%" in lines
    assert "cWC 4000.00 2.00 cBN 10.0% 70.0% 20.0% 50.0%" in lines


def test_a_peer_is_compared_with_its_baseline_in_the_same_way(capsys):
    seconds = {"BN eager": 1.0, "WC eager": 1.5, "BN both": 0.5, "WC both": 1.0}
    benchmark.print_tables([benchmark.Measurement(name, s, 0.0, s, 0.0) for name, s in seconds.items()])
    lines = [re.sub(" +", " ", line).strip() for line in capsys.readouterr().out.splitlines()]
    assert "WC eager 1500.00 1.50 BN eager 0.0% 100.0% 0.0% 33.3%" in lines
    assert "WC both 1000.00 2.00 BN both 0.0% 100.0% 0.0% 50.0%" in lines


def test_ways_and_peers_can_be_chosen(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "IMAGES", 16)
    monkeypatch.setattr(timing, "WARM_UP", 1)
    arguments = [*TINY, "--ways", "eager", "--peers", "cBN", "--set", "train.critic_steps=2"]
    benchmark.main([*arguments, "--out", str(tmp_path / "out.json")])
    (row,) = json.loads((tmp_path / "out.json").read_text())["measurements"]
    assert row["peer"] == "cBN eager"


def test_what_processes_exchange_is_counted_and_can_be_sent_again(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        send = dist.all_reduce
        with benchmark.Wire() as wire:
            Rank(0, 2).mean(torch.ones(()))
            parameter = torch.nn.Parameter(torch.ones(3))
            parameter.grad = torch.ones(3)
            Rank(0, 2).average_gradients([parameter])
        assert dist.all_reduce is send
        assert [(count, dtype) for count, dtype, _ in wire.sent] == [(1, torch.float32), (3, torch.float32)]
        with benchmark.Wire() as again:
            wire.replay()(0)
        assert again.sent == wire.sent
    finally:
        dist.destroy_process_group()
