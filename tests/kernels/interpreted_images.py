"""The kernels of `wcgan.kernels.images` on the CPU, run by `test_batch` where Triton interprets them.

In float16: the interpreter gets products of bfloat16 wrong.
"""

import pytest
import torch
from tests.kernels.image_cases import check_expand, check_outer, check_reduce, make_case

images = pytest.importorskip("wcgan.kernels.images", reason="Triton is not installed")

HALF = torch.float16
# Less than a tile; channels that no tile divides; more channels than a tile; sides of 1.
CASES = [((2, 3, 5, 7), 32, True), ((3, 1, 4, 4), 48, False), ((1, 4, 2, 9), 272, True), ((2, 2, 1, 6), 32, False)]
CASES += [((3, 3, 5, 1), 32, False), pytest.param((1, 4, 3, 9), 272, False, marks=pytest.mark.slow)]
MANY = ((3, 3, 9, 11), 32)  # positions, of which programs take several tiles


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


@pytest.mark.parametrize(("shape", "d", "on"), CASES, ids=str)
def test_products(shape, d, on):
    """With a bias, a ReLU and its mask, or without."""
    case = make_case(shape, d, HALF, biased=on)
    check_expand(images, case, relu=on, wide=on)
    check_reduce(images, case, masked=on, dtype=torch.float32 if on else HALF)
    check_outer(images, case, masked=on)


def test_many_positions(monkeypatch):
    monkeypatch.setattr(images, "programs_that_fill", lambda _: 1)
    case = make_case(*MANY, HALF)
    check_expand(images, case, relu=True)
    check_reduce(images, case, masked=True, dtype=HALF)
    check_outer(images, case, masked=True)


def test_images_with_any_strides_and_features_in_any_layout():
    case = make_case((2, 3, 5, 6), 32, HALF)
    strided = torch.zeros(4, 8, 5, 3, dtype=HALF).permute(0, 3, 2, 1)[::2, :, :, 1:7]
    last = case.image.to(memory_format=torch.channels_last)
    for image in (strided.copy_(case.image), last, case.image[:, :1].expand(2, 3, 5, 6)):
        check_expand(images, case._replace(image=image), relu=False)
        check_outer(images, case._replace(image=image), masked=True)
    plain = case._replace(grad=case.grad.contiguous(), output=case.output.contiguous())
    check_reduce(images, plain, masked=True, dtype=HALF)
    check_outer(images, plain, masked=True)


def test_a_relu_keeps_nan_and_lets_its_gradient_pass():
    case = make_case((1, 1, 3, 3), 32, HALF)
    case.image[0, 0, 0, 0] = torch.nan
    out = images.expand(case.image, case.matrix, True)
    assert out[:, :, :2, :2].isnan().all()
    assert out[:, :, 2].isfinite().all()
    grad = images.outer(torch.ones_like(case.image), torch.ones_like(out), out, 16)
    assert torch.equal(grad[:, 9], 4 + (out.isfinite() & (out > 0)).sum((0, 2, 3)).float())
