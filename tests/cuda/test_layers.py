"""The layers on a GPU: the same results as on the CPU, and never a wait for the device."""

import copy

import pytest
import torch
from tests.cuda.cases import CLASSES, EAGER, layer_and_inputs, step

import wcgan

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),  # PyTorch says that it is a prototype
]

WITHOUT_WAITING = list(wcgan.VARIANTS)  # of 32 channels: the eigenvalues of more are waited for


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", wcgan.VARIANTS)
def test_training_batch_equals_the_cpu_in_float64(name, memory_format):
    on_cpu = step(*layer_and_inputs(name, "cpu", torch.float64))
    layer, x, labels = layer_and_inputs(name, "cuda", torch.float64)
    on_gpu = step(layer, x.detach().to(memory_format=memory_format).requires_grad_(), labels)
    for key, value in on_cpu.items():
        torch.testing.assert_close(on_gpu[key].cpu(), value, rtol=1e-9, atol=1e-9, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last_3d])
@pytest.mark.parametrize("name", ["BN", "std-C", "WC", "cWC", "cWC_sa"])
def test_training_batch_of_volumes_equals_that_of_feature_maps(name, memory_format):
    maps, x, labels = layer_and_inputs(name, "cuda", torch.float64)
    volumes = wcgan.normalization(
        name, 32, classes=CLASSES if labels else None, dim=3, dtype=torch.float64, device="cuda"
    )
    volumes.load_state_dict(maps.state_dict())
    deep = x.detach().unflatten(2, (3, 2)).to(memory_format=memory_format)
    torch.testing.assert_close(volumes(deep, *labels).flatten(2, 3), maps(x, *labels), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(dict(volumes.state_dict()), dict(maps.state_dict()), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", WITHOUT_WAITING)
def test_training_never_waits_for_the_gpu(name, no_synchronisation):
    layer, x, labels = layer_and_inputs(name, "cuda")
    step(layer, x, labels)
    no_synchronisation(lambda: step(layer, x, labels))


@pytest.mark.parametrize("name", wcgan.VARIANTS)
def test_inference_never_waits_for_the_gpu(name, no_synchronisation):
    layer, x, labels = layer_and_inputs(name, "cuda")
    layer(x, *labels)
    layer.eval()
    no_synchronisation(lambda: layer(x, *labels))


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", EAGER)
@pytest.mark.parametrize("name", ["WC", "cWC", "cWC_sa", "BN", "cBN"])
def test_eager_layers_equal_the_operators(name, dtype, memory_format, training, monkeypatch):
    layer, x, labels = layer_and_inputs(name, "cuda", channels=64, samples=64)
    layer(x, *labels)
    layer.train(training)
    other = copy.deepcopy(layer)
    x = x.detach().to(dtype).contiguous(memory_format=memory_format)
    found = step(layer, x.clone().requires_grad_(), labels)
    for function in ("whiten_color_eagerly", "map_by_kernels"):
        monkeypatch.setattr(f"wcgan.norm._base.{function}", lambda *args: None)
    monkeypatch.setattr("wcgan.norm._base.is_eager", lambda args: False)
    monkeypatch.setattr("torch.backends.cudnn.allow_tf32", False)  # an affine map is a convolution there
    for key, value in step(other, x.clone().requires_grad_(), labels).items():
        error = (found[key].double() - value.double()).norm() / value.double().norm()
        assert error <= EAGER[dtype], f"{key}: off by {error:.2g}"


@pytest.mark.parametrize(
    ("name", "training"), [("WC", True), ("cWC", True), ("cWC_sa", True), ("WC", False), ("cWC", False)]
)
def test_eager_code_takes_the_way_of_few_calls(name, training):
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("the fused factorisation needs a GPU with thread block clusters")
    layer, x, labels = layer_and_inputs(name, "cuda")
    assert layer.train(training)(x.contiguous(), *labels).grad_fn.name() == "_ByKernelsBackward"


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_a_batch_and_a_coloring_anywhere_in_memory_give_the_same(name, training):
    """Not aligned, a gradient of another layout, a weight that is a transposed view."""
    layer, x, labels = layer_and_inputs(name, "cuda", samples=16, side=8)
    layer(x, *labels)
    layer.train(training)
    x = x.detach().contiguous()
    expected = step(copy.deepcopy(layer), x.clone().requires_grad_(), labels)
    assert layer.weight is not None
    layer.weight.data = layer.weight.data.mT.contiguous().mT
    for _ in range(2):
        moved = torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape)
        assert moved.data_ptr() % 16
        found = step(copy.deepcopy(layer), moved.requires_grad_(), labels)
        for key, value in expected.items():
            error = (found[key].double() - value.double()).norm() / value.double().norm()
            assert error <= 1e-4, f"{key}: off by {error:.2g}"
    out = layer(x.requires_grad_(), *labels)
    cotangent = torch.randn_like(out)
    gradients = [
        torch.autograd.grad(out, x, cotangent.contiguous(memory_format=layout), retain_graph=True)[0]
        for layout in (torch.contiguous_format, torch.channels_last)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_a_layer_elsewhere_is_refused_before_a_kernel_gets_its_addresses(name, training):
    layer, x, labels = layer_and_inputs(name, "cuda")
    x = x.detach().contiguous()
    layer.train(training)
    for _ in range(2):  # the second launch of each kernel is a direct one
        layer(x, *labels)
    with pytest.raises(RuntimeError, match=r"device|type"):
        copy.deepcopy(layer).cpu()(x, *labels)
    assert layer(x, *labels).isfinite().all()


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", ["WC", "cWC", "BN"])
def test_an_empty_batch_passes(name, training):
    layer, x, labels = layer_and_inputs(name, "cuda")
    out = layer.train(training)(x[:0], *(y[:0] for y in labels))
    out.sum().backward()
    assert out.shape == x[:0].shape
    assert not x.grad.any()


@pytest.mark.parametrize("name", ["WC", "cWC", "BN"])
def test_the_gpu_may_be_the_default_device(name):
    layer, x, labels = layer_and_inputs(name, "cuda")
    expected = copy.deepcopy(layer)(x, *labels)
    with torch.device("cuda"):
        torch.testing.assert_close(layer(x, *labels), expected)


@pytest.mark.parametrize("dtype", EAGER)
def test_there_may_be_more_colorings_than_a_grid_has_rows(dtype):
    layer = wcgan.ConditionalWhiteningColoring1d(2, CLASSES, device="cuda")
    weights = torch.rand(2**16, CLASSES, device="cuda")
    x = torch.randn(2**16, 2, device="cuda").to(dtype)
    found = step(copy.deepcopy(layer), x.clone().requires_grad_(), (weights,))
    with wcgan.functional.plain_passes():
        expected = step(layer, x.clone().requires_grad_(), (weights,))
    for key, value in expected.items():
        error = (found[key].double() - value.double()).norm() / value.double().norm()
        assert error <= 4 * EAGER[dtype], f"{key}: off by {error:.2g}"


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_a_batch_that_is_still_to_be_negated(training):
    layer = wcgan.WhiteningColoring1d(8, device="cuda").train(training)
    x = torch.randn(64, 8, dtype=torch.complex64, device="cuda").conj().imag + 0
    negated = torch.complex(x, -x).conj().imag
    assert negated.is_neg()
    torch.testing.assert_close(copy.deepcopy(layer)(negated), layer(x), rtol=1e-4, atol=1e-4)


def test_gradients_in_float16_do_not_vanish_where_the_map_from_the_batch_is_small():
    layer, x = wcgan.WhiteningColoring1d(32, device="cuda"), 100 * torch.randn(512, 32, device="cuda").half()
    out = layer(x.requires_grad_())
    cotangent = 1e-4 * (torch.randn_like(out) + out.detach())
    (found,) = torch.autograd.grad(out, x, cotangent)
    wide = x.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(layer.double()(wide), wide, cotangent.double())
    assert (found.double() - expected).norm() <= 2e-2 * expected.norm()


@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_a_batch_of_more_elements_than_32_bits_count(name):
    copies, side = 2**11 + 1, 64
    if torch.cuda.get_device_properties(0).total_memory < 40 * 2**30:
        pytest.skip("needs 40 GiB")
    conditional = (torch.arange(side, device="cuda") % CLASSES,) if name == "cWC" else ()
    layer = wcgan.normalization(name, 128, CLASSES if conditional else None, dim=1, device="cuda")
    x, cotangent = torch.randn(2, side, 128, 128, device="cuda", dtype=torch.bfloat16) + 0.5
    results = []
    for number in (1, copies):
        many = x.repeat(number, 1, 1).requires_grad_()
        out = copy.deepcopy(layer)(many, *(y.repeat(number) for y in conditional))
        (gradient,) = torch.autograd.grad(out, many, cotangent.repeat(number, 1, 1))
        results.append([t.detach()[-side:].double() for t in (out, gradient)])  # of the last copy
    assert copies * x.numel() > 2**31
    for value, wanted in zip(results[1], results[0], strict=True):
        assert (value - wanted).norm() <= 2**-7 * wanted.norm()


def test_a_layer_follows_the_current_stream():
    layer, x, _ = layer_and_inputs("WC", "cuda", torch.float32, 256, 128, 16)
    x = x.detach().contiguous(memory_format=torch.channels_last)
    expected = layer(x + 1).detach()
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(200):
            x.flatten(1) @ x.flatten(1).mT
        x.add_(1)  # after a long time
        found = layer(x)
    stream.synchronize()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("name", "channels"), [("WC", 32), ("cWC", 32), ("WC", 600)])
def test_a_retried_covariance_has_the_same_gradient_by_the_operators(name, channels, monkeypatch):
    layer, x, labels = layer_and_inputs(name, "cuda", channels=channels, samples=64)
    x = x.detach()
    x[:, 1] = 0  # with eps 0 this covariance has no Cholesky factor
    layer.eps = 0.0
    other = copy.deepcopy(layer)
    found = step(layer, x.clone().requires_grad_(), labels)
    monkeypatch.setattr("wcgan.norm._base.whiten_color_eagerly", lambda *args: None)
    expected = step(other, x.clone().requires_grad_(), labels)
    assert layer.num_retried == other.num_retried == 1
    for key, value in expected.items():
        error = (found[key].double() - value.double()).norm() / value.double().norm()
        assert error <= 1e-3, f"{key}: off by {error:.2g}"


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["WC", "cWC", "BN", "cBN"])
def test_evaluation_has_the_same_bits_with_and_without_gradients(name, dtype, memory_format):
    layer, x, labels = layer_and_inputs(name, "cuda")
    layer(x, *labels)
    layer.eval()
    x = x.detach().to(dtype).contiguous(memory_format=memory_format)
    expected = layer(x.clone().requires_grad_(), *labels)
    for context in (torch.no_grad, torch.inference_mode):
        for _ in range(2):  # the second launch of each kernel is a direct one
            with context():
                out = layer(x, *labels)
            assert torch.equal(out, expected)
            assert (out.dtype, out.stride()) == (x.dtype, x.stride())


