"""Compiles CUDA C++ at first use with NVRTC, which comes with PyTorch's CUDA builds: no CUDA toolkit is needed."""

import ctypes
import functools
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# Attributes of a function, by the driver's numbers.
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14


def compile_kernel(source: str, name: str, device: int, shared_memory: int) -> Callable[..., None]:
    """Compiles a kernel for a device, with a host sync.

    Returns:
        `launch(grid, block, *arguments)`, on the current stream; arguments are tensors, ints and floats (as float32).

    Raises:
        RuntimeError: with the compiler's or the driver's message.
    """
    major, minor = torch.cuda.get_device_capability(device)
    binary = _compile(source, (f"--gpu-architecture=sm_{major}{minor}",))
    driver = _library("libcuda.so.1", "nvcuda.dll")
    torch.cuda.current_stream(device).synchronize()  # makes the device's context current
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    with torch.cuda.device(device):
        _check(driver, driver.cuModuleLoadData(ctypes.byref(module), binary))
        _check(driver, driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
        _check(driver, driver.cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_memory))
        _check(driver, driver.cuFuncSetAttribute(function, NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1))

    def launch(grid: int, block: int, *arguments: Tensor | int | float) -> None:
        values = [_c_value(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
        with torch.cuda.device(device):
            result = driver.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared_memory, stream, pointers, None)
        _check(driver, result)

    return launch


def _c_value(argument: Tensor | int | float) -> Any:
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    return ctypes.c_int(argument) if isinstance(argument, int) else ctypes.c_float(argument)


def _compile(source: str, options: Sequence[str]) -> bytes:
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
