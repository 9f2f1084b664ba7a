"""A folder that a model hub accepts as it is: weights, config, samples and a model card. Needs `wcgan[export]`."""

import dataclasses
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from torch import Tensor

from wcgan.core.config import config_to_yaml
from wcgan.core.images import grid, scale_to_show, write_png
from wcgan.core.terminal import OnProgress, counted, rows_to_markdown
from wcgan.export.export import write_state
from wcgan.nets import Generator, GeneratorConfig
from wcgan.report import scores_to_rows
from wcgan.report.read import protocol_key
from wcgan.runs.folder import Line, Run
from wcgan.runs.pretrained import WEIGHTS
from wcgan.runs.sampler import Classes, Sampler

try:
    from huggingface_hub import ModelCard, ModelCardData, PyTorchModelHubMixin
except ImportError as error:
    raise ImportError(f"the hub format needs more packages: pip install 'wcgan[export]' ({error})") from error

SAMPLES = "samples.png"
_COLUMNS = 10


class PretrainedGenerator(Generator, PyTorchModelHubMixin):
    """A generator with the methods of a model hub.

    `save_pretrained(folder)` writes `model.safetensors`, `config.json` and a model card. `from_pretrained` loads such a
    folder without a network, or a repository by its name. `push_to_hub(name)` uploads. Shapes are those of
    `wcgan.nets.Generator`.

    Args:
        config: the generator's config, kept as `config`.
        class_names: names of the classes, kept as `class_names` and stored in `config.json`.

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
    """Text of the model card; empty for a short one."""

    def __init__(self, config: GeneratorConfig, class_names: Sequence[str] = ()) -> None:
        super().__init__(config)
        self.class_names = tuple(class_names)
        self._hub_mixin_config = dataclasses.asdict(config) | {"class_names": list(class_names)}

    def sample(self, count: int = 64, classes: Classes | None = None, seed: int = 0, truncation: float = 1.0) -> Tensor:
        """Images `(count, C, H, W)` uint8, as `Sampler.sample` draws them."""
        return Sampler(self, self.class_names).sample(count, classes, seed, truncation)

    def _save_pretrained(self, save_directory: Path) -> None:
        """Writes the weights; the mixin's own way makes a file that nobody but its owner can read."""
        write_state(self, save_directory / WEIGHTS)

    @classmethod
    def _from_pretrained(cls, *, strict: bool = True, **options: Any) -> "PretrainedGenerator":
        """Like the mixin's, but a missing tensor is an error and nothing is printed."""
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


def write_hub(sampler: Sampler, run: Run, folder: Path, progress: OnProgress) -> Generator:
    """Writes the folder -> the generator read back from it."""
    generator = PretrainedGenerator(sampler.config, sampler.class_names)
    generator.load_state_dict(sampler.network.state_dict())
    generator.card = run_to_card(run, sampler)
    images = sampler.rows(_COLUMNS)
    write_png(grid(images, _COLUMNS), folder / SAMPLES, scale_to_show(images.shape[-1]))
    progress("writing", 1, 2)
    generator.eval().save_pretrained(folder)
    progress("writing", 2, 2)
    return PretrainedGenerator.from_pretrained(folder)


_CITATION = """@inproceedings{siarohin2019whitening,
  title     = {Whitening and Coloring Batch Transform for {GANs}},
  author    = {Siarohin, Aliaksandr and Sangineto, Enver and Sebe, Nicu},
  booktitle = {International Conference on Learning Representations},
  year      = {2019}
}"""


def run_to_card(run: Run, sampler: Sampler) -> str:
    """The model card in Markdown: samples, usage, scores with their protocol, config, citation and licence."""
    config = run.config().without_paths()
    made = sampler.config
    sections = {
        "Use": _fenced("python", _use(sampler)),
        "Scores": _scores(run, sampler),
        "Config": _fenced("yaml", config_to_yaml(config)),
        "Citation": _fenced("bibtex", _CITATION),
        "Licence": "MIT, like the library. The training images have terms of their own.",
    }
    if sampler.class_names:
        sections["Classes"] = "\n".join(f"{number}. {name}" for number, name in enumerate(sampler.class_names))
    title = f"{made.normalization} generator for {config.data.name}, {made.resolution} x {made.resolution}"
    lead = (
        f"A {made.kind} generator with {made.normalization} normalisation (whitening and coloring batch transform), "
        f"trained for {counted(sampler.iteration or 0, 'iteration')}."
    )
    body = "\n\n".join(f"## {name}\n\n{text}" for name, text in sections.items())
    return f"# {title}\n\n{lead}\n\n![Samples]({SAMPLES})\n\n{body}\n"


def _use(sampler: Sampler) -> str:
    one, labels = ("classes=0, ", ", torch.zeros(16, dtype=torch.int64)") if sampler.conditional else ("", "")
    return (
        "import torch\n"
        "from wcgan.export.hub import PretrainedGenerator\n\n"
        'generator = PretrainedGenerator.from_pretrained("FOLDER OR REPOSITORY")\n'
        f"pixels = generator.sample(16, {one}seed=0)  # uint8\n"
        f"images = generator(torch.randn(16, {sampler.config.noise}){labels})  # in [-1, 1]"
    )


def _scores(run: Run, sampler: Sampler) -> str:
    """The scores of the evaluations at this iteration: the last under each protocol, with the protocol."""
    lines = [v for v in run.lines() if v["kind"] == "evaluation" and v["iteration"] == sampler.iteration]
    found = {protocol_key(line): line for line in lines}
    return "\n\n".join(map(_evaluation_to_text, found.values())) or "This checkpoint was not evaluated."


def _evaluation_to_text(line: Line) -> str:
    scores = {k: v for k, v in line.items() if k not in ("kind", "iteration")}
    if "protocol" not in scores:
        known = [(name, str(value)) for name, value in scores.items()]
        table = rows_to_markdown(("metric", "value"), known)
        return "\n".join([*table, "", "The protocol was not recorded."])
    heads, rows, sentences = scores_to_rows(scores)
    return "\n\n".join(["\n".join(rows_to_markdown(heads, rows)), *filter(None, sentences)])


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.strip()}\n```"
