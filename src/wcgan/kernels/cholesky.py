"""Covariance -> Cholesky whitening matrix in one CUDA kernel: shrinkage, factorisation, inverse and retries.

`cholesky.cu` is compiled at first use; that needs no CUDA toolkit.
"""

import ctypes
import functools
import sysconfig
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wcgan.kernels import Addresses, Direct, capability

LARGEST = 512
BLOCK = 256  # of larger matrices: two of these take less time than one of 512
SHARED_MEMORY = 232_448  # bytes that a thread block may have
THREADS, TILE, STRIDE, COLUMNS = 512, 32, 40, 2 * 8 * 36  # as in cholesky.cu
# Attributes of a function, by the driver's numbers.
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
INVALID_CONTEXT = 201


def supports(covariance: Tensor, levels: tuple[float, ...]) -> bool:
    """Whether the kernel supports these matrices: float32, up to 512 x 512, on a GPU with thread block clusters."""
    return (
        covariance.dtype == torch.float32
        and covariance.shape[-1] <= LARGEST
        and torch.version.cuda is not None
        and capability(covariance.device) >= (9, 0)
        and _kernel_for(covariance, levels) is not None
    )


def factorise(covariance: Tensor, eps: float, levels: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Whitening matrices of the symmetric parts of covariances, and the shrinkage of retries `(g,)`.

    Args:
        covariance: `(g, p, p)`, or `(p, p)` for one matrix, float32.
        eps: the shrinkage.
        levels: four shrinkages towards (trace / p) I, tried in order until one is enough.
    """
    covariance = covariance.contiguous()
    matrices = covariance.shape[0] if covariance.dim() == 3 else 1
    matrix, retry = torch.empty_like(covariance), covariance.new_empty(matrices)
    kernel = _kernel_for(covariance, levels)
    assert kernel is not None
    Factorisation(kernel, covariance.shape[-1], eps, matrices)(covariance, matrix, retry, None)
    return matrix, retry


def factorise_in_blocks(matrix: Tensor, levels: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """W = L^-1 of positive definite matrices `(g, p, p)` = L L^T of any size, and whether each could be factorised.

    Of its blocks A, B below A, and C: with U = W(A) and L = B U^T, the blocks of W are U, -V L U and V = W(C - L L^T).

    Args:
        matrix: float64 and symmetric. Products of float32 blocks would follow PyTorch's setting for TF32, and on tensor
            cores they are not exact enough even in parts that TF32 represents. Hopper multiplies float64 matrices as
            fast as float32 ones without TF32.
        levels: those of a kernel that is there. A matrix that needs one of them could not be factorised.
    """
    p = matrix.shape[-1]
    if p <= BLOCK:
        whitening, retry = factorise(matrix.float(), 0.0, levels)
        return whitening.double(), retry == 0
    half = -(-p // (2 * TILE)) * TILE
    upper, well = factorise_in_blocks(matrix[:, :half, :half], levels)
    below = matrix[:, half:, :half] @ upper.mT
    lower, also_well = factorise_in_blocks(matrix[:, half:, half:] - below @ below.mT, levels)
    whitening = torch.zeros_like(matrix)
    whitening[:, :half, :half], whitening[:, half:, half:] = upper, lower
    whitening[:, half:, :half] = -lower @ (below @ upper)
    return whitening, well & also_well


class Factorisation:
    """`factorise` as a kernel of a sequence: of a covariance, into a matrix and a retry, all contiguous.

    The fourth array is a number, or None: if it is 0 when the kernel runs, the kernel does nothing.
    """

    def __init__(self, kernel: "_Kernel", d: int, eps: float, matrices: int = 1) -> None:
        self.kernel, self.matrices = kernel, matrices
        self.numbers = (ctypes.c_int(d), ctypes.c_float(eps))

    def __call__(self, *tensors: Tensor | None) -> None:
        device = self.kernel.device
        addresses = [None if t is None else t.data_ptr() for t in tensors]
        with nullcontext() if torch.cuda.current_device() == device else torch.cuda.device(device):
            self._launch(torch._C._cuda_getCurrentRawStream(device), addresses)

    def direct_for(self, tensors: list[Tensor | None]) -> Direct:
        return self._launch

    def _launch(self, stream: int, addresses: Addresses) -> None:
        self.kernel.launch(self.matrices * self.kernel.blocks, stream, addresses, self.numbers)


def factorisation(d: int, device: int, eps: float, levels: tuple[float, ...], matrices: int = 1) -> Factorisation:
    """The kernel of a sequence for so many matrices, where `supports` is True of them."""
    kernel = _compile(-(-d // TILE), device, levels)
    assert kernel is not None
    return Factorisation(kernel, d, eps, matrices)


def _kernel_for(covariance: Tensor, levels: tuple[float, ...]) -> "_Kernel | None":
    return _compile(-(-covariance.shape[-1] // TILE), covariance.device.index, levels)


@functools.cache
def _compile(tiles: int, device: int, levels: tuple[float, ...]) -> "_Kernel | None":
    """The kernel for matrices of tiles x tiles, with one thread block per row of tiles; None if it does not compile."""
    blocks = next(blocks for blocks in (1, 2, 4, 8, 16) if blocks >= tiles)
    buffers = 2 if _shared_memory(tiles, 2) <= SHARED_MEMORY else 1
    numbers = ", ".join(f"{level:.8e}f" for level in levels)
    defines = f"#define C {blocks}\n#define BUFFERS {buffers}\n#define LEVELS {{{numbers}}}\n"
    source = Path(__file__).with_name("cholesky.cu").read_text(encoding="utf-8")
    try:
        return _Kernel(defines + source, "factorise", device, blocks, _shared_memory(tiles, buffers))
    except RuntimeError as error:
        warnings.warn(f"whitening falls back to the library's factorisation, slower: {error}", stacklevel=2)
        return None


def _shared_memory(tiles: int, buffers: int) -> int:
    """Shared memory of a thread block, in bytes."""
    rows = (1 + buffers) * TILE * (tiles * TILE + 8)
    return 4 * (rows + (2 + tiles) * TILE * STRIDE + COLUMNS + 8)


# Compilation


class _Kernel:
    """A kernel compiled for a device with NVRTC, which comes with PyTorch's CUDA builds; syncs with the host.

    Raises:
        RuntimeError: with the compiler's or the driver's message.
    """

    def __init__(self, source: str, name: str, device: int, blocks: int, shared_memory: int) -> None:
        self.device, self.blocks, self.shared_memory = device, blocks, shared_memory
        major, minor = torch.cuda.get_device_capability(device)
        binary = _source_to_binary(source, (f"--gpu-architecture=sm_{major}{minor}",))
        self.driver = driver = _library("libcuda.so.1", "nvcuda.dll")
        torch.cuda.current_stream(device).synchronize()  # makes the device's context current
        module, self.function, self.context = (ctypes.c_void_p() for _ in range(3))
        with torch.cuda.device(device):
            _check(driver, driver.cuCtxGetCurrent(ctypes.byref(self.context)))
            _check(driver, driver.cuModuleLoadData(ctypes.byref(module), binary))
            _check(driver, driver.cuModuleGetFunction(ctypes.byref(self.function), module, name.encode()))
            _check(driver, driver.cuFuncSetAttribute(self.function, MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_memory))
            _check(driver, driver.cuFuncSetAttribute(self.function, NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1))

    def launch(self, grid: int, stream: int, addresses: Addresses, numbers: tuple[Any, ...]) -> None:
        """Launches the kernel on a stream of its device, which is the current one."""
        values = (*map(ctypes.c_void_p, addresses), *numbers)
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        size, place = (grid, 1, 1, THREADS, 1, 1, self.shared_memory), ctypes.c_void_p(stream)
        result = self.driver.cuLaunchKernel(self.function, *size, place, pointers, None)
        if result == INVALID_CONTEXT:  # a thread that has not used the device before
            _check(self.driver, self.driver.cuCtxSetCurrent(self.context))
            result = self.driver.cuLaunchKernel(self.function, *size, place, pointers, None)
        if result:
            _check(self.driver, result)


def _source_to_binary(source: str, options: Sequence[str]) -> bytes:
    major = (torch.version.cuda or "").partition(".")[0]
    nvrtc = _library(f"libnvrtc.so.{major}", f"nvrtc64_{major}0_0.dll", "libnvrtc.so")
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    try:
        array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if nvrtc.nvrtcCompileProgram(program, len(options), array):
            raise RuntimeError(
                f"NVRTC: {_read(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode()}"
            )
        return _read(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _read(program: ctypes.c_void_p, size_of: Any, read: Any) -> bytes:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    read(program, text)
    return text.raw


@functools.cache
def _library(*names: str) -> ctypes.CDLL:
    """Loads a library by name, or from the NVIDIA packages that PyTorch's wheels install."""
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    for name in names:
        for candidate in (name, *map(str, sorted(packages.glob(f"*/lib/{name}")))):
            try:
                return ctypes.CDLL(candidate)
            except OSError:
                continue
    raise RuntimeError(f"none of {', '.join(names)} can be loaded")


def _check(driver: ctypes.CDLL, result: int) -> None:
    if result:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(result, ctypes.byref(text))
        raise RuntimeError(f"CUDA: {(text.value or b'unknown error').decode()}")
