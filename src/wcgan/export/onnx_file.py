"""ONNX, by torch's exporter, run in onnxruntime before it is handed out."""

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wcgan.export.program import batch_shapes, first_line
from wcgan.export.servable import Servable, check_exact
from wcgan.train.progress import OnProgress

OPSET = 20
OUTPUT = "images"


def write_onnx(servable: Servable, path: Path, progress: OnProgress) -> dict[str, Any]:
    """An `.onnx` file with weights inside and a batch of any size, held against the original; returns facts about it.

    Raises:
        ValueError: for an operation that ONNX has no operator for, and for a result that is not exact.
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
    onnx.checker.check_model(model)
    return {
        "largest difference": check_exact(servable, onnx_runner(path), progress),
        "opset": model.opset_import[0].version,
        "operators": dict(sorted(Counter(node.op_type for node in model.graph.node).items())),
        "inputs": list(servable.names),
        "versions": {m.__name__: m.__version__ for m in (torch, onnx, onnxruntime, onnxscript)},
    }


def onnx_runner(path: Path, threads: int = 0) -> Callable[..., Tensor]:
    """A file -> a function of tensors, on the CPU; `threads` 0 leaves their number to onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]

    def run(*inputs: Tensor) -> Tensor:
        feed = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
        return torch.from_numpy(session.run([OUTPUT], feed)[0])

    return run
