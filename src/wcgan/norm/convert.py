"""Replaces batch normalisation by whitening and coloring in an existing network."""

import inspect
import warnings
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from wcgan.norm._base import check_module
from wcgan.norm.unconditional import WhiteningColoring, WhiteningColoring1d, WhiteningColoring2d, WhiteningColoring3d
from wcgan.norm.variants import VARIANTS, Variant, find_variant

_LAYERS: dict[type, type[WhiteningColoring]] = {
    nn.BatchNorm1d: WhiteningColoring1d,
    nn.BatchNorm2d: WhiteningColoring2d,
    nn.BatchNorm3d: WhiteningColoring3d,
    nn.SyncBatchNorm: WhiteningColoring2d,
}
_LAZY = (nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d)
# timm's subclass with an activation, compared by name so that timm need not be imported.
_WITH_ACTIVATION = "timm.layers.norm_act.BatchNormAct2d"
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CHOICES = ", ".join(name for name, variant in VARIANTS.items() if not variant.conditional)


def convert_batchnorm(model: nn.Module, variant: str = "WC", *, eps: float = 1e-3, **options: Any) -> nn.Module:
    r"""Replaces every `BatchNorm1d`, `2d`, `3d` and `SyncBatchNorm` (taken as 2d) by whitening and coloring.

    .. math:: \gamma\, (x - \mu) / \sigma + \beta \quad\to\quad \Gamma\, W (x - \mu) + \beta, \qquad \Gamma =
        \mathrm{diag}(\gamma),\; W = \mathrm{diag}(1 / \sigma)

    The network's output in evaluation does not change: running variances become a diagonal running covariance, scales
    a diagonal coloring. Training then fills in the other entries of both. Each layer keeps its momentum.

    Args:
        model: the network, changed in place.
        variant: an unconditional name in `VARIANTS`, such as `"WC"` or `"DBN"`. A layer without scale and shift
            (`affine=False`) gets no coloring.
        eps: the shrinkage of the new layers.
        **options: further arguments of `WhiteningColoring2d`, such as `whitening`, `coloring` and `groups`.

    Returns:
        The model. If the model itself is a batch normalisation, the new layer. If it is a `DistributedDataParallel`, a
        new wrapper with the same settings; all processes have to make this call.

    Raises:
        TypeError: if the model is not a module.
        ValueError: for a lazy batch normalisation that has not seen a batch, a variant that is unknown or depends on
            a class, or options that do not fit a layer, such as `groups` that do not divide its channels. The model is
            then unchanged.

    Warns:
        UserWarning: that names the batch normalisations left alone, which are subclasses of those above, except timm's
            `BatchNormAct2d`, and those inside scripted, traced or exported networks; that names those whose hooks are
            dropped; and for a variant that changes the output in evaluation: `whitening="newton"` is approximate,
            `coloring="none"` drops scales and shifts, `whitening="none"` drops the normalisation.

    Example:
        >>> import torch, wcgan
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
        >>> wcgan.convert_batchnorm(model)[1]
        WhiteningColoring2d(8, eps=0.001, momentum=0.1, whitening='cholesky', coloring='full')
    """
    check_module("model", model)
    chosen = find_variant(variant)
    if chosen.conditional:
        raise ValueError(f"{variant} depends on the class, and batch normalisation does not; choose one of {_CHOICES}")
    found: dict[nn.Module, nn.Module] = {}
    left_alone, hooked, changes = [], [], set()
    for name, module in model.named_modules():
        if isinstance(module, _LAZY):
            raise ValueError(f"{name or 'the model'} is a lazy batch normalisation: run a batch through it first")
        if not isinstance(module, _BatchNorm):
            if compiled := _compiled_batchnorm(module):
                left_alone.append(f"{name or 'the model'} ({compiled}: convert the network that it was made from)")
            continue
        active = _full_name(type(module)) == _WITH_ACTIVATION
        if type(module) not in _LAYERS and not active:
            left_alone.append(f"{name or 'the model'} ({type(module).__name__})")
            continue
        try:
            layer = _convert(module, _LAYERS.get(type(module), WhiteningColoring2d), chosen, eps, options)
        except ValueError as error:
            raise ValueError(f"{name or 'the model'} cannot be converted: {error}") from error
        parts = OrderedDict[str, nn.Module](norm=layer, **dict(module.named_children()))
        found[module] = nn.Sequential(parts).train(module.training) if active else layer
        changes |= _changes(module, layer)
        if any(getattr(module, hooks) for hooks in _HOOKS):
            hooked.append(name or "the model")
    if hooked:
        warnings.warn(f"convert_batchnorm dropped the hooks of these layers: {', '.join(hooked)}", stacklevel=2)
    if left_alone:
        warnings.warn(f"convert_batchnorm left these layers alone: {', '.join(left_alone)}", stacklevel=2)
    elif not found:
        warnings.warn("convert_batchnorm found no batch normalisation in the model", stacklevel=2)
    if changes:
        reasons = "; ".join(sorted(changes))
        warnings.warn(f"convert_batchnorm changes the output in evaluation: {reasons}", stacklevel=2)
    model = replace_modules(model, found)
    return replace_modules(model, {m: _wrap_anew(m) for m in model.modules() if isinstance(m, DistributedDataParallel)})


