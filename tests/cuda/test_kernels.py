"""The kernels on a GPU against the plain passes, on fresh random input."""

import copy
from contextlib import nullcontext

import pytest
import torch
from tests.kernels.cases import LAYOUTS, check_cross, check_mapped, check_maps, check_moments, make_batch

import wcgan
from wcgan.functional import plain_passes, whiten_color_parts
from wcgan.functional._operators import kernels_for
from wcgan.functional.whitening import factorise
from wcgan.kernels import launches_by_triton, triton_version

batch = pytest.importorskip("wcgan.kernels.batch", reason="Triton is not installed")

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),  # PyTorch says that it is a prototype
]

DEVICE = "cuda"
CLASSES = 5
PRECISIONS = ("float32", "tf32", "bfloat16")
SHAPES = [
    *((2, 3, 1), (5, 3, 7), (2, 64, 1), (16, 64, 64), (128, 64, 1024), (3, 100, 11), (64, 100, 64)),
    *((16, 128, 16), (128, 128, 1024), (32, 256, 256), (2, 512, 1), (8, 512, 64), (128, 512, 1024)),
]


@pytest.fixture(autouse=True)
def precision_of_products(request):
    """Lets PyTorch multiply in tf32 where a test's precision says so."""
    before = torch.backends.cuda.matmul.allow_tf32
    parameters = getattr(request.node, "callspec", None)
    torch.backends.cuda.matmul.allow_tf32 = parameters is not None and parameters.params.get("name") == "tf32"
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


# Each kernel against its plain pass in float64


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_moments_equal_the_plain_pass(shape, name):
    check_moments(batch, make_batch(shape, name, device=DEVICE), 1, name)


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cross_products_equal_the_plain_pass(shape, name):
    x, z = make_batch(shape, name, device=DEVICE), make_batch(shape, name, device=DEVICE, mean=0.5)
    check_cross(batch, z, x, x.float().mean((0, 2)), 1, None, name)


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_maps_of_one_and_of_two_terms_equal_the_plain_pass(shape, name):
    d = shape[1]
    x, z = make_batch(shape, name, device=DEVICE), make_batch(shape, name, device=DEVICE, mean=0.5)
    mean, offset = x.float().mean((0, 2)).view(1, d), torch.randn(1, d, device=DEVICE)
    first, second = torch.randn(2, 1, d, d, device=DEVICE)
    check_maps(batch, offset, [(x, first, mean)], None, name)
    check_maps(batch, offset, [(z, first.mT, None), (x, second, mean)], None, name)


