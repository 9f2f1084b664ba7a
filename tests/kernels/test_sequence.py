"""Sequences of kernels, whose kernels only write down what they are launched with: no GPU is needed."""

import pytest
import torch

import wcgan.kernels
from wcgan.kernels import Launcher, Sequence


class Recorder:
    """A kernel that keeps its arrays, and after a launch with tensors knows a direct one for their device."""

    def __init__(self):
        self.arrays, self.addresses = [], []

    def __call__(self, *tensors):
        self.arrays.append(tensors)

    def direct_for(self, tensors):
        number = len(self.arrays)  # of the launch that it was made for
        return lambda stream, addresses: self.addresses.append((number, stream, list(addresses)))


@pytest.fixture
def stream_of_device(monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 100 + device, raising=False)


@pytest.fixture
def sequence():
    kernel, s = Recorder(), Sequence("x", "absent", "room")
    half = s.lay_out("room", "half", 5, torch.bfloat16)
    whole = s.lay_out("room", "whole", 3)
    s.add(kernel, "x", half, None, whole)
    return s, kernel


def tensors(s):
    return torch.zeros(8), None, torch.arange(s.sizes["room"], dtype=torch.float32)


def test_the_first_launch_gets_arrays_and_later_ones_the_same_addresses(sequence, stream_of_device):
    s, kernel = sequence
    given = tensors(s)
    s(0, *given)
    x, half, absent, whole = kernel.arrays[0]
    assert (x is given[0], absent) == (True, None)
    assert (half.dtype, half.numel(), whole.dtype, whole.numel()) == (torch.bfloat16, 5, torch.float32, 3)
    assert half.data_ptr() % 128 == given[2].data_ptr() % 128 == whole.data_ptr() % 128
    assert whole.data_ptr() >= half.data_ptr() + 10
    s(0, *given)
    assert len(kernel.arrays) == 1
    assert kernel.addresses == [(1, 100, [x.data_ptr(), half.data_ptr(), None, whole.data_ptr()])]


def test_arrays_of_a_workspace_do_not_overlap_and_fit():
    s = Sequence("room")
    names = [
        s.lay_out("room", f"{n} {dtype}", n, dtype)
        for n in range(1, 70, 7)
        for dtype in (torch.float32, torch.bfloat16)
    ]
    room = torch.zeros(s.sizes["room"])
    for number, name in enumerate(names, 1):
        array = s.array(name, room)
        assert not array.any()
        array.fill_(number)
    assert all((s.array(name, room) == number).all() for number, name in enumerate(names, 1))


def test_another_device_and_tensors_that_are_not_aligned_are_launched_with_arrays_first(sequence, stream_of_device):
    s, kernel = sequence
    x, absent, room = given = tensors(s)
    s(0, *given)
    s(1, *given)
    assert len(kernel.arrays) == 2
    s(1, *given)
    s(0, *given)
    assert [(number, stream) for number, stream, _ in kernel.addresses] == [(2, 101), (1, 100)]
    s(0, x[1:], absent, room)
    assert len(kernel.arrays) == 3
    with wcgan.kernels.launches_by_triton():
        s(0, *given)
    assert len(kernel.arrays) == 4


@pytest.mark.parametrize(
    ("d", "groups", "forward", "backward"),
    [(256, 1, 7, 9), (256, 4, 8, 9), (256, 16, 8, 9), (512, 1, 8, 13), (512, 16, 8, 10), (2048, 16, 8, 9)],
)
def test_a_layer_has_at_most_one_launch_more_in_groups(d, groups, forward, backward):
    pytest.importorskip("triton", reason="Triton is not installed")
    from wcgan.kernels import layer

    def factorise(s, d, device, eps, groups):
        s.add(Recorder(), "covariance", "w", "retry", None)

    x = torch.empty(64, d, 7, 7, dtype=torch.bfloat16, device="meta").to(memory_format=torch.channels_last)
    options = (1e-3, False, 132, "half", factorise, (True, 0.1), True, groups)
    there = layer._forward.__wrapped__(x.shape, x.stride(), x.stride(), x.dtype, 0, 1, *[False] * 4, *options)
    options = (1, *[False] * 3, 1e-3, 132, "half", True, True, groups)
    back = layer._backward.__wrapped__(x.shape, *(x.stride(),) * 3, x.dtype, *options)
    assert (len(there._steps), len(back._steps)) == (forward, backward)
    kernels = [getattr(step, "kernel", None) for step, _ in there._steps]
    assert kernels.count(layer.programs.diagonal_kernel) == int(groups > 1)


class SmallGpu:
    """A kernel as Triton launches it, on a GPU whose shared memory has room for so many stages."""

    def __init__(self, room):
        self.room, self.launched = room, []
        self.error = pytest.importorskip("triton", reason="Triton is not installed").OutOfResources

    def __getitem__(self, grid):
        def launch(*arguments, num_stages):
            if num_stages > self.room:
                raise self.error(num_stages, self.room, "shared memory")
            self.launched.append((grid, arguments, num_stages))

        return launch


def test_stages_are_left_out_until_shared_memory_is_enough():
    kernel, x = SmallGpu(2), torch.zeros(4)
    launcher = Launcher(kernel, (3,), (7,), {"num_stages": 4})
    launcher(x)
    launcher(x)
    assert kernel.launched == [((3, 1, 1), (x, 7), 2)] * 2


def test_a_kernel_that_fits_in_no_stage_says_so():
    kernel = SmallGpu(0)
    with pytest.raises(kernel.error, match="shared memory"):
        Launcher(kernel, (1,), (), {"num_stages": 4})(torch.zeros(4))