@pytest.mark.parametrize("name", ["WC", "cWC", "BN", "cBN"])
def test_evaluation_follows_a_change_of_the_state(name, monkeypatch):
    monkeypatch.setattr("torch.backends.cudnn.allow_tf32", False)  # PyTorch maps such a batch by a convolution
    layer, x, labels = layer_and_inputs(name, "cuda")
    layer(x, *labels)
    layer.eval()
    x = x.detach()

    def check():
        with torch.no_grad():
            found = layer(x, *labels)
            expected = copy.deepcopy(layer).double().cpu()(x.double().cpu(), *(y.cpu() for y in labels))
        error = (found.double().cpu() - expected).norm() / expected.norm()
        assert error <= 1e-4, f"off by {error:.2g}"

    check()
    layer.running_mean.data.add_(3)
    check()
    for parameter in layer.parameters():
        parameter.data.mul_(2)
    check()
    for parameter in layer.parameters():
        parameter.data = parameter.data + 1  # elsewhere in memory
    check()
    layer.load_state_dict({key: 2 * value for key, value in layer.state_dict().items()})
    check()
    layer.cpu().cuda()
    check()
    layer.train()(x, *labels)
    layer.eval()
    check()


@pytest.mark.parametrize("name", ["cWC", "cBN"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_label_out_of_range_gives_nan_and_then_an_error_without_waiting(name, training, no_synchronisation):
    layer, x, (labels,) = layer_and_inputs(name, "cuda")
    layer(x, labels)
    layer.train(training)
    layer(x, labels)
    before = copy.deepcopy(layer.state_dict())
    wrong = labels.clone()
    wrong[3] = 7
    out = no_synchronisation(lambda: layer(x, wrong))
    torch.cuda.synchronize()
    assert out.isnan().all()
    assert all(torch.equal(before[key], value) for key, value in layer.state_dict().items())
    with pytest.raises(ValueError, match=r"label 7 is out of range: with 5 classes, labels are 0 to 4"):
        layer(x, labels)
    assert layer(x, labels).isfinite().all()


def test_a_layer_may_be_called_in_inference_mode_first():
    layer, x, labels = layer_and_inputs("cWC", "cuda")
    with torch.inference_mode():
        layer.eval()(x, *labels)
    assert layer.train()(x, *labels).isfinite().all()


def test_covariance_that_cannot_be_factorised_is_retried_and_counted_without_waiting(no_synchronisation):
    layer = wcgan.WhiteningColoring2d(16).cuda()
    x = 1e6 * torch.randn(8, 1, 4, 4, device="cuda").expand(-1, 16, -1, -1).contiguous()
    layer(torch.randn_like(x))
    out = no_synchronisation(lambda: layer(x))
    assert out.isfinite().all()
    assert layer.num_retried.item() == 1


def test_nan_batch_is_counted_and_kept_out_of_the_statistics(no_synchronisation):
    layer = wcgan.WhiteningColoring2d(16).cuda()
    x = torch.randn(8, 16, 4, 4, device="cuda")
    layer(x)
    before = copy.deepcopy(layer.state_dict())
    x[0, 0, 0, 0] = torch.inf
    no_synchronisation(lambda: layer(x))
    assert all(torch.equal(before[key], value) for key, value in layer.state_dict().items())
    assert layer.num_nonfinite.item() == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["WC", "cWC_sa", "BN"])
def test_half_precision_batch_keeps_float32_statistics(name, dtype):
    layer, x, labels = layer_and_inputs(name, "cuda")
    reference = copy.deepcopy(layer)(x.detach().to(dtype).float(), *labels)
    with torch.autocast("cuda", dtype):
        out = layer(x.detach().to(dtype), *labels)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), reference, rtol=2 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("name", WITHOUT_WAITING)