@pytest.mark.parametrize("name", [*PRECISIONS, "float16"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["class", "sample"])
def test_slots_equal_the_plain_pass(kind, layout, name):
    n, d = 16, 64
    slots, index = (CLASSES, torch.randint(0, CLASSES, (n,), device=DEVICE)) if kind == "class" else (n, None)
    x, z = (make_batch((n, d, 64), name, layout, DEVICE, mean) for mean in (3.0, 0.5))
    mean, matrix = x.float().mean((0, 2)), torch.randn(slots, d, d, device=DEVICE)
    check_cross(batch, z, x, mean, slots, index, name)
    check_maps(batch, torch.randn(slots, d, device=DEVICE), [(x, matrix, mean.view(1, d))], index, name, relu=True)
    other = (x, torch.randn(1, d, d, device=DEVICE), mean.view(1, d))
    check_maps(batch, torch.randn(1, d, device=DEVICE), [(z, matrix.mT, None), other], index, name)


@pytest.mark.parametrize("name", [*PRECISIONS, "float16"])
def test_parts_equal_the_plain_pass(name):
    x, parts, d = make_batch((16, 64, 64), name, device=DEVICE), 4, 64
    check_moments(batch, x, parts, name)
    means = torch.stack([part.float().mean((0, 2)) for part in x.chunk(parts)])
    matrices, offset = torch.randn(parts, d, d, device=DEVICE), torch.randn(parts, d, device=DEVICE)
    slots = torch.arange(16, device=DEVICE) // 4
    check_maps(batch, offset, [(x, matrices, means)], slots, name)
    out = torch.full_like(x, torch.nan)
    batch.apply_maps(out, offset, [(x, matrices, means)])
    check_mapped(out, offset, [(x, matrices, means)], slots, name)


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("d", [64, 512])
def test_ill_conditioned_batches_equal_the_plain_pass(d, name):
    x = make_batch((64, d, 64), name, device=DEVICE, condition=1e6)
    check_moments(batch, x, 1, name)
    rows = x.double().transpose(1, 2).flatten(0, 1)
    whitening = factorise(rows.mT.cov().unsqueeze(0), "cholesky", 1e-3, 5).matrix.float()
    check_maps(batch, torch.zeros(1, d, device=DEVICE), [(x, whitening, rows.mean(0).float().view(1, d))], None, name)


@pytest.mark.parametrize(
    ("name", "mean"), [("float32", 300.0), ("tf32", 300.0), ("float16", 300.0), ("bfloat16", 30.0)]
)
def test_a_large_mean_costs_no_more_than_its_bound(name, mean):
    """Batches that are centred first: nothing. Exact products of bfloat16: the rounding of their sum about zero."""
    for shape in ((16, 64, 64), (128, 64, 1024), (128, 256, 1024)):
        d = shape[1]
        x = make_batch(shape, name, device=DEVICE, mean=mean)
        check_moments(batch, x, 1, name)
        centre, matrix = x.float().mean((0, 2)), torch.randn(1, d, d, device=DEVICE)
        check_cross(batch, make_batch(shape, name, device=DEVICE, mean=0.5), x, centre, 1, None, name)
        check_maps(batch, torch.zeros(1, d, device=DEVICE), [(x, matrix, centre.view(1, d))], None, name)


# Races


@pytest.mark.parametrize("name", [*PRECISIONS, "float16"])
@pytest.mark.parametrize("side", [4, 8, 16, 32])
@pytest.mark.parametrize(("n", "d", "parts"), [(320, 256, 5), (128, 256, 1), (320, 128, 5), (128, 128, 1)])
def test_a_batch_that_is_not_in_the_cache_has_the_same_bits_every_time(n, d, parts, side, name):
    """The kernels add in a fixed order, so that a difference is a race; tiles that arrive late bring it out."""
    x = make_batch((n, d, side**2), name, device=DEVICE)
    z = make_batch((n, d, side**2), name, device=DEVICE, mean=0.5)
    index = torch.randint(0, CLASSES, (n,), device=DEVICE)
    matrices, offset = torch.randn(parts, d, d, device=DEVICE), torch.randn(parts, d, device=DEVICE)
    others = torch.empty(2**28, dtype=torch.uint8, device=DEVICE)  # more than any cache holds

    def compute():
        means, scatters = batch.moments(x, parts)
        products, sums = batch.cross(z, x, means[0], 1, None)
        by_class, class_sums = batch.cross(z, x, means[0], CLASSES, index)
        out = torch.empty_like(x)
        batch.apply_maps(out, offset, [(x, matrices, means)], None, True)
        return means, scatters, products, sums, by_class, class_sums, out

    first = compute()
    for _ in range(30):
        others.zero_()
        assert all(map(torch.equal, first, compute()))
    check_moments(batch, x, parts, name)


# Layers, with the kernels and without


def layer_and_inputs(variant, d, samples, side, name, layout="channels last", condition=10.0):
    """A layer with random parameters, a batch `(N, d, side, side)`, a cotangent and labels, in float64 and as given."""
    conditional = wcgan.VARIANTS[variant].conditional
    # Along directions in which a batch of few positions does not vary, gradients cancel unless the shrinkage is large.
    eps = 1e-3 if samples * side**2 >= 4 * d else 0.5
    layer = wcgan.normalization(variant, d, classes=CLASSES if conditional else None, eps=eps, device=DEVICE)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) / d**0.5)
    shape, spatial = (samples, d, side * side), (samples, d, side, side)
    x = make_batch(shape, name, layout, DEVICE, condition=condition)
    cotangent = make_batch(shape, name, layout, DEVICE, mean=0.5)
    x, cotangent = (t.unflatten(2, (side, side)).view(spatial) for t in (x, cotangent))
    labels = (torch.randint(0, CLASSES, (samples,), device=DEVICE),) if conditional else ()
    return layer, x, cotangent, labels


def step(layer, x, cotangent, labels):
    """Output, gradients and running statistics of one training batch."""
    leaf = x.detach().requires_grad_()
    out = layer(leaf, *labels)
    parameters = dict(layer.named_parameters())
    gradients = torch.autograd.grad(out, [leaf, *parameters.values()], cotangent)
    named = dict(zip(["x", *parameters], gradients, strict=True)) | {"out": out.detach()}
    return named | {key: value for key, value in layer.named_buffers() if "running" in key}


