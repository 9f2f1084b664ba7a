"""Writes a folded model as a torch.export program, an AOTInductor package or ONNX, and checks what was written."""

import copy
import json
import math
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn.functional import conv2d

import wcgan
from wcgan.core.terminal import OnProgress, first_line
from wcgan.norm import FoldedMap, WhiteningLayer
from wcgan.norm.convert import replace_modules
from wcgan.norm.fold import OneClass

CHECKED = 1000
_SIZES = (64, 1, 37)
_LOOSER_THAN_ROUNDING = 8
Draw = Callable[[int, int], tuple[Tensor, ...]]
"""The number of samples and a seed -> inputs of the model."""


@dataclass(frozen=True)
class Servable:
    """A folded model, and what is needed to check an export of it."""

    model: nn.Module
    """The folded model, with its maps as convolutions."""
    original: nn.Module
    """The trained model in evaluation mode, which takes the same inputs."""
    names: tuple[str, ...]
    """Names of the inputs, in order."""
    draw: Draw
    """Makes random inputs."""
    class_names: tuple[str, ...] = ()
    """Names of the classes, for the metadata of a format that has any."""


class _Convolution(nn.Module):
    """A constant map as a 1x1 convolution, which every runtime supports."""

    weight: Tensor
    bias: Tensor

    def __init__(self, mapping: FoldedMap) -> None:
        super().__init__()
        _, self.groups, p, _ = mapping.matrix.shape
        self.register_buffer("weight", mapping.matrix.reshape(mapping.channels, p, 1, 1))
        self.register_buffer("bias", mapping.offset[0])

    def forward(self, x: Tensor, labels: Tensor | bool | None = None, relu: bool = False) -> Tensor:
        out = conv2d(x, self.weight, self.bias, groups=self.groups)
        return out.relu() if relu or labels is True else out


def make_servable(model: nn.Module, names: tuple[str, ...], draw: Draw, label: int | None = None) -> Servable:
    """Folds a model and checks that it can be exported.

    Args:
        model: any module with layers of this library, in evaluation mode; it is not changed.
        names: names of its inputs, in order; without the labels if `label` is given.
        draw: the number of samples and a seed -> inputs of the model.
        label: the only class to keep; None for all.

    Raises:
        ValueError: for a model in training mode, a layer without statistics, and whatever `wcgan.fold` refuses.

    Example:
        >>> import torch, wcgan
        >>> from wcgan.export import make_servable
        >>> layer = wcgan.WhiteningColoring1d(4)
        >>> _ = layer(torch.randn(8, 4))
        >>> servable = make_servable(layer.eval(), ("features",), lambda count, seed: (torch.randn(count, 4),))
        >>> servable.model
        FoldedMap(4)
    """
    if any(module.training for module in model.modules()):
        raise ValueError("the model is in training mode, in which its output depends on the batch: call eval() first")
    for name, module in model.named_modules():
        if isinstance(module, WhiteningLayer) and _untouched(module):
            raise ValueError(f"{name or 'the model'} has no statistics yet: pass training batches through the model")
    folded = wcgan.fold(model, label).requires_grad_(False)
    grids = [m for m in folded.modules() if isinstance(m, FoldedMap) and m.ranks == (4,)]
    full = [m for m in grids if not m.conditional and not m.diagonal]
    original = OneClass(model, folded.label, folded.position).eval() if isinstance(folded, OneClass) else model
    return Servable(replace_modules(folded, {m: _Convolution(m).eval() for m in full}), original, names, draw)


def _untouched(layer: WhiteningLayer) -> bool:
    """Whether statistics are the initial ones. The number of batches does not tell: converted layers may count none."""
    if not layer.track_running_stats or layer.num_batches_tracked > 0:
        return False
    covariance = layer._covariance
    identity = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    return bool((layer.running_mean == 0).all()) and bool((covariance == identity).all())


@torch.no_grad()
def check_exact(servable: Servable, run: Callable[..., Tensor], progress: OnProgress, count: int = CHECKED) -> float:
    """Compares an exported model with the original, on random inputs in batches of several sizes.

    Returns:
        The largest difference.

    Raises:
        ValueError: if the difference is more than a few times the float32 rounding error of the original.
    """
    allowed = _LOOSER_THAN_ROUNDING * _rounding(servable)
    largest = 0.0
    done, sizes = 0, cycle(_SIZES)
    while done < count:
        size = min(next(sizes), count - done)
        inputs = servable.draw(size, done)
        error = float((run(*inputs) - servable.original(*inputs)).abs().max())
        largest = max(largest, error if math.isfinite(error) else math.inf)
        done += size
        progress("checking", done, count)
    if not largest <= allowed:
        raise ValueError(
            f"the written model differs by {largest:.1e} from the one that was trained, on {count} random inputs; "
            f"rounding explains {allowed:.1e}: it cannot be exported exactly"
        )
    return largest


