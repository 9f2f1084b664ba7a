"""A generator with `save_pretrained`, `from_pretrained` and `push_to_hub`; needs `wcgan[export]`."""

import dataclasses
import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from wcgan.core.config import config_to_yaml
from wcgan.core.images import grid, scale_to_show, write_png
from wcgan.core.reading import parse_json, read_bytes
from wcgan.core.terminal import OnProgress
from wcgan.nets import Generator, GeneratorConfig, build_generator
from wcgan.report import scores_to_rows
from wcgan.report.formats import rows_to_markdown
from wcgan.runs.folder import Run
from wcgan.runs.sampler import Sampler

try:
    from huggingface_hub import ModelCard, ModelCardData, PyTorchModelHubMixin
except ImportError as error:
    raise ImportError(f"a model hub's folder needs more packages: pip install 'wcgan[export]' ({error})") from error


_COLUMNS = 10


class PretrainedGenerator(Generator, PyTorchModelHubMixin):
    """A generator that a folder or a repository of a model hub holds.

    `save_pretrained(folder)` writes `model.safetensors`, `config.json` and a model card; `from_pretrained` takes such a
    folder, with no network, or a repository's name; `push_to_hub(name)` uploads. Arguments and shapes are those of
    `wcgan.nets.Generator`.

    Example:
        >>> import tempfile, torch
        >>> from wcgan.export.hub import PretrainedGenerator
        >>> from wcgan.nets import GeneratorConfig
        >>> generator = PretrainedGenerator(GeneratorConfig(widths=(8,), noise=4)).eval()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = generator.save_pretrained(folder)
        ...     again = PretrainedGenerator.from_pretrained(folder)
        >>> noise = torch.randn(2, 4)
        >>> torch.equal(again(noise), generator(noise))
        True
    """

    card = ""
    """The model card's text; empty for a short one."""

    @classmethod
    def _from_pretrained(cls, *, strict: bool = True, **options: Any) -> "PretrainedGenerator":
        """As the mixin's, but a missing tensor is an error, and nothing is printed among a program's results."""
        with redirect_stdout(StringIO()):
            return super()._from_pretrained(strict=strict, **options)

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        data = ModelCardData(
            library_name="wcgan",
            license="mit",
            pipeline_tag=None if self.config.conditional else "unconditional-image-generation",
            tags=["gan", "image-generation", self.config.normalization],
        )
        text = self.card or f"# A {self.config.normalization} generator\n"
        return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}")


def write_hub(sampler: Sampler, run: Run, folder: Path, progress: OnProgress) -> dict[str, Any]:
    """A folder that a model hub takes as it is, read back and held against the original; returns facts about it."""
    generator = PretrainedGenerator(sampler.config)
    generator.load_state_dict(sampler.network.state_dict())
    generator.card = run_to_card(run, sampler)
    images = sampler.rows(_COLUMNS)
    write_png(grid(images, _COLUMNS), folder / SAMPLES, scale_to_show(images.shape[-1]))
    progress("writing", 1, 2)
    generator.eval().save_pretrained(folder)
    progress("writing", 2, 2)
    return {"largest difference": check_same(sampler, PretrainedGenerator.from_pretrained(folder), progress)}


WEIGHTS = "model.safetensors"
CONFIG = "config.json"
_CHECKED = 64


def write_weights(sampler: Sampler, run: Run, folder: Path, progress: OnProgress) -> dict[str, Any]:
    """The generator as it was trained, read back and held against the original; returns facts about it."""
    network = sampler.network
    save_file({k: v.contiguous() for k, v in network.state_dict().items()}, folder / WEIGHTS, {"format": "pt"})
    config = json.dumps(dataclasses.asdict(network.config), indent=2, sort_keys=True)
    (folder / CONFIG).write_text(config + "\n", encoding="utf-8")
    return {"largest difference": check_same(sampler, read_weights(folder), progress)}