def errors(layer, x, cotangent, labels, plain):
    """Relative errors, in norm, of all that `step` returns, against the plain passes in float64."""
    wanted = step(copy.deepcopy(layer).double(), x.double(), cotangent.double(), labels)
    with plain_passes() if plain else nullcontext():
        found = step(copy.deepcopy(layer), x, cotangent, labels)
    return {key: float((found[key].double() - value).norm() / value.norm()) for key, value in wanted.items()}


# Relative errors, in norm, that the kernels may add to those of the plain operators where the covariance has condition
# 10: of batches, whose maps are rounded, and of what is summed over a batch, where products of bfloat16 are exact.
ALLOWED = {"float32": 2**-19, "tf32": 2**-8, "bfloat16": 2**-7}
ALLOWED_SUMS = ALLOWED | {"bfloat16": 2**-10}
SIDES = {1: 8, 3: 8, 64: 8, 100: 8, 128: 16, 256: 16, 512: 16}
OTHERS = ("cWC", "cWC_sa", "W-only", "WC-diag", "C-only", "std-C", "c-std-C", "DBN", "IterNorm")
LAYERS = [
    *(("WC", d, 32, side, "channels last") for d, side in SIDES.items()),
    *((variant, d, 32, SIDES[d], "channels last") for variant in OTHERS for d in (64, 128)),
    *(("WC", 512, 4, 8, "channels last"), ("WC", 64, 128, 32, "channels last")),
    *(("WC", 64, 32, 8, "contiguous"), ("cWC", 64, 32, 8, "contiguous")),
]


def assert_as_near(inputs, share, allowed, allowed_sums):
    """The kernels' errors against float64 are at most a share of the plain operators' more than what is allowed."""
    plain = errors(*inputs, plain=True)
    for key, error in errors(*inputs, plain=False).items():
        bound = share * plain[key] + (allowed if key in ("x", "out") else allowed_sums)
        assert error <= bound, f"{key}: off by {error:.2g}, plain operators by {plain[key]:.2g}"


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize(("variant", "d", "samples", "side", "layout"), LAYERS)
def test_a_training_batch_is_as_near_to_float64_as_with_plain_operators(variant, d, samples, side, layout, name):
    inputs = layer_and_inputs(variant, d, samples, side, name, layout)
    assert (kernels_for(inputs[1]) is not None) == (d > 1)
    assert_as_near(inputs, 2, ALLOWED[name], ALLOWED_SUMS[name])


def test_so_is_a_batch_of_two_positions():
    inputs = layer_and_inputs("WC", 3, 2, 1, "float32")
    assert_as_near(inputs, 4, ALLOWED["float32"], ALLOWED["float32"])


@pytest.mark.parametrize(("d", "samples", "side"), [(64, 32, 8), (100, 4, 4), (512, 8, 8)])
def test_so_is_an_ill_conditioned_batch(d, samples, side):
    inputs = layer_and_inputs("WC", d, samples, side, "float32", condition=1e6)
    assert_as_near(inputs, 4, ALLOWED["float32"], ALLOWED["float32"])


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("kind", ["none", "full", "class"])
def test_parts_at_once_equal_the_plain_calls_one_by_one(kind, name):
    d, samples, parts = 64, 16, 4
    x = make_batch((samples, d, 64), name, device=DEVICE).unflatten(2, (8, 8))
    slots = {"none": 0, "full": 1, "class": CLASSES}[kind]
    color = torch.randn(slots, d, d, device=DEVICE) / d**0.5 if slots else None
    shift = torch.randn(slots, d, device=DEVICE) if slots else None
    index = torch.randint(0, CLASSES, (samples,), device=DEVICE) if kind == "class" else None
    with torch.no_grad():
        z, statistics = whiten_color_parts(x, color, shift, index, parts=parts)
        tables = [None if t is None else t.double() for t in (color, shift)]
        wanted, wanted_statistics = whiten_color_parts(x.double(), *tables, index, parts=parts)
    assert (z.double() - wanted).norm() <= ALLOWED[name] * wanted.norm()
    for found, reference in zip(statistics, wanted_statistics, strict=True):
        error = (found.covariance - reference.covariance).norm() / reference.covariance.norm()
        assert error <= ALLOWED_SUMS[name]


