"""Layers wider than the factorisation kernel, on a GPU: blocks of it, as exactly, in few launches."""

import copy

import pytest
import torch
from tests.cuda.cases import ADDED, EAGER, count_launches, step

import wcgan

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),  # PyTorch says that it is a prototype
]


def wide_layer_and_batch(channels, dtype=torch.float32):
    """A layer wider than the factorisation kernel, and a batch of more than twice as many positions as channels."""
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("the fused factorisation needs a GPU with thread block clusters")
    torch.manual_seed(0)
    x = torch.randn(max(64, channels // 16), channels, 6, 6, device="cuda")
    return wcgan.WhiteningColoring2d(channels, device="cuda"), x.to(dtype).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("channels", [520, 1024, 2048])
def test_a_layer_wider_than_the_factorisation_kernel_takes_that_way_too(channels, autocast):
    layer, x = wide_layer_and_batch(channels)
    expected = step(copy.deepcopy(layer).double(), x.double().requires_grad_(), ())  # on plain operators
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        assert layer(x.clone().requires_grad_()).grad_fn.name() == "_ByKernelsBackward"
        for _ in range(2):  # the second time by direct launches
            layer.reset_running_stats()
            layer.zero_grad()
            found = step(layer, x.clone().requires_grad_(), ())
    for key, value in expected.items():
        error = (found[key].double() - value).norm() / value.norm()
        assert error <= EAGER[torch.float32], f"{key}: off by {error:.2g}"


@pytest.mark.parametrize("channels", [1024, 2048])
def test_a_wide_layer_in_bfloat16_is_as_exact_as_its_type(channels):
    layer, x = wide_layer_and_batch(channels, torch.bfloat16)
    expected = step(copy.deepcopy(layer).double(), x.double().requires_grad_(), ())
    found = step(layer, x.clone().requires_grad_(), ())
    for key, value in expected.items():
        error = (found[key].double() - value).norm() / value.norm()
        assert error <= 2 * EAGER[torch.bfloat16], f"{key}: off by {error:.2g}"


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
@pytest.mark.parametrize(("channels", "launches"), [(1024, 28), (2048, 40)])
def test_a_wide_layer_has_few_launches(channels, launches):
    layer, x = wide_layer_and_batch(channels, torch.bfloat16)
    x.requires_grad_()
    assert 0 < count_launches(layer, x) <= launches + ADDED


@pytest.mark.parametrize("channels", [600, 2048])
def test_a_wide_covariance_that_cannot_be_factorised_is_retried_and_counted_without_waiting(
    channels, no_synchronisation
):
    layer, x = wide_layer_and_batch(channels)
    layer.eps = 0.0
    step(layer, x.clone().requires_grad_(), ())
    x[:, channels - 1] = 0  # in the last block
    x.requires_grad_()
    found = no_synchronisation(lambda: step(layer, x, ()))
    assert (layer.num_retried.item(), layer.num_nonfinite.item()) == (1, 0)
    assert all(value.isfinite().all() for value in found.values())


def test_a_wide_batch_that_is_not_finite_is_counted_and_kept_out_of_the_statistics(no_synchronisation):
    layer, x = wide_layer_and_batch(1024)
    layer(x)
    before = copy.deepcopy(layer.state_dict())
    x[0, 1000, 0, 0] = torch.inf
    out = no_synchronisation(lambda: layer(x))
    assert out.isnan().all()
    assert all(torch.equal(before[key], value) for key, value in layer.state_dict().items())
    assert (layer.num_retried.item(), layer.num_nonfinite.item()) == (0, 1)


@pytest.mark.parametrize("retried", [False, True])
def test_a_wide_layer_is_captured_in_a_cuda_graph(retried):
    layer, x = wide_layer_and_batch(1024)
    layer.eps = 0.0
    eager, x = copy.deepcopy(layer), x.requires_grad_()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(copy.deepcopy(layer), x, ())
    torch.cuda.current_stream().wait_stream(stream)
    graph, x.grad = torch.cuda.CUDAGraph(), None
    with torch.cuda.graph(graph):
        captured = step(layer, x, ())
    if retried:  # the graph decides when it runs
        with torch.no_grad():
            x[:, 3] = 0
    graph.replay()
    torch.cuda.synchronize()
    expected = step(eager, x.detach().clone().requires_grad_(), ())
    assert layer.num_retried.item() == eager.num_retried.item() == int(retried)
    for key, value in expected.items():
        torch.testing.assert_close(captured[key], value, rtol=1e-4, atol=1e-4, msg=lambda m, key=key: f"{key}: {m}")