def test_training_step_is_captured_in_a_cuda_graph(name):
    layer, x, labels = layer_and_inputs(name, "cuda")
    eager = copy.deepcopy(layer)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step(copy.deepcopy(layer), x, labels)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    x.grad = None
    with torch.cuda.graph(graph):
        captured = step(layer, x, labels)
    graph.replay()
    torch.cuda.synchronize()
    expected = step(eager, x.detach().clone().requires_grad_(), labels)
    for key, value in expected.items():
        torch.testing.assert_close(captured[key], value, rtol=1e-4, atol=1e-4, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.filterwarnings("ignore")  # the compiler's own, which differ from release to release
@pytest.mark.parametrize(
    ("name", "channels"), [("WC", 32), ("cWC", 32), ("cWC_sa", 32), ("BN", 32), ("cBN", 32), ("WC", 600)]
)
def test_compiled_training_equals_eager(name, channels):
    torch._dynamo.reset()
    layer, x, labels = layer_and_inputs(name, "cuda", channels=channels, samples=12 if channels == 32 else 64)
    compiled = torch.compile(copy.deepcopy(layer), fullgraph=True)
    expected = step(layer, x, labels)
    actual = step(compiled, x.detach().clone().requires_grad_(), labels)
    for key, value in actual.items():
        key = key.removeprefix("_orig_mod.")
        torch.testing.assert_close(value, expected[key], rtol=1e-4, atol=1e-4, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.filterwarnings("ignore")  # the compiler's own, which differ from release to release
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@torch.no_grad()
def test_a_compiled_folded_map_with_its_relu_in_one_product_equals_the_two(dtype):
    layer, x, _ = layer_and_inputs("WC", "cuda")
    layer(x)
    folded, x = wcgan.fold(layer).to(dtype), x.to(dtype).contiguous(memory_format=torch.channels_last)
    compiled = torch.compile(folded, fullgraph=True)
    torch.testing.assert_close(compiled(x, relu=True), folded(x).relu())
