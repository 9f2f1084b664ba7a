"""Networks of others: torchvision's and timm's, compiled ones, and those that several processes train."""

import copy
import os
from importlib.util import find_spec

import pytest
import torch
import torch.distributed as dist
from tests.norm.ranks import start_two
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

import wcgan
from wcgan.core.processes import process_group
from wcgan.norm import FoldedMap, WhiteningLayer

ROUNDING = {"rtol": 1e-9, "atol": 1e-9}
needs_gloo = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch was built without gloo"
)


def images(count=2, side=32):
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@torch.no_grad()
def pretrained(model):
    """Statistics as those of a trained network, none of which counted its batches, as in old checkpoints."""
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean.copy_(torch.randn(module.num_features, generator=generator) / 4)
            module.running_var.copy_(torch.rand(module.num_features, generator=generator) + 0.5)
    return model.double().eval()


def torchvision_model(name):
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    from wcgan.evaluate.inception import import_torchvision

    import_torchvision()
    import torchvision

    torch.manual_seed(0)
    return torchvision.models.get_model(name, weights=None, num_classes=10)


def timm_model(name):
    if find_spec("timm") is None:
        pytest.skip("timm is not installed")
    torchvision_model("resnet18")  # timm imports torchvision, which has to be importable first
    import timm

    torch.manual_seed(0)
    return timm.create_model(name, pretrained=False, num_classes=10)


NETWORKS = {
    "torchvision resnet18": (torchvision_model, "resnet18"),
    "torchvision mobilenet_v2": (torchvision_model, "mobilenet_v2"),
    "timm resnet18": (timm_model, "resnet18"),
    "timm mobilenetv3_small_050, with activations": (timm_model, "mobilenetv3_small_050"),
}


QUICK = ("torchvision resnet18", "timm mobilenetv3_small_050, with activations")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS])
def test_evaluation_starts_where_batch_normalisation_was_and_folding_keeps_it(name):
    build, which = NETWORKS[name]
    model = pretrained(build(which))
    number = sum(isinstance(m, _BatchNorm) for m in model.modules())
    with torch.no_grad():
        expected = model(images())
        wcgan.convert_batchnorm(model)
        assert sum(isinstance(m, WhiteningLayer) for m in model.modules()) == number > 0
        torch.testing.assert_close(model(images()), expected, **ROUNDING)
        folded = wcgan.fold(model)
        torch.testing.assert_close(folded(images()), expected, **ROUNDING)
    depthwise = [m for m in folded.modules() if isinstance(m, nn.Conv2d) and m.groups > 1]
    assert len([m for m in folded.modules() if isinstance(m, FoldedMap)]) == len(depthwise)


def test_the_activation_of_a_layer_of_timm_is_kept():
    model = timm_model("mobilenetv3_small_050")
    before = [type(m.act) for m in model.modules() if type(m).__name__ == "BatchNormAct2d"]
    wcgan.convert_batchnorm(model)
    after = [type(m.act) for m in model.modules() if isinstance(m, nn.Sequential) and hasattr(m, "act")]
    assert before == after != []


# Diagonal first, full from the next training batch on


def test_statistics_are_diagonal_at_first_and_move_to_the_full_covariance_with_the_next_batch():
    bn = pretrained(nn.BatchNorm2d(3))
    layer = wcgan.convert_batchnorm(bn)
    first = layer.running_covariance.clone()
    assert torch.equal(first, torch.diag(first.diagonal()))
    x = images() @ torch.randn(32, 32, generator=torch.Generator().manual_seed(2)).double() + images().flip(1)
    layer.train()(x)
    _, covariance = wcgan.functional.moments(x)
    torch.testing.assert_close(layer.running_covariance, 0.9 * first + 0.1 * covariance, rtol=1e-12, atol=1e-12)
    assert (layer.running_covariance - torch.diag(layer.running_covariance.diagonal())).abs().max() > 0


def test_the_coloring_is_diagonal_at_first_and_fills_with_the_first_step():
    layer = wcgan.convert_batchnorm(nn.BatchNorm2d(3).double())
    assert torch.equal(layer.weight, torch.diag(layer.weight.diagonal()))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(images()).pow(3).sum().backward()
    optimizer.step()
    assert (layer.weight != 0).all()


# Compiled


