"""Exports trained generators to formats that other software loads: ONNX, torch.export, safetensors, a model hub."""

from wcgan.export.export import FORMATS, export_run, facts_to_lines, run_to_shipped, sampler_to_servable
from wcgan.export.programs import Servable, make_servable, write_compiled, write_onnx, write_program

__all__ = [
    "FORMATS",
    "Servable",
    "export_run",
    "facts_to_lines",
    "make_servable",
    "run_to_shipped",
    "sampler_to_servable",
    "write_compiled",
    "write_onnx",
    "write_program",
]
