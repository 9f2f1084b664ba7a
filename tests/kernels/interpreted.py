"""The kernels of `wcgan.kernels.batch` on the CPU, run by `test_batch` where Triton interprets them.

The interpreter gets products of bfloat16 wrong, so float16 also takes its place: batches of it go the way of bfloat16.
"""

import copy
import sys
import types

import pytest
import torch
from tests.kernels.cases import (
    LAYOUTS,
    check_cross,
    check_eigen,
    check_mapped,
    check_maps,
    check_moments,
    make_batch,
    make_symmetric,
)

import wcgan
from wcgan.functional.normalize import Statistics
from wcgan.norm import _running

batch = pytest.importorskip("wcgan.kernels.batch", reason="Triton is not installed")
jacobi = pytest.importorskip("wcgan.kernels.jacobi", reason="Triton is not installed")

SHAPES = [(4, 1, 3), (2, 3, 64), (6, 20, 9)]
PRECISIONS = ["float32", "float16", "float16 for bfloat16"]
# The type decides how a batch is centred, the layout where its numbers lie: two ways through each.
KINDS_OF_BATCH = [
    *(("float32", layout) for layout in LAYOUTS),
    *(("float16", "contiguous"), ("float16 for bfloat16", "channels last")),
]


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def float16_for_bfloat16(request, monkeypatch):
    """What the kernels' module takes for bfloat16 is float16, where a test's precision says so."""
    if "float16 for bfloat16" in request.node.name:
        stand_in = types.ModuleType("torch")
        vars(stand_in).update(vars(torch), bfloat16=torch.float16)
        monkeypatch.setattr(batch, "torch", stand_in)


def slots_of(kind, samples):
    """Number of slots and index: shared, a class with none of the samples among three, or one a sample."""
    table = {"shared": (1, None), "class": (3, torch.arange(samples) % 2 * 2), "sample": (samples, None)}
    return table[kind]


@pytest.mark.parametrize(("name", "layout"), KINDS_OF_BATCH)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_moments(shape, layout, name):
    x = make_batch(shape, name, layout)
    check_moments(batch, x, 1, name)
    check_moments(batch, x, 2, name)


def test_moments_of_more_channels_than_a_tile():
    check_moments(batch, make_batch((3, 133, 2)), 1, "float32")


def test_moments_of_more_rows_than_a_program_adds_up():
    check_moments(batch, make_batch((3, 5, 400)), 1, "float32")


@pytest.mark.parametrize("name", ["float32", "float16"])
def test_a_mean_of_300_deviations_costs_the_moments_nothing(name):
    check_moments(batch, make_batch((6, 5, 40), name, mean=300.0), 1, name)


@pytest.mark.parametrize(("name", "layout"), KINDS_OF_BATCH)
@pytest.mark.parametrize("kind", ["shared", "class", "sample"])
def test_cross_products(kind, layout, name):
    slots, index = slots_of(kind, 6)
    x, z = make_batch((6, 5, 9), name, layout), make_batch((6, 5, 9), name, layout, mean=0.5)
    check_cross(batch, z, x, x.float().mean((0, 2)), slots, index, name)
    check_cross(batch, z, x, None, slots, index, name)


def test_two_batches_of_different_layouts_go_together():
    x, z = make_batch((4, 5, 9), layout="contiguous"), make_batch((4, 5, 9))
    check_cross(batch, z, x, x.mean((0, 2)), 1, None, "float32")


@pytest.mark.parametrize(("name", "layout"), KINDS_OF_BATCH)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["shared", "class", "sample"])
def test_maps(kind, shape, layout, name):
    n, d, _ = shape
    slots, index = slots_of(kind, n)
    x, z = make_batch(shape, name, layout), make_batch(shape, name, layout, mean=0.5)
    mean, matrix, other = x.float().mean((0, 2)).view(1, d), torch.randn(slots, d, d), torch.randn(1, d, d)
    check_maps(batch, torch.randn(slots, d), [(x, matrix, mean)], index, name)
    check_maps(batch, torch.randn(1, d), [(z, matrix.mT, None), (x, other, mean)], index, name)


@pytest.mark.parametrize("name", PRECISIONS)
def test_each_part_is_centred_by_its_own_mean(name):
    x = make_batch((6, 20, 9), name)
    means = torch.stack([part.float().mean((0, 2)) for part in x.chunk(3)])
    slots = torch.arange(6) // 2 * 2 + torch.arange(6) % 2  # two classes in each of three parts
    check_maps(batch, torch.randn(6, 20), [(x, torch.randn(6, 20, 20), means)], slots, name)


