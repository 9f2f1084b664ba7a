"""benchmarks/whitening_error.py."""

import pytest
import torch
from tests.benchmarks.scripts import load_script

whitening_error = load_script("whitening_error")
DIGITS = "digits-cWC_sa"


def test_draws_what_comes_into_each_normalisation():
    found = whitening_error.draw(DIGITS, 20, torch.device("cpu"))
    assert [name.rpartition(".")[2] for name in found] == ["norm1", "norm2", "norm1", "norm2", "norm"]
    rows, eps = found["norm"]
    assert rows.dtype == torch.float32
    assert rows.shape[0] == 20 * 16 * 16
    assert eps == 1e-3


def test_well_conditioned_rows_have_variance_1_whichever_way_they_are_summed():
    rows = torch.randn(4096, 8, generator=torch.Generator().manual_seed(0))
    spread, condition, (_, *ranges) = whitening_error.measure(rows, 1e-5)
    assert 1 < spread < condition < 1.3
    for low, high in ranges:
        assert low == pytest.approx(1, abs=1e-4)
        assert high == pytest.approx(1, abs=1e-4)


def test_only_centred_sums_survive_a_mean_far_larger_than_the_spread():
    noise = torch.randn(4096, 8, generator=torch.Generator().manual_seed(0))
    rows = 1e4 + 100 * noise  # steps of bfloat16 are 64 there
    _, _, (_, centred, plain) = whitening_error.measure(rows, 1e-3)
    assert centred[1] - centred[0] < 1e-3
    assert plain[1] - plain[0] > 1e-3


def test_rounding_costs_what_a_step_of_bfloat16_is_beside_the_spread():
    noise = torch.randn(4096, 8, generator=torch.Generator().manual_seed(0))
    error, worst = whitening_error.rounding_error(1e4 + 100 * noise)  # steps of 64, uniform: 64 / sqrt(12) / 100
    assert error == pytest.approx(0.64 / 12**0.5, rel=0.02)
    assert error < worst < 1.1 * error


def test_a_large_direction_rounds_the_others_away():
    noise = torch.randn(4096, 8, generator=torch.Generator().manual_seed(0))
    shared = 300 * torch.randn(4096, 1, generator=torch.Generator().manual_seed(1))
    (few, _), (many, worst) = (whitening_error.rounding_error(x) for x in (noise, noise + shared))
    assert few < 0.003
    assert 0.1 < many < worst


def test_growing_changes_the_largest_direction_alone():
    scales = torch.tensor([8.0, 2.0, 1.0, 1.0])
    rows = torch.randn(4096, 4, generator=torch.Generator().manual_seed(0)) * scales
    before, after = (
        torch.linalg.eigvalsh(whitening_error.covariance_of(x)) for x in (rows, whitening_error.grow(rows, 4))
    )
    assert after[-1] == pytest.approx(16 * before[-1].item(), rel=1e-3)
    torch.testing.assert_close(after[:-1], before[:-1], rtol=1e-2, atol=0)


def test_prints_a_row_per_normalisation_and_factor(capsys):
    whitening_error.main([DIGITS, "--batch", "20", "--grow", "1", "4", "--device", "cpu"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == DIGITS
    assert sum(line.startswith(("| blocks", "| norm ")) for line in lines) == 10
