"""Imports go one way, and the layers need nothing but torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import wcgan

ROOT = Path(wcgan.__file__).parent
# A package may import those above it, and nothing below.
ORDER = [
    *("kernels", "functional", "norm", "nets", "core", "data", "runs"),
    *("evaluate", "train", "paper", "report", "reproduce", "export", "web", "cli", "__main__"),
]
# The doors from the layers to what comes after them, opened when `wcgan.load`, `wcgan.models` or `wcgan.fit` is called.
DOOR = {
    *(f"wcgan.runs.sampler{name}" for name in ("", ".Sampler", ".load_generator")),
    *(f"wcgan.runs.pretrained{name}" for name in ("", ".Model", ".shipped_models")),
    *("wcgan.core.options", "wcgan.core.options.naming_arguments"),
    *("wcgan.data", "wcgan.data.Dataset", "wcgan.report", "wcgan.train", "wcgan.train.Callback"),
    *(f"wcgan.paper.presets{name}" for name in ("", ".dataset_to_config", ".default_folder", ".find_config")),
    *(f"wcgan.runs.config{name}" for name in ("", ".Config", ".change")),
    *(f"wcgan.runs.folder{name}" for name in ("", ".Run", ".is_begun")),
}
LAYERS = ("functional", "kernels", "norm")
FILES = sorted(ROOT.rglob("*.py"))
OPTIONAL = {
    *("PIL", "fastapi", "gradio", "huggingface_hub", "onnx", "onnxruntime", "onnxscript", "pandas"),
    *("psycopg", "ray", "rich", "safetensors", "scipy", "sklearn", "tensorboard", "torch_fidelity", "torchmetrics"),
    *("torchvision", "typer", "uvicorn", "yaml"),
}


def package_of(file):
    """The package or module right under wcgan that a file belongs to; None for wcgan's own `__init__`."""
    first = file.relative_to(ROOT).parts[0]
    return None if first == "__init__.py" else first.removesuffix(".py")


def imported_modules(source, package="wcgan"):
    """Full names of all modules that a source imports, wherever in it; relative ones resolved against `package`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imports_of(file):
    package = ".".join(["wcgan", *file.relative_to(ROOT).parent.parts])
    return set(imported_modules(file.read_text(encoding="utf-8"), package))


def backward_imports(package, modules):
    """Those of the modules that stand later in the order than the package."""
    parts = [module.split(".") for module in modules if module.startswith("wcgan.")]
    return {".".join(p) for p in parts if p[1] in ORDER and ORDER.index(p[1]) > ORDER.index(package)}


def test_every_package_has_a_place_in_the_order():
    assert {package_of(file) for file in FILES} - {None} <= set(ORDER)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_imports_nothing_that_comes_later(file):
    package = package_of(file)
    if package is None:  # `import wcgan` gives the layers, and functions that import more when they are called
        assert backward_imports("norm", imports_of(file)) == DOOR
    else:
        assert backward_imports(package, imports_of(file)) == set()


def test_a_backward_import_would_be_found():
    source = "import wcgan.nets\ndef f():\n    from ..train import loop\n    from wcgan import functional"
    found = set(imported_modules(source, "wcgan.norm"))
    assert {"wcgan.nets", "wcgan.train.loop", "wcgan.functional"} <= found
    assert backward_imports("norm", found) == {"wcgan.nets", "wcgan.train", "wcgan.train.loop"}


@pytest.mark.parametrize("file", [f for f in FILES if package_of(f) in (*LAYERS, None)], ids=lambda f: f.name)
def test_the_layers_import_torch_and_the_standard_library_only(file):
    roots = {module.split(".")[0] for module in imports_of(file)}
    assert roots - set(sys.stdlib_module_names) <= {"torch", "triton", "wcgan"}


# What is loaded by `import wcgan`, by the commands and by a layer that runs: in one process, for each takes seconds.
LISTING = """
import sys, wcgan
print(*sorted({name.split('.')[0] for name in sys.modules}))
import wcgan.cli, wcgan.reproduce
print('torch._dynamo' in sys.modules)
import torch
wcgan.WhiteningColoring1d(4)(torch.randn(8, 4)).sum().backward()
print(*(name for name in sys.modules if name.startswith('wcgan.kernels')))
"""


@pytest.fixture(scope="module")
def listed():
    result = subprocess.run([sys.executable, "-c", LISTING], capture_output=True, text=True, check=True)
    return result.stdout.split("\n")


def test_importing_wcgan_loads_nothing_optional(listed):
    loaded = set(listed[0].split())
    assert "torch" in loaded
    assert loaded & OPTIONAL == set()


def test_commands_do_not_load_the_compiler_before_they_need_it(listed):
    assert listed[1] == "False"


def test_the_kernels_are_imported_when_a_gpu_needs_them_and_not_before(listed):
    assert listed[2:] == ["", ""]
