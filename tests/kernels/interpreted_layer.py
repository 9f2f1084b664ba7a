"""The kernels of `wcgan.kernels.layer` on the CPU, run by `test_batch` where Triton interprets them."""

import copy
import itertools
import math
import sys
import types

import pytest
import torch
import torch.utils.checkpoint
from tests.kernels.cases import in_layout, make_batch, split_into_float16
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

import wcgan
from wcgan.functional import _by_kernels
from wcgan.functional.normalize import Statistics

batch = pytest.importorskip("wcgan.kernels.batch", reason="Triton is not installed")
layer_kernels = pytest.importorskip("wcgan.kernels.layer", reason="Triton is not installed")

# The largest error in norm of a result, relative to it.
PRECISIONS = {"float32": 2e-5, "float16": 4e-3, "float16 for bfloat16": 4e-3}
EPS = 0.01
SLOW = pytest.mark.slow  # run by the slow one of the two tests that run this file


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


def oracle(x, color, shift, index, fixed, groups=1):
    """The layer in float64 by plain autodiff."""
    d = x.shape[1]
    rows = x.movedim(1, -1).reshape(-1, d)
    if fixed is None:
        mean, sigma = rows.mean(0), (1 - EPS) * rows.mT.cov() + EPS * torch.eye(d, dtype=x.dtype)
        parts = (slice(i, i + d // groups) for i in range(0, d, d // groups))
        blocks = [sigma[part, part] for part in parts]
        w = torch.block_diag(*(torch.linalg.inv(torch.linalg.cholesky(block)) for block in blocks))
    else:
        w, mean = torch.block_diag(*fixed[0].double()) if groups > 1 else fixed[0].double(), fixed[1].double()
    slots = torch.zeros(x.shape[0], dtype=torch.int64) if color.dim() == 2 else index
    slots = torch.arange(x.shape[0]) if slots is None else slots
    color, shift = (t.reshape(-1, *t.shape[-k:])[slots] for t, k in ((color, 2), (shift, 1)))
    places = (x - mean.view(1, d, *[1] * (x.dim() - 2))).flatten(2) if x.dim() > 2 else (x - mean).unsqueeze(2)
    return (color @ (w @ places) + shift.unsqueeze(2)).view(x.shape)


def layer_cases():
    for kind, statistics in itertools.product(("shared", "class", "sample"), ("of the batch", "fixed")):
        for name, layout in [*((name, "channels last") for name in PRECISIONS), ("float32", "contiguous")]:
            case = (kind, statistics)
            quick = {
                "float32": case == ("class", "of the batch") or (layout == "channels last" and kind != "class"),
                "float16": case == ("class", "of the batch"),
                "float16 for bfloat16": case == ("shared", "of the batch"),
            }[name]
            yield pytest.param(kind, statistics, layout, name, 1, marks=() if quick else SLOW)
            # Groups smaller than a tile, of a row each, or across its edge.
            quick = layout == "channels last" and (kind, statistics, name) in (
                ("shared", "of the batch", "float16 for bfloat16"),
                ("class", "of the batch", "float32"),
            )
            groups = {"shared": 3, "class": 2, "sample": 8}[kind]
            yield pytest.param(kind, statistics, layout, name, groups, marks=() if quick else SLOW)
    yield pytest.param("class", "of the batch", "channels last", "float16", 20, marks=SLOW)


@pytest.mark.parametrize(("kind", "statistics", "layout", "name", "groups"), list(layer_cases()))
def test_a_layer_and_its_gradients(kind, statistics, layout, name, groups):
    n, d = (6, 17) if kind == "shared" else (4, 9)
    if groups > 1:
        d = {"shared": 18, "class": 40, "sample": 8}[kind]
    x = in_layout(make_batch((n, d, 9), name, layout, mean=1.0), layout).unflatten(2, (3, 3))
    color, shift, index = colorings(kind, n, d)
    shape = (d, d) if groups == 1 else (groups, d // groups, d // groups)
    fixed = None if statistics == "of the batch" else (torch.randn(shape), torch.randn(d))
    shared = None if kind == "shared" else (torch.randn(d, d), torch.randn(d))
    relu = kind == "class"
    arguments = (index, torch.zeros(()) if relu else None, shared, fixed, EPS, relu, _by_kernels._by_operators)
    out, kept = layer_kernels.forward(x, color, shift, *arguments, groups=groups)
    grad = torch.randn_like(out)
    masked = torch.where(out > 0, grad, 0) if relu else grad
    given = (x, masked, color, shift, index, shared is not None, fixed, kept, EPS)
    found = layer_kernels.backward(*given, (True, True), groups)
    leaves = [t.double().requires_grad_() for t in (x, color, shift, *(shared or ()))]
    colored = leaves[1:3] if shared is None else (leaves[1] + leaves[3], leaves[2] + leaves[4])
    expected = oracle(leaves[0], *colored, index, fixed, groups)
    gradients = torch.autograd.grad(expected, leaves, masked.double())
    expected = expected.relu() if relu else expected
    named = ("output", "x", "color", "shift", "shared color", "shared shift")[: 4 if shared is None else 6]
    assert found[3:] == (None, None) or shared is not None
    for what, value, wanted in zip(named, (out, *found), (expected, *gradients), strict=False):
        error = (value.double() - wanted).norm() / wanted.norm()
        assert error <= PRECISIONS[name], f"{what}: off by {error:.2g}"
        assert value.shape == wanted.shape
    alone, nothing = layer_kernels.forward(x, color, shift, *arguments, keep=False, groups=groups)
    assert nothing is None
    assert torch.equal(alone, out)
    only = layer_kernels.backward(*given, (False, True), groups)
    assert only[0] is None
    assert torch.equal(only[1], found[1])


@pytest.mark.parametrize("kind", ["shared", "class"])
def test_gradients_in_float16_do_not_vanish_where_the_map_from_the_batch_is_small(kind):
    x = (100 * make_batch((6, 9, 50), mean=0.0)).half()
    color, shift, index = colorings(kind, 6, 9)
    out, kept = layer_kernels.forward(x, color, shift, index, None, None, None, EPS, False, _by_kernels._by_operators)
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
    out, kept = layer_kernels.forward(x, color, shift, None, None, None, None, EPS, False, _by_kernels._by_operators)
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
        updates = layer._updates_by_kernels(-1)
        if name == "WC":
            running, counters, step = updates
            launch = batch.update_launcher(5, step, True, poison is not None, True, True)
            launch(mean, of_batch, retry, poison, *running, *counters)
            batch.count_changes(running, counters)
            second = of_batch.unsqueeze(0)
        else:
            retry, second = nothing, of_batch.diagonal().clone().view(5, 1, 1)
            batch.update(mean, second.flatten(), poison, *updates)
        other._update(Statistics(mean, second, retry), poison)
        assert all(t._version > version for t, version in zip(layer.buffers(), versions, strict=True))
        torch.testing.assert_close(dict(layer.state_dict()), dict(other.state_dict()))
        assert (layer.num_retried, layer.num_nonfinite) == (other.num_retried, other.num_nonfinite)
    assert (layer.num_batches_tracked, layer.num_retried, layer.num_nonfinite) == (2, int(name == "WC"), 2)


# Layers, whose passes go by the kernels


@pytest.fixture
def kernels_everywhere(monkeypatch):
    for name in ("_by_kernels", "_eager", "_passes", "parts"):  # `wcgan.functional.affine` is the function of that name
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
    if variant in ("WC", "cWC", "cWC_sa") and (not groups or node == "_ByKernelsBackward"):
        assert out.grad_fn.name() == node
    gradients = torch.autograd.grad(out, [x, *layer.parameters()], torch.randn(out.shape))
    with torch.no_grad(), wcgan.norm.sub_batches(layer, 2):
        halves = layer(x, *labels)
    evaluated = layer.eval()(x, *labels, relu=True)
    again = torch.autograd.grad(evaluated, [x, *layer.parameters()], torch.randn(out.shape))
    return [out.detach(), *gradients, halves, evaluated.detach(), *again, *layer.buffers()]


# cWC_sa does all that cWC does, and more; the standardising ones leave the whitening out.
SLOWER = [pytest.param(*case, marks=SLOW) for case in (("cWC", None), ("std-C", None), ("WC", 2), ("cWC", 3))]
QUICK = [*((variant, None) for variant in ("WC", "WC-diag", "c-std-C", "cWC_sa")), ("DBN", 2), ("IterNorm", 3)]
QUICK += [("cWC_sa", 3)]


@pytest.mark.parametrize(("variant", "groups"), [*QUICK, *SLOWER])
def test_layers_compute_what_they_do_by_plain_operators(variant, groups, request):
    expected = training_step(variant, groups, "_WhitenColorBackward")
    request.getfixturevalue("kernels_everywhere")
    for value, wanted in zip(training_step(variant, groups, "_ByKernelsBackward"), expected, strict=True):
        torch.testing.assert_close(value, wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("variant", ["WC", "cWC"])
def test_evaluation_reads_weights_of_any_layout_and_type_as_they_are_now(variant, kernels_everywhere):
    layer = wcgan.normalization(variant, 6, None if variant == "WC" else 3).eval()
    x, labels = make_batch((4, 6, 9)).unflatten(2, (3, 3)), () if variant == "WC" else (torch.arange(4) % 3,)
    with torch.no_grad():
        first = layer(x, *labels)
        layer.weight.data = layer.weight.data.mT  # not contiguous, under the same address
        transposed = layer(x, *labels)
        layer.weight.data = layer.weight.data.contiguous()
        assert_same_bits([transposed], [layer(x, *labels)])
        assert not torch.allclose(transposed, first, atol=1e-3)
        layer.bias.data = layer.bias.data.double() + 1
        assert_same_bits([layer(x, *labels)], [layer.float()(x, *labels)])
        assert not torch.allclose(layer(x, *labels), transposed, atol=1e-3)
        layer.running_mean.data.add_(1)  # nothing is remembered of it
        moved = layer(x, *labels)
        assert_same_bits([moved], [copy.deepcopy(layer)(x, *labels)])
    assert_same_bits([moved], [layer(x.requires_grad_(), *labels).detach()])


def test_several_cotangents_at_once_may_have_any_layout(kernels_everywhere):
    x = make_batch((4, 6, 9)).unflatten(2, (3, 3)).requires_grad_()
    out = wcgan.WhiteningColoring2d(6)(x)
    assert out.grad_fn.name() == "_ByKernelsBackward"
    cotangents = torch.randn(*out.shape, 2).movedim(-1, 0)
    at_once = torch.autograd.grad(out, x, cotangents, is_grads_batched=True, retain_graph=True)[0]
    one_by_one = [torch.autograd.grad(out, x, each, retain_graph=True)[0] for each in cotangents]
    torch.testing.assert_close(at_once, torch.stack(one_by_one), rtol=1e-4, atol=1e-4)


@pytest.fixture
def compiled_by_kernels(kernels_everywhere, monkeypatch):
    monkeypatch.setattr(_by_kernels, "_is_compiled_by_kernels", constant(lambda *_: True))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def constant(function):
    function._dynamo_marked_constant = True
    return function


def one_step(call, layer, x, *labels, relu=False):
    """Output, gradients, buffers and counters of a batch."""
    given = x.clone().requires_grad_()
    out = call(given, *labels, relu=relu)
    out.sin().sum().backward()
    gradients = [given.grad, *(p.grad for p in layer.parameters())]
    return [out.detach(), *gradients, *layer.buffers(), layer.num_retried, layer.num_nonfinite]


def assert_same_bits(found, expected):
    for value, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(value, wanted, rtol=0, atol=0, equal_nan=True)


OPTIONS = {
    "default": ("training_layer", {}),
    "no running statistics": ("training_layer", {"track_running_stats": False}),
    "average over all batches": ("layer", {"momentum": None}),  # a count that only the plain operators divide by
}
# Channels and samples: another size makes the compiler take it for a variable, both at once or one after the other.
TWO_SIZES, THREE_SIZES = ((6, 8), (7, 12)), ((6, 8), (5, 8), (7, 12))


@pytest.mark.parametrize(
    ("variant", "options", "sizes"),
    [
        ("WC", "default", TWO_SIZES),
        pytest.param("WC", "no running statistics", THREE_SIZES, marks=SLOW),
        ("WC", "average over all batches", TWO_SIZES[:1]),
        pytest.param("cWC", "default", THREE_SIZES, marks=SLOW),
        ("cWC_sa", "default", TWO_SIZES[:1]),
        pytest.param("WC", "default", THREE_SIZES, marks=SLOW),
        pytest.param("WC", "average over all batches", THREE_SIZES, marks=SLOW),
        pytest.param("cWC_sa", "default", THREE_SIZES, marks=SLOW),
    ],
)
def test_a_compiled_layer_is_one_operator_each_way(variant, options, sizes, compiled_by_kernels):
    operator, options = OPTIONS[options]
    for d, n in sizes:
        layer = wcgan.normalization(variant, d, None if variant == "WC" else 3, **options)
        other, calls = copy.deepcopy(layer), []
        x, labels = make_batch((n, d, 9)).unflatten(2, (3, 3)), () if variant == "WC" else (torch.arange(n) % 3,)

        def backend(graph, _, calls=calls):
            for node in graph.graph.nodes:  # an operator that changes its arguments is given to another
                calls += [name for name in map(str, (node.target, *node.args[:1])) if name.startswith("wcgan.")]
            return make_boxed_func(graph.forward)

        compiled = torch.compile(layer, backend=aot_autograd(fw_compiler=backend), fullgraph=True)
        found = one_step(compiled, layer, x, *labels, relu=True)
        expected = one_step(other, other, x, *labels, relu=True)
        if variant == "cWC_sa" or operator == "layer":  # the sum with what is shared, and averages, are the compiler's
            for value, wanted in zip(found, expected, strict=True):
                torch.testing.assert_close(value, wanted, rtol=1e-4, atol=1e-4)
        else:
            assert_same_bits(found, expected)
        whitening = [call for call in calls if "label" not in call]
        assert whitening == [f"wcgan.{operator}.default", "wcgan.layer_gradients.default"]


@pytest.mark.filterwarnings("ignore:`torch._prims_common.check` is deprecated:FutureWarning")  # PyTorch, of itself
def test_a_layer_compiled_by_inductor_has_the_bits_of_the_eager_one_in_every_step(compiled_by_kernels):
    layer = wcgan.WhiteningColoring2d(6, momentum=0.3)
    other, buffers = copy.deepcopy(layer), [t.data_ptr() for t in layer.buffers()]
    compiled = torch.compile(layer, fullgraph=True)
    good = make_batch((8, 6, 9)).unflatten(2, (3, 3))
    flat, broken = torch.ones_like(good), good.clone()
    broken[3, 2] = torch.nan
    versions = [t._version for t in layer.buffers()]
    for x in (good, broken, flat, 2 * good):
        layer.zero_grad(), other.zero_grad()
        assert_same_bits(one_step(compiled, layer, x), one_step(other, other, x))
    assert (layer.num_batches_tracked, layer.num_nonfinite) == (3, 1)
    assert [t.data_ptr() for t in layer.buffers()] == buffers
    assert all(t._version > version for t, version in zip(layer.buffers(), versions, strict=True))


@SLOW
@pytest.mark.filterwarnings("ignore:`torch._prims_common.check` is deprecated:FutureWarning")  # PyTorch, of itself
def test_a_layer_that_is_called_twice_in_a_compiled_graph_updates_its_statistics_twice(compiled_by_kernels):
    layer = wcgan.WhiteningColoring2d(6, momentum=0.3)
    other, x = copy.deepcopy(layer), make_batch((8, 6, 9)).unflatten(2, (3, 3))
    results = []
    for module in (layer, other):

        def twice(x, module=module):
            return module(x), module.running_mean + 1, module(3 * x + 1), module.running_mean + 1

        results.append([*(torch.compile(twice, fullgraph=True) if module is layer else twice)(x), *module.buffers()])
    assert_same_bits(*([t.detach() for t in result] for result in results))
    assert layer.num_batches_tracked == 2


def test_a_compiled_layer_that_is_computed_again_in_the_backward_pass_updates_its_statistics_once(compiled_by_kernels):
    layer = wcgan.WhiteningColoring2d(6, momentum=0.3)
    other, x = copy.deepcopy(layer), make_batch((8, 6, 9)).unflatten(2, (3, 3))

    @torch.compile(backend="aot_eager", fullgraph=True)
    def again(x, relu):
        return torch.utils.checkpoint.checkpoint(layer, x, relu, use_reentrant=False)

    assert_same_bits(one_step(again, layer, x), one_step(other, other, x))


def test_a_compiled_layer_in_inference_mode_updates_its_statistics(compiled_by_kernels):
    layer, x = wcgan.WhiteningColoring2d(6), make_batch((8, 6, 9)).unflatten(2, (3, 3))
    other = copy.deepcopy(layer)
    with torch.inference_mode():
        out = torch.compile(layer, backend="aot_eager", fullgraph=True)(x)
    assert_same_bits([out, *layer.buffers()], [other(x).detach(), *other.buffers()])


@pytest.mark.parametrize("strict", [False, True])
def test_a_layer_that_trains_can_be_exported(strict, compiled_by_kernels):
    layer, x = wcgan.WhiteningColoring2d(6), make_batch((8, 6, 9)).unflatten(2, (3, 3))
    other = copy.deepcopy(layer)
    program = torch.export.export(layer, (x,), strict=strict).module()
    assert_same_bits([program(x).detach()], [other(x).detach()])
    assert_same_bits([program.running_covariance, program.num_batches_tracked], [*other.buffers()][1:])


@pytest.mark.parametrize("kind", [pytest.param("shared", marks=SLOW), "class"])
def test_the_operators_keep_pytorchs_rules(kind, monkeypatch):
    zeros = lambda sequence, workspace, x: torch.zeros(sequence.sizes[workspace])  # noqa: E731
    monkeypatch.setattr(layer_kernels, "_room", zeros)  # results are compared with what lies between their arrays
    x, (color, shift, index) = torch.randn(4, 5, 3), colorings(kind, 4, 5)
    given = (x, color, shift, index, torch.zeros(()), EPS, True)
    kept, grad, ops = _by_kernels._layer(*given)[1], torch.randn(4, 5, 3), torch.ops.wcgan
    torch.library.opcheck(ops.layer_gradients.default, (x, grad, color, shift, index, kept, EPS, True))
    running = (torch.randn(5), torch.randn(5, 5), *(torch.zeros((), dtype=torch.int64) for _ in range(3)))
    for t in (x, color, shift):
        t.requires_grad_()
    torch.library.opcheck(ops.training_layer.default, (*given, *running, 0.1))
    if kind == "shared":  # the slow one
        torch.library.opcheck(ops.layer.default, given)
        torch.library.opcheck(ops.training_layer.default, (*given, None, None, None, *running[3:], 0.1))


@pytest.mark.parametrize(("d", "kind"), [(2, "shared"), (5, "class"), (6, "sample"), (32, "shared")])
def test_the_compiler_is_told_the_size_of_what_is_kept(d, kind):
    x, (color, shift, index) = torch.randn(3, d, 2), colorings(kind, 3, d)
    found = layer_kernels.forward(x, color, shift, index, None, None, None, EPS, False, _by_kernels._by_operators)
    told = _by_kernels._fake_layer(x, color, shift, index, None, EPS, False)
    assert [(t.shape, t.dtype) for t in found] == [(t.shape, t.dtype) for t in told]