def _changes(source: _BatchNorm, layer: WhiteningColoring) -> set[str]:
    """Why the layer's output in evaluation differs from that of the batch normalisation; empty if it does not."""
    reasons = {
        "whitening='newton' is approximate": layer.whitening == "newton",
        "whitening='none' drops the normalisation": layer.whitening == "none",
        "coloring='none' drops scales and shifts": source.affine and not layer.affine,
    }
    return {reason for reason, holds in reasons.items() if holds}


def _compiled_batchnorm(module: nn.Module) -> str | None:
    """What a module is in whose code there is a batch normalisation that cannot be replaced; None if there is none."""
    if isinstance(module, torch.jit.ScriptModule):
        kind = module.original_name
        return f"TorchScript {kind}" if kind in {known.__name__ for known in _LAYERS} else None
    if isinstance(module, torch.fx.GraphModule):
        called = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
        return "a graph that calls batch_norm" if any("batch_norm" in name for name in called) else None
    return None


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _wrap_anew(wrapped: DistributedDataParallel) -> DistributedDataParallel:
    """A new wrapper with the same settings: the old one does not synchronise parameters added after wrapping."""
    known = inspect.signature(DistributedDataParallel).parameters.keys() - {"device_mesh"}  # became the process group
    settings = {name: value for name, value in vars(wrapped).items() if name in known}
    return DistributedDataParallel(wrapped.module, bucket_cap_mb=wrapped.bucket_bytes_cap / 2**20, **settings)


def replace_modules(model: nn.Module, replacements: dict[nn.Module, nn.Module]) -> nn.Module:
    """Replaces modules in place, wherever they occur; returns the model, or its own replacement."""
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child in replacements:
                parent._modules[name] = replacements[child]
    return replacements.get(model, model)


@torch.no_grad()
def _convert(
    source: _BatchNorm, kind: type[WhiteningColoring], variant: Variant, eps: float, options: dict[str, Any]
) -> WhiteningColoring:
    tensor: Tensor | None = source.weight if source.affine else source.running_var
    choices = {
        **variant.options(source.num_features),
        **({} if source.affine or variant.whitening == "none" else {"coloring": "none"}),
        "track_running_stats": source.track_running_stats,
        "sync": isinstance(source, nn.SyncBatchNorm),
        "process_group": getattr(source, "process_group", None),
        **({} if tensor is None else {"device": tensor.device, "dtype": tensor.dtype}),
        **options,
    }
    layer = kind(source.num_features, eps, source.momentum, **choices)
    if layer.weight is not None and layer.bias is not None:
        scale = source.weight if source.affine else torch.ones_like(layer.bias)
        layer.weight.copy_(torch.diag(scale) if layer.weight.dim() == 2 else scale)
        if source.affine:
            layer.bias.copy_(source.bias)
            layer.weight.requires_grad_(source.weight.requires_grad)
            layer.bias.requires_grad_(source.bias.requires_grad)
    if layer.track_running_stats and source.running_mean is not None and source.running_var is not None:
        layer.running_mean.copy_(source.running_mean)
        if source.num_batches_tracked is not None:
            layer.num_batches_tracked.copy_(source.num_batches_tracked)
        # Whitening must divide by the same variance, so the batch normalisation's eps becomes part of it.
        variance = source.running_var + source.eps - eps
        covariance = layer._covariance
        if layer.whitening != "standardize":
            variance = variance / (1 - eps)
        covariance.copy_(torch.diag_embed(variance.view(covariance.shape[:2])))
    layer.train(source.training)
    return layer