@torch.no_grad()
@pytest.mark.parametrize("in_place", [False, True], ids=["torch.compile", "compile()"])
def test_a_compiled_network_is_converted_and_compiled_anew(in_place):
    network = pretrained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()))
    compiled = network if in_place else torch.compile(network, backend="aot_eager")
    if in_place:
        network.compile(backend="aot_eager")
    expected = compiled(images())
    assert wcgan.convert_batchnorm(compiled) is compiled
    assert isinstance(network[1], wcgan.WhiteningColoring2d)
    torch.testing.assert_close(compiled(images()), expected, **ROUNDING)
    network[1].weight.mul_(2)
    torch.testing.assert_close(compiled(images()), network.forward(images()), **ROUNDING)
    torch.testing.assert_close(wcgan.fold(compiled)(images()), network.forward(images()), **ROUNDING)


# Several processes


def small_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3)).double()


def train_on_a_rank(rank, folder):
    with process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2):
        wrapped = DistributedDataParallel(small_network(), gradient_as_bucket_view=True, bucket_cap_mb=3)
        converted = wcgan.convert_batchnorm(wrapped, sync=True)
        converted(images(8).chunk(2)[rank]).square().mean().backward()
        same = type(converted) is DistributedDataParallel
        kept = (same, converted.gradient_as_bucket_view, converted.bucket_bytes_cap)
        torch.save((kept, [p.grad.clone() for p in converted.parameters()]), f"{folder}/{rank}.pt")
    os._exit(0)  # not through destructors: now and then, one of PyTorch's waits forever for a thread of Gloo


@pytest.mark.slow
@needs_gloo
def test_a_network_that_two_processes_train_shares_the_gradients_of_the_new_layers(tmp_path):
    start_two(train_on_a_rank, str(tmp_path))
    alone = wcgan.convert_batchnorm(small_network())
    alone(images(8)).square().mean().backward()
    for rank in range(2):
        kept, gradients = torch.load(tmp_path / f"{rank}.pt")
        assert kept == (True, True, 3 * 2**20)
        for found, parameter in zip(gradients, alone.parameters(), strict=True):
            torch.testing.assert_close(found, parameter.grad, rtol=1e-10, atol=1e-12)


# Frozen statistics


def trained_network():
    network = wcgan.convert_batchnorm(pretrained(small_network()))
    network.train()(images(4))
    return network


def statistics(network):
    return {k: v.clone() for k, v in network.named_buffers() if not k.endswith("_whitening")}


def test_frozen_statistics_are_used_and_left_alone_in_training():
    network = wcgan.freeze_statistics(trained_network()).train()
    before, expected = statistics(network), copy.deepcopy(network).eval()(images(1))
    assert network.training
    torch.testing.assert_close(network(images(1)), expected, rtol=0, atol=0)
    assert all(torch.equal(value, before[name]) for name, value in statistics(network).items())


def test_the_coloring_of_a_frozen_layer_still_learns():
    network = wcgan.freeze_statistics(trained_network()).train()
    network(images(1)).square().sum().backward()
    assert network[1].weight.grad.abs().min() > 0


def test_thawed_layers_follow_the_network_again():
    network = wcgan.freeze_statistics(trained_network())
    wcgan.freeze_statistics(network, frozen=False)
    assert network[1].training
    assert not network.eval()[1].training
    assert network.train()[1].training


def test_freezing_leaves_a_network_in_evaluation_there():
    network = trained_network().eval()
    assert not any(m.training for m in wcgan.freeze_statistics(network).modules())
    assert not any(m.training for m in wcgan.freeze_statistics(network, frozen=False).modules())


def test_a_frozen_layer_says_so():
    assert "frozen=True" in repr(wcgan.freeze_statistics(trained_network())[1])


def test_a_layer_without_statistics_cannot_be_frozen_and_nothing_changes():
    network = nn.Sequential(wcgan.WhiteningColoring2d(3), wcgan.WhiteningColoring2d(3, track_running_stats=False))
    with pytest.raises(ValueError, match=r"^1 has no running statistics to freeze"):
        wcgan.freeze_statistics(network)
    assert not network[0].frozen


def test_a_model_without_layers_is_returned_with_a_warning():
    with pytest.warns(UserWarning, match="freeze_statistics found no whitening layer"):
        wcgan.freeze_statistics(nn.Sequential(nn.ReLU()))
