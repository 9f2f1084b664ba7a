"""Writes a model as a torch.export program, an AOTInductor package or ONNX; none needs this library to run."""

import json
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from wcgan.core.terminal import OnProgress
from wcgan.export.servable import Servable, check_exact
from wcgan.norm.fold import OneClass

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
        "versions": {m.__name__: m.__version__ for m in (torch, onnx, onnxruntime, onnxscript)},
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


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
