"""The kernels of `wcgan.kernels.batch` on the CPU, run by `test_batch` where Triton interprets them.

The interpreter gets products of bfloat16 wrong, so float16 also takes its place: batches of it go the way of bfloat16,
and float32 numbers are split into parts of it.
"""

import itertools
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
    split_into_float16,
)

batch = pytest.importorskip("wcgan.kernels.batch", reason="Triton is not installed")
jacobi = pytest.importorskip("wcgan.kernels.jacobi", reason="Triton is not installed")

SHAPES = [(4, 1, 3), (2, 3, 64), (6, 20, 9)]
PRECISIONS = ["float32", "float16", "float16 for bfloat16"]
# The type decides how a batch is centred, the layout where its numbers lie: two ways through each.
KINDS_OF_BATCH = [
    *(("float32", layout) for layout in LAYOUTS),
    *(("float16", "contiguous"), ("float16 for bfloat16", "channels last")),
]
SLOW = pytest.mark.slow  # run by the slow ones of the tests that run this file
OTHER_WAYS = ("tf32x3", "bf16x6")


def cases(others):
    """Each kind of batch with each of some others: all with the first kind, and the last of them with every kind."""
    for kind, other in itertools.product(KINDS_OF_BATCH, others):
        quick = kind == KINDS_OF_BATCH[0] or other == others[-1]
        yield pytest.param(*kind, *other, marks=() if quick else SLOW)


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def parts_of_float16(monkeypatch):
    split_into_float16(monkeypatch)


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


@pytest.mark.parametrize(("name", "layout", "shape"), [*cases([(shape,) for shape in SHAPES])], ids=str)
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


@pytest.mark.parametrize(("name", "layout", "kind"), [*cases([("sample",), ("shared",), ("class",)])])
def test_cross_products(kind, layout, name):
    slots, index = slots_of(kind, 6)
    x, z = make_batch((6, 5, 9), name, layout), make_batch((6, 5, 9), name, layout, mean=0.5)
    check_cross(batch, z, x, x.float().mean((0, 2)), slots, index, name)
    check_cross(batch, z, x, None, slots, index, name)


def test_two_batches_of_different_layouts_go_together():
    x, z = make_batch((4, 5, 9), layout="contiguous"), make_batch((4, 5, 9))
    check_cross(batch, z, x, x.mean((0, 2)), 1, None, "float32")


@pytest.mark.parametrize(
    ("name", "layout", "shape", "kind"),
    [*cases([*itertools.product(SHAPES, ["shared", "sample", "class"])])],
    ids=str,
)
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


# The second multiplies as the first where Triton interprets it; the last is what all other tests of this file use.
@pytest.mark.parametrize(
    "multiply", ["tf32", "bf16x3", *(pytest.param(way, marks=SLOW) for way in batch.MULTIPLY if way in OTHER_WAYS)]
)
def test_every_way_to_multiply_float32_numbers(multiply, monkeypatch):
    for options in batch.OPTIONS.values():
        monkeypatch.setitem(options, f"by {multiply}", options["hopper float32"] | {"multiply": multiply})
    monkeypatch.setattr(batch, "precision_of", lambda _: f"by {multiply}")
    x, z = make_batch((6, 20, 9)), make_batch((6, 20, 9), mean=0.5)
    mean, matrices, index = x.mean((0, 2)), torch.randn(3, 20, 20), torch.arange(6) % 3
    check_moments(batch, x, 2, "float32")
    check_cross(batch, z, x, mean, 3, index, "float32")
    terms = [(z, matrices.mT, None), (x, torch.randn(1, 20, 20), mean.view(1, -1))]
    check_maps(batch, torch.randn(3, 20), terms[:1], index, "float32")
    check_maps(batch, torch.randn(1, 20), terms, index, "float32")


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_a_number_that_is_not_finite_leaves_no_result_of_its_own_that_is(value):
    x, z = make_batch((2, 3, 5)), make_batch((2, 3, 5))
    x[1, 2, 3] = value
    mean, scatter = batch.moments(x, 1)
    assert not mean[0, 2].isfinite()
    assert not scatter[0, 2].isfinite().any()
    assert not batch.cross(z, x, torch.zeros(3), 1, None)[0][0, :, 2].isfinite().any()
    out = torch.zeros_like(x)
    batch.apply_maps(out, torch.zeros(1, 3), [(x, torch.randn(1, 3, 3), None)])
    assert not out[1, :, 3].isfinite().any()
    assert out.isfinite().sum() == out.numel() - 3


def test_an_index_need_not_be_contiguous():
    x, pairs = make_batch((4, 5, 3)), torch.tensor([[0, 2], [1, 1], [2, 0], [0, 1]])
    check_maps(batch, torch.randn(3, 5), [(x, torch.randn(3, 5, 5), None)], pairs[:, 1], "float32")


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