@pytest.mark.parametrize("name", PRECISIONS)
def test_without_an_index_consecutive_parts_have_a_slot_each(name):
    x, out = (make_batch((6, 20, 9), name) for _ in range(2))
    terms = [(x, torch.randn(3, 20, 20), torch.stack([part.float().mean((0, 2)) for part in x.chunk(3)]))]
    offset = torch.randn(1, 20)
    batch.apply_maps(out, offset, terms)
    check_mapped(out, offset, terms, torch.arange(6) // 2, name)


def test_maps_of_more_channels_than_a_tile():
    x = make_batch((2, 133, 3))
    check_maps(batch, torch.randn(1, 133), [(x, torch.randn(1, 133, 133), x.mean((0, 2)).view(1, -1))], None, "float32")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_rectifier_leaves_nothing_negative(layout):
    x = make_batch((4, 20, 9), layout=layout)
    matrix, offset, mean = torch.randn(1, 20, 20), torch.randn(1, 20), x.mean((0, 2)).view(1, -1)
    check_maps(batch, offset, [(x, matrix, mean)], None, "float32", relu=True)


def test_a_rectifier_keeps_nan():
    x = make_batch((2, 3, 5))
    x[1, 2, 3] = torch.nan
    out = torch.zeros_like(x)
    batch.apply_maps(out, torch.zeros(1, 3), [(x, torch.randn(1, 3, 3), None)], None, relu=True)
    assert torch.equal(out.isnan(), x.isnan().any(1, keepdim=True).expand_as(x))


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("kind", ["shared", "class", "sample"])
def test_the_last_pass_of_the_gradient(kind, name):
    n, d, length = 6, 20, 9
    slots, index = slots_of(kind, n)
    x, z = (make_batch((n, d, length), name, mean=mean) for mean in (3.0, 0.5))
    mean, maps, retry = x.float().mean((0, 2)), torch.randn(slots, d, d), torch.tensor([0.25])
    _, sums = batch.cross(z, x, mean, slots, index)
    curvature, out = torch.randn(d, d), torch.full_like(x, torch.nan)
    batch.map_back(out, z, maps, sums, index, x, mean, curvature, retry, -0.5)
    shrunk = -0.5 * (0.75 * curvature + 0.25 * curvature.trace() / d * torch.eye(d))
    pull = -torch.einsum("kij,ki->j", maps.double(), sums.double()).float() / (n * length)
    terms = [(z, maps.mT, None), (x, shrunk.unsqueeze(0), mean.view(1, d))]
    check_mapped(out, pull.unsqueeze(0), terms, index, name)


@pytest.mark.parametrize("d", [1, 3, 260])
def test_a_lower_triangle_is_mirrored(d):
    matrix = torch.randn(d, d)
    for given in (matrix, matrix.mT):
        assert torch.equal(batch.mirror(given), given.tril() + given.tril(-1).mT)


@pytest.mark.parametrize("name", ["WC", "BN"])
@pytest.mark.parametrize("momentum", [0.1, 0.9, 1.0])
def test_running_statistics_are_updated_as_by_plain_operators(momentum, name, monkeypatch):
    layer = wcgan.normalization(name, 5, momentum=momentum)
    x = make_batch((6, 5, 9)).unflatten(2, (3, 3))
    covariance = x.transpose(0, 1).flatten(1).cov()
    second = covariance.diagonal().clone().view(5, 1, 1) if name == "BN" else covariance.unsqueeze(0)
    nothing, broken = torch.zeros(1), second.clone()
    broken.view(-1)[-1] = torch.nan
    for retry, poison, of_batch in (
        *((nothing, None, second), (torch.tensor([1e-2]), torch.tensor(0.0), second)),
        *((nothing, torch.tensor(torch.nan), second), (nothing, None, broken)),
    ):
        other, statistics = copy.deepcopy(layer), Statistics(x.mean((0, 2, 3)), of_batch, retry)
        versions = [t._version for t in layer.buffers()]
        with monkeypatch.context() as patch:
            patch.setattr(_running, "kernels_for", lambda *_: batch)
            layer._update(statistics, poison)
        other._update(statistics, poison)
        assert all(t._version > version for t, version in zip(layer.buffers(), versions, strict=True))
        torch.testing.assert_close(dict(layer.state_dict()), dict(other.state_dict()))
        assert (layer.num_retried, layer.num_nonfinite) == (other.num_retried, other.num_nonfinite)
    assert (layer.num_batches_tracked, layer.num_retried, layer.num_nonfinite) == (2, 1, 2)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_labels_are_clamped_and_the_first_wrong_ones_are_reported(dtype):
    found = torch.zeros(2, dtype=torch.int64)
    right = (torch.arange(1500) % 7).to(dtype)
    index, poison = batch.check_labels(right, 7, found)
    assert torch.equal(index, right.to(torch.int64))
    assert (poison.item(), found.tolist()) == (0.0, [0, 0])
    wrong = right.clone()
    wrong[[3, 1400]] = 9
    index, poison = batch.check_labels(wrong, 7, found)
    assert torch.equal(index, wrong.to(torch.int64).clamp(0, 6))
    assert poison.isnan()
    assert found.tolist() == [2, 9]
    if dtype == torch.int64:
        batch.check_labels(-wrong, 7, found)
        assert found.tolist() == [2, 9], "an earlier report is kept"
        batch.check_labels(-wrong, 7, found.zero_())
        assert found[1] == -9


@pytest.mark.parametrize(("p", "condition"), [(1, 1.0), (2, 10.0), (5, 1e3), (16, 1e3)])
def test_eigenvalues(p, condition):
    check_eigen(jacobi, make_symmetric(3, p, condition))


def test_eigenvalues_that_coincide_and_matrices_that_are_diagonal():
    check_eigen(jacobi, torch.eye(5).expand(2, 5, 5))
    check_eigen(jacobi, torch.diag(torch.tensor([3.0, -1.0, 0.0])).unsqueeze(0))
    check_eigen(jacobi, torch.ones(1, 4, 4))
    check_eigen(jacobi, torch.zeros(1, 3, 3))


def test_a_kernel_that_finds_wrong_eigenvalues_is_noticed_and_not_used(monkeypatch):
    assert jacobi.works.__wrapped__(torch.device("cpu"))
    monkeypatch.setattr(jacobi, "SWEEPS", 0)
    with pytest.warns(UserWarning, match=r"^ZCA falls back to the library's eigenvalues, .*: its kernel is off by"):
        assert not jacobi.works.__wrapped__(torch.device("cpu"))


def test_a_kernel_that_does_not_compile_is_not_used(monkeypatch):
    def fail(_):
        raise jacobi.TritonError("cannot be compiled\nhere")

    monkeypatch.setattr(jacobi, "eigen", fail)
    with pytest.warns(UserWarning, match=r"eigenvalues, and waits for them: cannot be compiled$"):
        assert not jacobi.works.__wrapped__(torch.device("cpu"))


# Layers, whose passes go by the kernels


@pytest.fixture
def kernels_everywhere(monkeypatch):
    for name in ("_eager", "_passes", "affine", "parts"):  # `wcgan.functional.affine` is the function of that name
        monkeypatch.setattr(sys.modules[f"wcgan.functional.{name}"], "kernels_for", lambda *_: batch)


def training_step(variant, groups):
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
    assert variant not in ("WC", "cWC", "cWC_sa") or out.grad_fn.name() == "_WhitenColorBackward"
    gradients = torch.autograd.grad(out, [x, *layer.parameters()], torch.randn(out.shape))
    with torch.no_grad(), wcgan.norm.sub_batches(layer, 2):
        halves = layer(x, *labels)
    evaluated = layer.eval()(x, *labels, relu=True)
    again = torch.autograd.grad(evaluated, [x, *layer.parameters()], torch.randn(out.shape))
    return [out.detach(), *gradients, halves, evaluated.detach(), *again, *layer.buffers()]


UNGROUPED = ("WC", "WC-diag", "std-C", "c-std-C", "cWC", "cWC_sa")


@pytest.mark.parametrize(("variant", "groups"), [*((v, None) for v in UNGROUPED), ("DBN", 2), ("IterNorm", 3)])
def test_layers_compute_what_they_do_by_plain_operators(variant, groups, request):
    expected = training_step(variant, groups)
    request.getfixturevalue("kernels_everywhere")
    for value, wanted in zip(training_step(variant, groups), expected, strict=True):
        torch.testing.assert_close(value, wanted, rtol=2e-4, atol=2e-4)
