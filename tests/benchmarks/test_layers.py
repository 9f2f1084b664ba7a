"""The layers' benchmark: peers that compute the same thing, and figures that are what they say."""

import json
import re

import pytest
import torch
from tests.benchmarks.scripts import load_script

import wcgan

layers = load_script("layers")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """What a tiny run writes to its file."""
    path = tmp_path_factory.mktemp("benchmark") / "layers.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "MOST_ROUNDS", 2)
        layers.main(["--widths", "4,8", "--positions", "128", "--out", str(path)])
    return json.loads(path.read_text())


def measurement(peer, width=256, positions=65536, milliseconds=1.0, peak_bytes=1):
    return layers.Measurement(peer, width, positions, milliseconds, peak_bytes)


def test_every_peer_is_measured_on_every_batch(report):
    cases = [(peer, width, 128) for width in (4, 8) for peer in layers.PEERS]
    assert [(row["peer"], row["width"], row["positions"]) for row in report["measurements"]] == cases
    assert all(row["milliseconds"] > 0 for row in report["measurements"])


def test_peak_memory_counts_input_output_and_both_gradients(report):
    for row in report["measurements"]:
        assert row["peak_bytes"] >= 4 * 4 * row["width"] * row["positions"], row


def test_tables_hold_ratios_to_batch_normalisation(capsys):
    rows = [measurement(peer, 64, 2048, 2.0 * (i + 1), 1_000_000 * (i + 1)) for i, peer in enumerate(layers.PEERS)]
    layers.print_tables(rows)
    ratios = " ".join(f"{i + 1:.2f}" for i in range(1, len(rows)))
    lines = [re.sub(" +", " ", line).strip() for line in capsys.readouterr().out.splitlines()]
    assert f"64 2048 2.00 ms {ratios}" in lines
    assert f"64 2048 1.00 MB {ratios}" in lines


def test_peak_growth_is_the_most_that_is_held_at_once():
    def step():
        first = torch.ones(1 << 18)
        second = first.clone()
        del first
        return second, torch.ones(1 << 16)

    assert layers.step_to_peak_growth(step, "cpu") == 2 * 4 * (1 << 18)


def test_growth_finds_the_exponents_of_a_power_law():
    rows = [measurement("WC", d, m, 3.0 * d**2 * m) for d in (64, 128) for m in (2048, 8192)]
    assert layers.fit_growth(rows) == pytest.approx((2.0, 1.0))
    assert layers.fit_growth(rows[:2]) == (None, pytest.approx(1.0))


def test_claims_state_the_speed_and_the_memory_that_were_measured():
    batches = 4 * 4 * 256 * 65536
    rows = [
        measurement("BN", milliseconds=1.0, peak_bytes=batches),
        measurement("WC", milliseconds=5.0, peak_bytes=int(1.05 * batches)),
        measurement("WC autodiff", milliseconds=10.0),
        measurement("ZCA autodiff", milliseconds=12.5),
    ]
    assert layers.rows_to_claims(rows) == [
        "WC vs WC autodiff at d=256, m=65536: 2.00 times as fast (target 1.5)",
        "WC vs ZCA autodiff at d=256, m=65536: 2.50 times as fast (target 3)",
        "peak memory WC/BN at d=256, m=65536: 1.05 (target 1.10); "
        "against input, output and their gradients alone: 1.05",
    ]


@pytest.mark.parametrize(("peer", "name"), [("WC autodiff", "WC"), ("ZCA autodiff", "WzcaC")])
def test_plain_autodiff_computes_what_the_layer_does(peer, name):
    torch.manual_seed(0)
    x = (torch.randn(6, 6) @ torch.randn(16, 6, 25)).view(16, 6, 5, 5).requires_grad_()
    plain, layer = layers.PEERS[peer](6), wcgan.normalization(name, 6)
    layer.load_state_dict(plain.state_dict(), strict=False)
    cotangent = torch.randn(x.shape)
    results = []
    for module in (plain, layer):
        z = module(x)
        results.append([z, *torch.autograd.grad(z, (x, module.weight, module.bias), cotangent)])
        results[-1] += [module.running_mean, module.running_covariance]
    for value, wanted in zip(*results, strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-4, atol=1e-4)


def test_batches_too_large_for_the_cpu_are_skipped_and_named(monkeypatch, capsys):
    monkeypatch.setattr(layers, "MOST_ROUNDS", 1)
    monkeypatch.setattr(layers, "MOST_ELEMENTS_ON_CPU", 4 * 128)
    layers.main(["--widths", "4,8", "--positions", "128"])
    assert re.findall(r"skipped.*d=(\d+), m=(\d+)", capsys.readouterr().out) == [("8", "128")]


def test_positions_that_make_no_square_grid_are_refused():
    with pytest.raises(ValueError, match="32 or 64 times a square, got 96"):
        layers.positions_to_shape(96)
