"""Layers that whiten in groups, on a GPU: by the same kernels, as exactly, in few launches."""

import copy

import pytest
import torch
from tests.cuda.cases import ADDED, EAGER, count_launches, layer_and_inputs, step

import wcgan

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),  # PyTorch says that it is a prototype
]


def errors_beside_operators(layer, x, labels, monkeypatch):
    """Relative errors in norm of what `step` returns, beside plain operators."""
    other = copy.deepcopy(layer)
    for _ in range(2):  # the second time by direct launches
        again = copy.deepcopy(layer)
        found = step(again, x.clone().requires_grad_(), labels)
    with monkeypatch.context() as patch:
        for function in ("whiten_color_eagerly", "map_by_kernels"):
            patch.setattr(f"wcgan.norm._base.{function}", lambda *args: None)
        patch.setattr("wcgan.norm._base.is_eager", lambda args: False)
        patch.setattr("torch.backends.cudnn.allow_tf32", False)
        expected = step(other, x.clone().requires_grad_(), labels)
    assert (again.num_retried, again.num_nonfinite) == (other.num_retried, other.num_nonfinite)
    pairs = {key: (found[key].double(), value.double()) for key, value in expected.items()}
    return again, {key: ((value - wanted).norm() / wanted.norm()).item() for key, (value, wanted) in pairs.items()}


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", EAGER)
@pytest.mark.parametrize(
    ("name", "channels", "groups"),
    [("WC", 64, 4), ("WC", 64, 64), ("WC", 66, 3), ("WC", 1024, 2), ("cWC", 64, 16), ("cWC_sa", 64, 2)],
)
def test_eager_layers_in_groups_equal_the_operators(
    name, channels, groups, dtype, memory_format, training, monkeypatch
):
    layer, x, labels = layer_and_inputs(name, "cuda", channels=channels, samples=64, groups=groups)
    layer(x, *labels)
    x = x.detach().to(dtype).contiguous(memory_format=memory_format)
    _, errors = errors_beside_operators(layer.train(training), x, labels, monkeypatch)
    allowed = max(2 * EAGER[dtype], 1e-4 if channels > 512 else 0.0)  # a product of random factors is ill-conditioned
    assert max(errors.values()) <= allowed, errors


@pytest.mark.parametrize(
    ("channels", "groups", "training", "by_kernels"),
    [(32, 4, True, True), (32, 4, False, True), (2048, 16, True, True), (2048, 2, True, False)],
)
def test_groups_of_at_most_512_channels_take_the_way_of_few_calls(channels, groups, training, by_kernels):
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("the fused factorisation needs a GPU with thread block clusters")
    layer = wcgan.WhiteningColoring2d(channels, groups=groups, device="cuda").train(training)
    x = torch.randn(16, channels, 8, 8, device="cuda", requires_grad=True)
    assert (layer(x).grad_fn.name() == "_ByKernelsBackward") == by_kernels


@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_a_retried_group_has_the_same_gradient_by_the_operators(name, monkeypatch, no_synchronisation):
    layer, x, labels = layer_and_inputs(name, "cuda", samples=64, groups=4, eps=0.0)
    x = x.detach()
    x[:, 9] = 0  # in the second group
    layer, errors = errors_beside_operators(layer, x, labels, monkeypatch)
    assert layer.num_retried == 1
    assert max(errors.values()) <= 1e-3, errors
    no_synchronisation(lambda: step(layer, x.clone().requires_grad_(), labels))


def test_a_batch_that_is_not_finite_in_one_group_is_counted_and_kept_out_of_the_statistics(no_synchronisation):
    layer, x, _ = layer_and_inputs("WC", "cuda", groups=4)
    layer(x)
    before, x = copy.deepcopy(layer.state_dict()), x.detach()
    x[0, 9, 0, 0] = torch.inf
    out = no_synchronisation(lambda: layer(x))
    assert out.isnan().all()
    assert all(torch.equal(before[key], value) for key, value in layer.state_dict().items())
    assert (layer.num_retried.item(), layer.num_nonfinite.item()) == (0, 1)


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
@pytest.mark.parametrize("groups", [4, 16])
def test_a_layer_in_groups_has_few_launches(groups):
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("the fused factorisation needs a GPU with thread block clusters")
    layer = wcgan.WhiteningColoring2d(256, groups=groups, device="cuda")
    x = torch.randn(64, 256, 8, 8, device="cuda").bfloat16().contiguous(memory_format=torch.channels_last)
    x.requires_grad_()
    assert layer(x).grad_fn.name() == "_ByKernelsBackward"
    assert 0 < count_launches(layer, x) <= 17 + ADDED
