"""The kernels of `wcgan.kernels.layer` on the CPU, run by `test_batch` where Triton interprets them."""

import copy
import math
import sys
import types

import pytest
import torch
from tests.kernels.cases import in_layout, make_batch, split_into_float16
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

import wcgan
from wcgan.functional import _eager
from wcgan.functional.normalize import Statistics

batch = pytest.importorskip("wcgan.kernels.batch", reason="Triton is not installed")
layer_kernels = pytest.importorskip("wcgan.kernels.layer", reason="Triton is not installed")

# The largest error in norm of a result, relative to it.
PRECISIONS = {"float32": 2e-5, "float16": 4e-3, "float16 for bfloat16": 4e-3}
EPS = 0.01


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def parts_of_float16(monkeypatch):
    split_into_float16(monkeypatch)


@pytest.fixture(autouse=True)
def float16_for_bfloat16(request, monkeypatch):
    """What the kernels' modules take for bfloat16 is float16, where a test's precision says so."""
    if "float16 for bfloat16" in request.node.name:
        stand_in = types.ModuleType("torch")
        vars(stand_in).update(vars(torch), bfloat16=torch.float16)
        for module in (batch, layer_kernels):
            monkeypatch.setattr(module, "torch", stand_in)
        for function in (layer_kernels._forward, layer_kernels._backward):
            monkeypatch.setattr(layer_kernels, function.__name__, function.__wrapped__)  # remembers nothing


