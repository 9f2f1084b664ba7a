"""What a model hub shows of a generator."""

from collections.abc import Sequence
from typing import Any

from wcgan.report import scores_to_rows
from wcgan.train import Run, Sampler
from wcgan.train.config import config_to_yaml

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
        return f"{_table(('metric', 'value'), known)}\n\nThe protocol was not recorded."
    heads, rows, sentences = scores_to_rows(scores)
    return "\n\n".join([_table(heads, rows), *filter(None, sentences)])


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, ["---"] * len(heads), *rows))


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.strip()}\n```"
