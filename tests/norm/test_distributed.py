"""Two processes that share statistics = one process with the concatenated batch, to float64 rounding."""

import pytest
import torch
import torch.distributed as dist
from tests.norm import ranks
from tests.norm.cases import CHANNELS, make_batch, make_layer

ROUNDING = {"rtol": 1e-12, "atol": 1e-12}
pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch was built without gloo"
)


@pytest.fixture(scope="session")
def both(once):
    """Results of all cases on both ranks; processes start slowly, so once."""
    folder = once("ranks-of-layers", lambda folder: ranks.start_two(ranks.run, str(folder)))
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(2)]


def results_of(both, *case):
    found = [results[case if len(case) > 1 else case[0]] for results in both]
    errors = [result for result in found if isinstance(result, str)]
    assert errors == []
    return found


def together(parts):
    """Samples of both ranks, in the order of the whole batch."""
    return torch.cat(parts)


def summed(parts):
    return [a + b for a, b in zip(*parts, strict=True)]


@pytest.fixture(scope="module")
def alone():
    """One process with the whole batch, each case computed once."""
    cache = {}

    def train(name, split):
        if (name, split) not in cache:
            cache[name, split] = ranks.train_layer(None, name, split)
        return cache[name, split]

    return train


CASES = pytest.mark.parametrize("split", ranks.SPLITS)
LAYERS = pytest.mark.parametrize("name", ranks.NAMES)


@CASES
@LAYERS
def test_outputs_are_those_of_the_concatenated_batch(both, alone, name, split):
    found = results_of(both, "train", name, split)
    for batch in range(ranks.BATCHES):
        parts = [result["outputs"][batch] for result in found]
        torch.testing.assert_close(together(parts), alone(name, split)["outputs"][batch], **ROUNDING)


@CASES
@LAYERS
def test_input_gradients_are_those_of_the_concatenated_batch(both, alone, name, split):
    found = results_of(both, "train", name, split)
    for batch in range(ranks.BATCHES):
        parts = [result["input gradients"][batch] for result in found]
        expected = alone(name, split)["input gradients"][batch]
        scale = expected.abs().max().item()
        torch.testing.assert_close(together(parts), expected, rtol=1e-12, atol=1e-12 * scale)


@CASES
@LAYERS
def test_parameter_gradients_sum_to_those_of_the_concatenated_batch(both, alone, name, split):
    found = summed([result["parameter gradients"] for result in results_of(both, "train", name, split)])
    for gradient, expected in zip(found, alone(name, split)["parameter gradients"], strict=True):
        scale = expected.abs().max().item()
        torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12 * scale)


@CASES
@LAYERS
def test_running_statistics_on_every_rank_are_those_of_the_concatenated_batch(both, alone, name, split):
    for result in results_of(both, "train", name, split):
        saved = {key: value for key, value in result["buffers"].items() if not key.startswith("_")}
        expected = {key: alone(name, split)["buffers"][key] for key in saved}
        torch.testing.assert_close(saved, expected, **ROUNDING)


@CASES
@LAYERS
def test_every_rank_evaluates_as_the_one_process(both, alone, name, split):
    for result in results_of(both, "train", name, split):
        torch.testing.assert_close(result["evaluation"], alone(name, split)["evaluation"], **ROUNDING)


@pytest.mark.parametrize("name", ["WC", "BN", "cWC"])
def test_a_gradient_penalty_is_that_of_the_concatenated_batch(both, name):
    found, expected = results_of(both, "penalty", name), ranks.penalize_slope(None, name)
    torch.testing.assert_close(found[0]["penalty"] + found[1]["penalty"], expected["penalty"], rtol=1e-12, atol=0)
    gradients = together([result["input gradients"] for result in found])
    scale = expected["input gradients"].abs().max().item()
    torch.testing.assert_close(gradients, expected["input gradients"], rtol=1e-11, atol=1e-12 * scale)
    pairs = summed([result["parameter gradients"] for result in found]), expected["parameter gradients"]
    scale = max(gradient.abs().max().item() for gradient in expected["parameter gradients"])
    torch.testing.assert_close(*pairs, rtol=1e-11, atol=1e-12 * scale)