def colorings(kind: str, n: int, d: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Matrices, shifts and slots: one for all, three by a slot that leaves one out, or one for each sample."""
    slots = {"shared": 1, "class": 3, "sample": n}[kind]
    shape = () if kind == "shared" else (slots,)
    index = torch.arange(n).mul(5).remainder(2).mul(2) if kind == "class" else None  # slots 0 and 2
    return torch.randn(*shape, d, d), torch.randn(*shape, d), index


def oracle(x, color, shift, index, fixed):
    """The layer in float64 by plain autodiff."""
    d = x.shape[1]
    rows = x.movedim(1, -1).reshape(-1, d)
    if fixed is None:
        mean, sigma = rows.mean(0), (1 - EPS) * rows.mT.cov() + EPS * torch.eye(d, dtype=x.dtype)
        w = torch.linalg.inv(torch.linalg.cholesky(sigma))
    else:
        w, mean = (t.double() for t in fixed)
    slots = torch.zeros(x.shape[0], dtype=torch.int64) if color.dim() == 2 else index
    slots = torch.arange(x.shape[0]) if slots is None else slots
    color, shift = (t.reshape(-1, *t.shape[-k:])[slots] for t, k in ((color, 2), (shift, 1)))
    places = (x - mean.view(1, d, *[1] * (x.dim() - 2))).flatten(2) if x.dim() > 2 else (x - mean).unsqueeze(2)
    return (color @ (w @ places) + shift.unsqueeze(2)).view(x.shape)


@pytest.mark.parametrize(
    ("name", "layout"), [*((name, "channels last") for name in PRECISIONS), ("float32", "contiguous")]
)
@pytest.mark.parametrize("statistics", ["of the batch", "fixed"])
@pytest.mark.parametrize("kind", ["shared", "class", "sample"])
def test_a_layer_and_its_gradients(kind, statistics, layout, name):
    n, d = (6, 17) if kind == "shared" else (4, 9)
    x = in_layout(make_batch((n, d, 9), name, layout, mean=1.0), layout).unflatten(2, (3, 3))
    color, shift, index = colorings(kind, n, d)
    fixed = None if statistics == "of the batch" else (torch.randn(d, d), torch.randn(d))
    shared = None if kind == "shared" else (torch.randn(d, d), torch.randn(d))
    relu = kind == "class"
    arguments = (index, torch.zeros(()) if relu else None, shared, fixed, EPS, relu, _eager._by_library)
    out, kept = layer_kernels.forward(x, color, shift, *arguments)
    grad = torch.randn_like(out)
    masked = torch.where(out > 0, grad, 0) if relu else grad
    given = (x, masked, color, shift, index, shared is not None, fixed, kept, EPS)
    found = layer_kernels.backward(*given, (True, True))
    leaves = [t.double().requires_grad_() for t in (x, color, shift, *(shared or ()))]
    colored = leaves[1:3] if shared is None else (leaves[1] + leaves[3], leaves[2] + leaves[4])
    expected = oracle(leaves[0], *colored, index, fixed)
    gradients = torch.autograd.grad(expected, leaves, masked.double())
    expected = expected.relu() if relu else expected
    named = ("output", "x", "color", "shift", "shared color", "shared shift")[: 4 if shared is None else 6]
    assert found[3:] == (None, None) or shared is not None
    for what, value, wanted in zip(named, (out, *found), (expected, *gradients), strict=False):
        error = (value.double() - wanted).norm() / wanted.norm()
        assert error <= PRECISIONS[name], f"{what}: off by {error:.2g}"
        assert value.shape == wanted.shape
    alone, nothing = layer_kernels.forward(x, color, shift, *arguments, keep=False)
    assert nothing is None
    assert torch.equal(alone, out)
    only = layer_kernels.backward(*given, (False, True))
    assert only[0] is None
    assert torch.equal(only[1], found[1])


@pytest.mark.parametrize("kind", ["shared", "class"])
def test_gradients_in_float16_do_not_vanish_where_the_map_from_the_batch_is_small(kind):
    x = (100 * make_batch((6, 9, 50), mean=0.0)).half()
    color, shift, index = colorings(kind, 6, 9)
    out, kept = layer_kernels.forward(x, color, shift, index, None, None, None, EPS, False, _eager._by_library)
    grad = (1e-4 * (torch.randn(out.shape) + out)).half()  # that map is of about 1e-8
    grad_x, *_ = layer_kernels.backward(x, grad, color, shift, index, False, None, kept, EPS, (True, True))
    given = x.double().requires_grad_()
    expected = oracle(given, color.double(), shift.double(), index, None)
    (wanted,) = torch.autograd.grad(expected, [given], grad.double())
    error = (grad_x.double() - wanted).norm() / wanted.norm()
    assert error <= 2e-2, f"off by {error:.2g}"


@pytest.mark.parametrize("shape", [(7, 4), (7, 4, 1), (5, 4, 3), (3, 4, 2, 1), (2, 4, 2, 3, 2), (1, 4, 7)], ids=str)
def test_batches_of_every_rank(shape):
    x, (color, shift, _) = torch.randn(shape), colorings("shared", 1, 4)
    out, kept = layer_kernels.forward(x, color, shift, None, None, None, None, EPS, False, _eager._by_library)
    grad = torch.randn_like(out)
    grad_x, *_ = layer_kernels.backward(x, grad, color, shift, None, False, None, kept, EPS, (True, True))
    given = x.double().requires_grad_()
    expected = oracle(given, color.double(), shift.double(), None, None)
    torch.testing.assert_close(out, expected.float(), rtol=1e-4, atol=1e-4)
    (wanted,) = torch.autograd.grad(expected, [given], grad.double())
    torch.testing.assert_close(grad_x, wanted.float(), rtol=1e-3, atol=1e-4)
    mean, covariance, retry = layer_kernels.statistics(kept, 4)
    rows = x.movedim(1, -1).reshape(-1, 4)
    torch.testing.assert_close(mean, rows.mean(0))
    torch.testing.assert_close(covariance, rows.mT.cov())
    assert retry.item() == 0


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize(("rows", "columns", "inner"), [(1, 5, 33), (40, 3, 7), (33, 65, 20), (3, 2, 1100)])
def test_products(rows, columns, inner, mirrored, monkeypatch):
    monkeypatch.setattr(layer_kernels, "INNER", 32)
    inner = columns if mirrored else inner
    a, b, out = torch.randn(inner, rows), torch.randn(inner, columns), torch.full((rows, columns), math.nan)
    right = b.tril() + b.tril(-1).mT if mirrored else b
    for poison in (None, torch.tensor(math.nan)):
        s = layer_kernels.Sequence("a", "b", "out", "poison", "scratch")
        options = {"factor": -0.5, "mirrored": mirrored, "poison": None if poison is None else "poison"}
        layer_kernels._add_product(s, "a", "b", "out", (rows, columns, inner), (1, rows), (columns, 1), **options)
        s(-1, a, b, out, poison, torch.empty(s.sizes["scratch"]))
        if poison is None:
            torch.testing.assert_close(out, -0.5 * a.mT @ right)
    assert out.isnan().all()


@pytest.mark.parametrize(("n", "slots"), [(1, 2), (64, 3), (150, 10), (7, 200)])
def test_samples_are_grouped_by_slot_in_their_order(n, slots):
    index = torch.randint(slots, (n,))
    order, bounds = torch.full((n,), -1, dtype=torch.int32), torch.full((slots + 1,), -1, dtype=torch.int32)
    grid = (-(-max(n, slots + 1) // 64),)
    constants = {"INDEXED": True, "B": 64}
    layer_kernels.programs.group_kernel[grid](order, bounds, index, n, slots, **constants)
    assert order.tolist() == index.argsort(stable=True).tolist()
    assert bounds.tolist() == torch.searchsorted(index.sort().values, torch.arange(slots + 1)).tolist()


@pytest.mark.parametrize("name", ["WC", "BN"])
@pytest.mark.parametrize("momentum", [0.1, 0.9, 1.0])
def test_running_statistics_are_updated_as_by_plain_operators(momentum, name):
    layer = wcgan.normalization(name, 5, momentum=momentum)
    rows = make_batch((6, 5, 9)).transpose(1, 2).reshape(-1, 5)
    mean, covariance, nothing = rows.mean(0), rows.mT.cov(), torch.zeros(1)
    broken = covariance.clone()
    broken[-1, -1] = torch.nan
    for retry, poison, of_batch in (
        *((nothing, None, covariance), (torch.tensor([1e-2]), torch.tensor(0.0), covariance)),
        *((nothing, torch.tensor(torch.nan), covariance), (nothing, None, broken)),
    ):
        other, versions = copy.deepcopy(layer), [t._version for t in layer.buffers()]
        if name == "WC":
            kept = torch.empty(1000)
            for target, value in zip(layer_kernels.statistics(kept, 5), (mean, of_batch, retry), strict=True):
                target.copy_(value)
            layer._update_by_kernel(kept, poison)
            second = of_batch.unsqueeze(0)
        else:
            retry, second = nothing, of_batch.diagonal().clone().view(5, 1, 1)
            batch.update(mean, second.flatten(), poison, *layer._running_and_counters(-1), momentum)
        other._update(Statistics(mean, second, retry), poison)
        assert all(t._version > version for t, version in zip(layer.buffers(), versions, strict=True))
        torch.testing.assert_close(dict(layer.state_dict()), dict(other.state_dict()))
        assert (layer.num_retried, layer.num_nonfinite) == (other.num_retried, other.num_nonfinite)
    assert (layer.num_batches_tracked, layer.num_retried, layer.num_nonfinite) == (2, int(name == "WC"), 2)


# Layers, whose passes go by the kernels


@pytest.fixture
def kernels_everywhere(monkeypatch):
    for name in ("_eager", "_passes", "parts"):  # `wcgan.functional.affine` is the function of that name
        monkeypatch.setattr(sys.modules[f"wcgan.functional.{name}"], "kernels_for", lambda *_: batch)


def training_step(variant, groups, node):
    """Output, gradients and statistics of a batch, in training and evaluation, and the output of it as two parts."""
    torch.manual_seed(1)
    classes = 3 if wcgan.VARIANTS[variant].conditional else None
    options = {"groups": groups} if groups else {}
    layer = wcgan.normalization(variant, 6, classes, **options)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    x = make_batch((8, 6, 9)).unflatten(2, (3, 3)).requires_grad_()
    labels = (torch.arange(8) % 3,) if classes else ()
    out = layer(x, *labels)
    assert variant not in ("WC", "cWC", "cWC_sa") or out.grad_fn.name() == node
    gradients = torch.autograd.grad(out, [x, *layer.parameters()], torch.randn(out.shape))
    with torch.no_grad(), wcgan.norm.sub_batches(layer, 2):
        halves = layer(x, *labels)
    evaluated = layer.eval()(x, *labels, relu=True)
    again = torch.autograd.grad(evaluated, [x, *layer.parameters()], torch.randn(out.shape))
    return [out.detach(), *gradients, halves, evaluated.detach(), *again, *layer.buffers()]


UNGROUPED = ("WC", "WC-diag", "std-C", "c-std-C", "cWC", "cWC_sa")


@pytest.mark.parametrize(("variant", "groups"), [*((v, None) for v in UNGROUPED), ("DBN", 2), ("IterNorm", 3)])
def test_layers_compute_what_they_do_by_plain_operators(variant, groups, request):
    expected = training_step(variant, groups, "_WhitenColorBackward")
    request.getfixturevalue("kernels_everywhere")
    for value, wanted in zip(training_step(variant, groups, "_ByKernelsBackward"), expected, strict=True):
        torch.testing.assert_close(value, wanted, rtol=2e-4, atol=2e-4)


def test_several_cotangents_at_once_may_have_any_layout(kernels_everywhere):
    x = make_batch((4, 6, 9)).unflatten(2, (3, 3)).requires_grad_()
    out = wcgan.WhiteningColoring2d(6)(x)
    assert out.grad_fn.name() == "_ByKernelsBackward"
    cotangents = torch.randn(*out.shape, 2).movedim(-1, 0)
    at_once = torch.autograd.grad(out, x, cotangents, is_grads_batched=True, retain_graph=True)[0]
    one_by_one = [torch.autograd.grad(out, x, each, retain_graph=True)[0] for each in cotangents]
    torch.testing.assert_close(at_once, torch.stack(one_by_one), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("variant", ["WC", "cWC", "cWC_sa"])
def test_a_compiled_layer_is_one_operator_each_way(variant, kernels_everywhere, monkeypatch):
    monkeypatch.setattr(_eager, "_is_compiled_by_kernels", constant(lambda *_: True))
    for d, n in ((6, 8), (5, 8), (7, 12)):  # other sizes make the compiler take them for variables
        check_compiled(variant, d, n)


def check_compiled(variant, d, n):
    classes = None if variant == "WC" else 3
    layer = wcgan.normalization(variant, d, classes)
    other, calls = copy.deepcopy(layer), []
    x, labels = make_batch((n, d, 9)).unflatten(2, (3, 3)), (torch.arange(n) % 3,) if classes else ()

    def backend(graph, _):
        calls.extend(str(node.target) for node in graph.graph.nodes if "wcgan" in str(node.target))
        return make_boxed_func(graph.forward)

    compiled = torch.compile(layer, backend=aot_autograd(fw_compiler=backend), fullgraph=True)
    for module, call in ((layer, compiled), (other, other)):
        given = x.clone().requires_grad_()
        out = call(given, *labels, relu=True)
        out.sin().sum().backward()
        module.found = [out.detach(), given.grad, *(p.grad for p in module.parameters()), *module.buffers()]
    for value, wanted in zip(layer.found, other.found, strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-4, atol=1e-4)
    whitening = [call for call in calls if "label" not in call]
    assert whitening == ["wcgan.layer.default", "wcgan.layer_gradients.default"]


@pytest.mark.parametrize(("d", "kind"), [(2, "shared"), (5, "class"), (6, "sample"), (32, "shared")])
def test_the_compiler_is_told_the_size_of_what_is_kept(d, kind):
    x, (color, shift, index) = torch.randn(3, d, 2), colorings(kind, 3, d)
    found = layer_kernels.forward(x, color, shift, index, None, None, None, EPS, False, _eager._by_library)
    told = _eager._fake_layer(x, color, shift, index, None, EPS, False)
    assert [(t.shape, t.dtype) for t in found] == [(t.shape, t.dtype) for t in told]


def constant(function):
    function._dynamo_marked_constant = True
    return function
