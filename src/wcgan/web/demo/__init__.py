"""A playground for generators in the browser: sample, interpolate, compare, look inside a layer."""

try:
    import gradio  # noqa: F401
except ImportError as error:
    raise ImportError(f"the playground needs more than training does: pip install 'wcgan[web]' ({error})") from error

from wcgan.web.demo.app import build, export_app, launch, load_runs

__all__ = ["build", "export_app", "launch", "load_runs"]