@pytest.mark.parametrize("name", ["tf32"])  # which PyTorch may round its own products to
@pytest.mark.parametrize(("slots", "d"), [(1, 64), (1, 256), (10, 128), (10, 256)])
def test_products_of_matrices_are_exact_whatever_pytorch_may_round(slots, d, name):
    layer = pytest.importorskip("wcgan.kernels.layer")
    a, b = (torch.randn(n * d, d, device=DEVICE) * 10 ** torch.linspace(0, -3, d, device=DEVICE) for n in (slots, 1))
    cases = {  # of the forward pass, and of the backward pass with its longest sum
        "C W": (a, b, (slots * d, d, d), (d, 1), (d, 1), a.double() @ b.double()),
        "C^T C": (a, a, (d, d, slots * d), (1, d), (d, 1), a.double().mT @ a.double()),
    }
    for what, (left, right, sizes, left_strides, right_strides, expected) in cases.items():
        sequence = layer.Sequence("a", "b", "out", "scratch")
        layer._add_product(sequence, "a", "b", "out", sizes, left_strides, right_strides)
        out = torch.full(expected.shape, torch.nan, device=DEVICE)
        sequence(torch.cuda.current_device(), left, right, out, torch.empty(sequence.sizes["scratch"], device=DEVICE))
        sizes_of_terms = (left.double().abs() if what == "C W" else left.double().abs().mT) @ right.double().abs()
        assert ((out.double() - expected).abs() <= 2**-20 * sizes_of_terms).all(), what


# Launches that do not go through Triton


@pytest.mark.parametrize("name", [*PRECISIONS, "float16"])
@pytest.mark.parametrize("variant", ["WC", "cWC", "BN"])
def test_direct_launches_have_the_bits_of_tritons(variant, name, monkeypatch):
    inputs = layer_and_inputs(variant, 64, 16, 8, name)
    with launches_by_triton():
        expected = step(copy.deepcopy(inputs[0]), *inputs[1:])
    step(copy.deepcopy(inputs[0]), *inputs[1:])
    if triton_version() >= (3, 4):
        monkeypatch.setattr(batch.triton.runtime.jit.JITFunction, "run", None)  # fails if it is called
    found = step(*inputs)
    assert all(torch.equal(found[key], value) for key, value in expected.items())


@pytest.mark.parametrize("name", [*PRECISIONS, "float16"])
def test_a_batch_that_is_not_aligned_equals_the_plain_pass(name):
    shape = (16, 64, 64)
    for _ in range(2):
        x = make_batch(shape, name, "contiguous", DEVICE)
        check_moments(batch, x, 1, name)
        shifted = torch.cat([x.flatten()[:1], x.flatten()])[1:].view(shape)
        assert shifted.data_ptr() % 16
        check_moments(batch, shifted, 1, name)
        matrix, offset = torch.randn(1, 64, 64, device=DEVICE), torch.zeros(1, 64, device=DEVICE)
        check_maps(batch, offset, [(shifted, matrix, None)], None, name)


def test_launches_follow_the_current_stream():
    x = make_batch((128, 256, 1024), "bfloat16", device=DEVICE)
    batch.moments(x, 1)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(200):
            x @ x.mT
        x.fill_(2)  # after a long time
        mean, scatter = batch.moments(x, 1)
    stream.synchronize()
    assert (mean == 2).all()
    assert (scatter == 0).all()


# Without waiting


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("variant", ["WC", *OTHERS])
def test_forward_and_backward_never_wait_for_the_gpu(variant, name):
    inputs = layer_and_inputs(variant, 64, 16, 8, name)
    step(*inputs)  # compiles
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(*inputs)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("variant", ["WC", "cWC", "cWC_sa"])
def test_forward_and_backward_are_captured_in_a_cuda_graph(variant, name):
    layer, x, cotangent, labels = layer_and_inputs(variant, 64, 16, 8, name)
    eager = copy.deepcopy(layer)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(copy.deepcopy(layer), x, cotangent, labels)
    torch.cuda.current_stream().wait_stream(stream)
    static, graph = x.clone(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(layer, static, cotangent, labels)
    fresh = make_batch((16, 64, 64), name, device=DEVICE).view_as(x)
    static.copy_(fresh)
    graph.replay()
    torch.cuda.synchronize()
    for key, value in step(eager, fresh, cotangent, labels).items():
        error = (captured[key].double() - value.double()).norm() / value.double().norm()
        assert error <= ALLOWED[name], f"{key}: off by {error:.2g}"