def read_weights(folder: Path) -> Generator:
    """A generator from such a folder, in evaluation mode.

    Raises:
        ValueError: if a file is missing, or the two do not fit each other.
    """
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} holds no generator: it has no {name}")
    try:
        config = GeneratorConfig(**parse_json(read_bytes(folder / CONFIG)))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / CONFIG} describes no generator: {error}") from None
    network = build_generator(config)
    try:
        network.load_state_dict(load_file(folder / WEIGHTS))
    except (RuntimeError, SafetensorError):
        raise ValueError(f"{folder}: {WEIGHTS} does not fit {CONFIG}") from None
    return network.requires_grad_(False).eval()


@torch.no_grad()
def check_same(sampler: Sampler, network: Generator, progress: OnProgress) -> float:
    """The largest difference between two generators that must not differ at all.

    Raises:
        ValueError: if they do.
    """
    noise, labels = sampler.noise(_CHECKED, 0), sampler.labels(_CHECKED, None)
    inputs = (noise,) if labels is None else (noise, labels)
    largest = float((network(*inputs) - sampler.network(*inputs)).abs().max())
    progress("checking", _CHECKED, _CHECKED)
    if largest != 0:
        raise ValueError(f"the written generator differs by {largest:.1e} from the one that was trained")
    return largest


SAMPLES = "samples.png"
_CITATION = """@inproceedings{siarohin2019whitening,
  title     = {Whitening and Coloring Batch Transform for {GANs}},
  author    = {Siarohin, Aliaksandr and Sangineto, Enver and Sebe, Nicu},
  booktitle = {International Conference on Learning Representations},
  year      = {2019}
}"""


def run_to_card(run: Run, sampler: Sampler) -> str:
    """Samples, how to use it, figures with their protocol, config, citation and licence, as Markdown."""
    config = run.config()
    made = sampler.config
    sections = {
        "Use": _fenced("python", _use(sampler)),
        "Figures": _figures(run, sampler),
        "Config": _fenced("yaml", config_to_yaml(config)),
        "Citation": _fenced("bibtex", _CITATION),
        "Licence": "MIT, as the library. The images that it was trained on have terms of their own.",
    }
    if sampler.class_names:
        sections["Classes"] = "\n".join(f"{number}. {name}" for number, name in enumerate(sampler.class_names))
    title = f"{made.normalization} generator of {config.data.name}, {made.resolution} x {made.resolution}"
    lead = (
        f"A {made.kind} generator with {made.normalization} normalisation (whitening and coloring batch transform), "
        f"after {sampler.iteration} iterations."
    )
    body = "\n\n".join(f"## {name}\n\n{text}" for name, text in sections.items())
    return f"# {title}\n\n{lead}\n\n![Samples]({SAMPLES})\n\n{body}\n"


def _use(sampler: Sampler) -> str:
    labels = ", torch.zeros(16, dtype=torch.int64)" if sampler.conditional else ""
    return (
        "import torch\n"
        "from wcgan.export.hub import PretrainedGenerator\n\n"
        'generator = PretrainedGenerator.from_pretrained("FOLDER OR REPOSITORY")\n'
        f"images = generator(torch.randn(16, {sampler.config.noise}){labels})  # in [-1, 1]"
    )


def _figures(run: Run, sampler: Sampler) -> str:
    """The run's last evaluation of this state of the generator."""
    found = [v for v in run.lines() if v["kind"] == "evaluation" and v["iteration"] == sampler.iteration]
    if not found:
        return "This state of the generator was not evaluated."
    scores: dict[str, Any] = {k: v for k, v in found[-1].items() if k not in ("kind", "iteration")}
    if "protocol" not in scores:
        known = [(name, str(value)) for name, value in scores.items()]
        table = rows_to_markdown(("metric", "value"), known)
        return "\n".join([*table, "", "The protocol was not recorded."])
    heads, rows, sentences = scores_to_rows(scores)
    return "\n\n".join(["\n".join(rows_to_markdown(heads, rows)), *filter(None, sentences)])


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.strip()}\n```"
