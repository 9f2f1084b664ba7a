"""A trained generator in the forms that others load: ONNX, torch.export, safetensors, a model hub's folder."""

from wcgan.export.export import FORMATS, export_run, facts_to_lines, sampler_to_servable
from wcgan.export.hub import read_weights
from wcgan.export.programs import write_compiled, write_onnx, write_program
from wcgan.export.servable import Servable, make_servable

__all__ = [
    "FORMATS",
    "Servable",
    "export_run",
    "facts_to_lines",
    "make_servable",
    "read_weights",
    "sampler_to_servable",
    "write_compiled",
    "write_onnx",
    "write_program",
]
