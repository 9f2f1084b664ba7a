"""A generator with `save_pretrained`, `from_pretrained` and `push_to_hub`; needs `wcgan[export]`."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

try:
    from huggingface_hub import ModelCard, ModelCardData, PyTorchModelHubMixin
except ImportError as error:
    raise ImportError(f"a model hub's folder needs more packages: pip install 'wcgan[export]' ({error})") from error

from wcgan.export.card import SAMPLES, run_to_card
from wcgan.export.weights import check_same
from wcgan.nets import Generator
from wcgan.train import Run, Sampler
from wcgan.train.images import grid, scale_to_show, write_png
from wcgan.train.progress import OnProgress

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