def _rounding(servable: Servable) -> float:
    """The largest error of the original in float32, against float64; at least one unit in the last place."""
    inputs = servable.draw(_SIZES[0], 0)
    exact = copy.deepcopy(servable.original).double()
    expected = exact(*(x.double() if x.is_floating_point() else x for x in inputs))
    unit = torch.finfo(torch.float32).eps * float(expected.abs().max())
    return max(unit, float((servable.original(*inputs) - expected).abs().max()))


OPSET = 20
OUTPUT = "images"


def batch_shapes(servable: Servable) -> tuple[Any, ...]:
    """The dynamic shapes of torch.export: the first dimension of every input is the batch, of any size."""
    batch = Dim("batch", min=1)
    shapes = tuple({0: batch} for _ in servable.names)
    return (shapes,) if isinstance(servable.model, OneClass) else shapes  # its forward takes `*inputs`


def servable_to_program(servable: Servable) -> ExportedProgram:
    """The model as a graph of ATen operators.

    Raises:
        ValueError: for an operation that torch.export cannot follow.
    """
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # torch's, about its own insides
            return torch.export.export(servable.model, servable.draw(2, 0), dynamic_shapes=batch_shapes(servable))
    except Exception as error:  # torch raises whatever its tracing meets
        raise ValueError(f"torch.export cannot follow the model: {first_line(error)}") from error


def write_program(servable: Servable, path: Path, progress: OnProgress) -> dict[str, Any]:
    """Writes a `.pt2` file, reads it back and checks it -> facts about it."""
    progress("exporting", 0, 1)
    torch.export.save(servable_to_program(servable), path)
    progress("exporting", 1, 1)
    module = torch.export.load(path).module()
    operators = {str(n.target) for n in module.graph.nodes if n.op == "call_function" and "aten" in str(n.target)}
    return {
        "largest difference": check_exact(servable, module, progress),
        "operators": sorted({name.split(".")[1] for name in operators}),
        "torch": torch.__version__,
    }


def write_compiled(servable: Servable, path: Path, progress: OnProgress) -> dict[str, Any]:
    """Writes an AOTInductor package, machine code for this kind of machine, and checks it -> facts about it.

    Raises:
        ValueError: if it cannot be compiled, for example without a C++ compiler.
    """
    progress("compiling", 0, 1)
    program = servable_to_program(servable)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch._inductor.aoti_compile_and_package(program, package_path=str(path))
    except Exception as error:
        raise ValueError(f"the model cannot be compiled here: {first_line(error)}") from error
    progress("compiling", 1, 1)
    module = torch._inductor.aoti_load_package(str(path))
    return {"largest difference": check_exact(servable, module, progress), "torch": torch.__version__}


def write_onnx(servable: Servable, path: Path, progress: OnProgress) -> dict[str, Any]:
    """Writes an `.onnx` file with weights inside and a batch of any size, and checks it -> facts about it.

    The metadata `class_names` is a JSON list of the names of the classes.

    Raises:
        ValueError: for an operation without an ONNX operator, and for a result that is not exact.
        ImportError: without `wcgan[export]`.
    """
    try:
        import onnx
        import onnxruntime  # type: ignore[import-untyped]
        import onnxscript
    except ImportError as error:
        raise ImportError(f"ONNX needs more packages: pip install 'wcgan[export]' ({error})") from error
    progress("exporting", 0, 1)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # torch's, about its own insides
            program = torch.onnx.export(
                servable.model,
                servable.draw(2, 0),
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=servable.names,
                output_names=[OUTPUT],
                dynamic_shapes=batch_shapes(servable),
            )
        assert program is not None
        program.save(path, external_data=False)
    except Exception as error:  # torch raises whatever its tracing meets
        raise ValueError(f"the model cannot be written as ONNX: {first_line(error.__cause__ or error)}") from error
    progress("exporting", 1, 1)
    model = onnx.load(path)
    if servable.class_names:
        onnx.helper.set_model_props(model, {"class_names": json.dumps(servable.class_names)})
        onnx.save(model, path)
    onnx.checker.check_model(model)
    return {
        "largest difference": check_exact(servable, onnx_runner(path), progress),
        "opset": model.opset_import[0].version,
        "operators": dict(sorted(Counter(node.op_type for node in model.graph.node).items())),
        "inputs": list(servable.names),
        "versions": {m.__name__: m.__version__ for m in (onnx, onnxruntime, onnxscript)},
    }


def onnx_runner(path: Path, threads: int = 0) -> Callable[..., Tensor]:
    """An ONNX file -> a function of tensors on the CPU; with `threads` 0, onnxruntime chooses their number."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]

    def run(*inputs: Tensor) -> Tensor:
        feed = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
        return torch.from_numpy(session.run([OUTPUT], feed)[0])

    return run