def test_statistics_are_differentiated_through_the_batches_of_all_ranks(both):
    found, expected = results_of(both, "statistics"), ranks.differentiate_statistics(None)
    for name in ("out", "gradient"):
        torch.testing.assert_close(together([result[name] for result in found]), expected[name], **ROUNDING)


def test_a_large_mean_costs_ranks_no_more_than_the_rounding_of_their_means(both):
    x = ranks.far_from_zero().double()
    parts = [part.transpose(0, 1).flatten(1) for part in (*x.split(ranks.SPLITS["5 and 3"]), x)]
    apart = max((part.mean(1) - parts[-1].mean(1)).abs().max().item() for part in parts)
    slip = 4 * torch.finfo(torch.float32).eps / 2 * 1e4  # of the difference of two means: by it, and squared
    for covariance in results_of(both, "far from zero"):
        assert (covariance.double() - parts[-1].cov()).abs().max() <= 2 * slip * apart + slip**2


@pytest.mark.parametrize("name", ["WC", "BN", "cWC"])
def test_training_under_distributed_data_parallel_is_training_on_the_concatenated_batch(both, name):
    expected = ranks.train_in_parallel(None, name)["state"]
    for result in results_of(both, "parallel", name):
        torch.testing.assert_close(result["state"], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("whitened", [False, True])
def test_ranks_average_to_the_penalty_on_classes_of_the_concatenated_batch(both, whitened):
    expected = ranks.penalize_classes(None, whitened)
    assert expected.abs().amax((1, 2, 3)).min() > 1e-4
    found = together(results_of(both, "classes", whitened))
    torch.testing.assert_close(found / 2, expected, **ROUNDING)  # gradients are averaged over the two


def test_a_nan_on_one_rank_keeps_the_batch_out_of_the_statistics_of_both(both):
    expected = make_layer("WC").state_dict()
    for result in results_of(both, "bad"):
        assert result["nan"]
        assert result["nonfinite"] == 1
        torch.testing.assert_close(result["state"], expected, rtol=0, atol=0)


def test_ranks_of_different_groups_do_not_share(both):
    for rank, result in enumerate(results_of(both, "own group")):
        expected = make_layer("WC")(make_batch(4, CHANNELS, 2, 2, seed=rank))
        torch.testing.assert_close(result["alone"], expected.detach(), **ROUNDING)


def test_a_converted_sync_batch_normalisation_keeps_its_process_group(both):
    for rank, result in enumerate(results_of(both, "own group")):
        source = torch.nn.BatchNorm2d(CHANNELS).double()
        expected = ranks.wcgan.convert_batchnorm(source)(make_batch(4, CHANNELS, 2, 2, seed=rank))
        torch.testing.assert_close(result["converted"], expected.detach(), **ROUNDING)


def test_one_position_in_a_group_of_one_process_is_refused(both):
    for result in results_of(both, "own group"):
        assert result["lonely"].startswith("ValueError")
        assert "at least 2 positions" in result["lonely"]


def test_a_compiled_layer_synchronises_too(both, alone):
    found, expected = results_of(both, "compiled"), alone("WC", "5 and 3")
    torch.testing.assert_close(together([result["out"] for result in found]), expected["outputs"][0], **ROUNDING)
    gradients = together([result["gradient"] for result in found])
    torch.testing.assert_close(gradients, expected["input gradients"][0], rtol=1e-11, atol=1e-11)
    layer = make_layer("WC", momentum=0.3)
    layer(ranks.whole_batch("5 and 3", 0)[0])
    for result in found:
        torch.testing.assert_close(result["covariance"], layer.running_covariance, **ROUNDING)


def test_a_synchronised_layer_without_a_process_group_is_an_ordinary_layer():
    x = make_batch(5, CHANNELS, 2, 2)
    assert torch.equal(make_layer("WC", sync=True)(x), make_layer("WC")(x))


def test_a_synchronised_layer_without_a_process_group_refuses_one_position():
    with pytest.raises(ValueError, match="at least 2 positions"):
        make_layer("WC", sync=True)(make_batch(1, CHANNELS, 1, 1))
