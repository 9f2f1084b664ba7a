"""Layers on a GPU with their inputs, and what is measured of a step, shared by the tests of layers."""

import torch

import wcgan

CLASSES = 5
EAGER = {torch.float32: 1e-5, torch.bfloat16: 2**-7}  # relative errors in norm between two ways through a layer
ADDED = 12  # launches beside a layer's own: gradients are added to those that are there


def layer_and_inputs(name, device, dtype=torch.float32, channels=32, samples=12, side=6, **options):
    torch.manual_seed(0)
    conditional = wcgan.VARIANTS[name].conditional
    layer = wcgan.normalization(name, channels, classes=CLASSES if conditional else None, dtype=dtype, **options)
    mixing = torch.randn(channels, channels, dtype=dtype) / channels**0.5
    x = torch.einsum("ij,njhw->nihw", mixing, torch.randn(samples, channels, side, side, dtype=dtype)) + 3
    labels = (torch.arange(samples) % CLASSES,) if conditional else ()
    return layer.to(device), x.to(device).requires_grad_(), tuple(y.to(device) for y in labels)


def step(layer, x, labels):
    """Output, gradients and statistics of one training batch."""
    out = layer(x, *labels)
    out.sin().sum().backward()
    named = {name: p.grad for name, p in layer.named_parameters()} | {"x": x.grad, "out": out.detach()}
    return named | {name: b for name, b in layer.named_buffers() if "running" in name}


def count_launches(layer, x):
    """Of a step after two others."""
    for _ in range(2):
        layer(x).backward(x.detach())
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        layer(x).backward(x.detach())
        torch.cuda.synchronize()
    return sum(e.count for e in profile.key_averages() if e.key.startswith(("cudaLaunch", "cuLaunch")))
