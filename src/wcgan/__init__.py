"""Whitening and coloring layers for PyTorch, drop-in replacements for batch normalisation.

The layers are in `wcgan.norm`, their maths in `wcgan.functional`, GAN networks in `wcgan.nets`.
"""

import os
from typing import TYPE_CHECKING

from wcgan import functional
from wcgan.norm import (
    VARIANTS,
    ConditionalWhiteningColoring1d,
    ConditionalWhiteningColoring2d,
    ConditionalWhiteningColoring3d,
    LazyConditionalWhiteningColoring1d,
    LazyConditionalWhiteningColoring2d,
    LazyConditionalWhiteningColoring3d,
    LazyWhiteningColoring1d,
    LazyWhiteningColoring2d,
    LazyWhiteningColoring3d,
    WhiteningColoring1d,
    WhiteningColoring2d,
    WhiteningColoring3d,
    convert_batchnorm,
    fold,
    freeze_statistics,
    normalization,
    update_statistics,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    import torch
    from torch import Tensor, nn

    from wcgan.data import Dataset
    from wcgan.runs.config import Config
    from wcgan.runs.pretrained import Model
    from wcgan.runs.sampler import Sampler
    from wcgan.train import Callback

__version__ = "0.1.0"
__all__ = [
    "VARIANTS",
    "ConditionalWhiteningColoring1d",
    "ConditionalWhiteningColoring2d",
    "ConditionalWhiteningColoring3d",
    "LazyConditionalWhiteningColoring1d",
    "LazyConditionalWhiteningColoring2d",
    "LazyConditionalWhiteningColoring3d",
    "LazyWhiteningColoring1d",
    "LazyWhiteningColoring2d",
    "LazyWhiteningColoring3d",
    "WhiteningColoring1d",
    "WhiteningColoring2d",
    "WhiteningColoring3d",
    "__version__",
    "convert_batchnorm",
    "fit",
    "fold",
    "freeze_statistics",
    "functional",
    "load",
    "models",
    "normalization",
    "update_statistics",
]


def load(
    source: str | os.PathLike[str], checkpoint: str | int = "last", device: "str | torch.device" = "auto"
) -> "Sampler":
    """Loads a trained generator, ready to sample.

    Needs `pip install 'wcgan[train]'`, but not the training data.

    Args:
        source: the folder of a run, a file in its `checkpoints`, a folder that `wcgan export` wrote in the format
            `safetensors` or `hub`, the name of a shipped generator (see `models`), or `OWNER/NAME` of one on the
            Hugging Face hub, which needs `wcgan[export]`. A path that exists comes first.
        checkpoint: for a run, `"last"`, `"best"` (lowest FID, if the run was evaluated) or the number of an iteration.
        device: `"auto"`, `"cpu"`, `"cuda"` or `"cuda:N"`, or a `torch.device`.

    Returns:
        A `Sampler`, whose `sample` and `interpolate` return images.

    Shape:
        `sample(n)` returns `(n, channels, resolution, resolution)`, uint8.

    Raises:
        ImportError: if the packages of `wcgan[train]` are not installed.
        TypeError: if the source is neither a name nor a path.
        ValueError: if there is no such generator, or no such checkpoint.

    Example:
        ```python
        import wcgan

        generator = wcgan.load("cifar10-cWC")
        images = generator.sample(64, classes="cat", seed=1)  # (64, 3, 32, 32) uint8
        film = generator.interpolate(24, classes=("cat", "dog"))  # (24, 8, 3, 32, 32) uint8
        ```
    """
    try:
        from wcgan.norm._base import check_types
        from wcgan.runs.sampler import load_generator
    except ImportError as error:
        raise ImportError(f"wcgan.load needs the training packages: pip install 'wcgan[train]' ({error})") from error
    check_types(str | os.PathLike, "a name or a path", source=source)
    return load_generator(os.fspath(source), checkpoint, str(device))


def fit(
    config: "str | os.PathLike[str] | Config | None" = None,
    data: "str | os.PathLike[str] | Dataset | None" = None,
    out: str | os.PathLike[str] | None = None,
    *,
    settings: "Mapping[str, Any] | None" = None,
    callbacks: "Sequence[Callback]" = (),
    loss: "tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]] | None" = None,
    generator: "nn.Module | None" = None,
    discriminator: "nn.Module | None" = None,
    origin: str | os.PathLike[str] | None = None,
    resume: bool = False,
    stop_at: int | None = None,
    accept_config: bool = False,
    inception_weights: str | os.PathLike[str] | None = None,
) -> "Sampler":
    """Trains a GAN into a run folder, as `wcgan train` does, and returns its generator.

    Needs `pip install 'wcgan[train]'`.

    Args:
        config: the name of a preset (`wcgan presets` lists them), the `Path` of a `config.yaml`, or a
            `wcgan.runs.Config`. None for the run's own with `resume`; else for the preset `folder` if there is `data`,
            and for the digits that come with the package if not.
        data: the name of a dataset, a folder of images, or a `wcgan.data.Dataset`, such as one from
            `wcgan.data.from_tensors`; None for the config's own.
        out: the run folder, which must be new or empty; None for a folder in `runs`, named after data and preset.
        settings: single fields of the config, such as `{"train.iterations": 1000}`.
        callbacks: called with metrics, images and checkpoints as the training goes on; see `wcgan.train.Callback`.
        loss: your own losses: a function of the scores of real and of generated images for the discriminator, and one
            of the scores of generated images for the generator.
        generator: your own network, trained in place: noise `(N, noise)`, and labels if the config has classes, to
            images in [-1, 1] of the data's size.
        discriminator: your own network, trained in place: images, and labels if the config has a projection head, to
            scores `(N,)`.
        origin: a run, or the name of a shipped generator, whose weights a new run starts with.
        resume: whether to continue the run in `out`, if there is one. Give the same networks and loss again.
        stop_at: an iteration to end at before the last.
        accept_config: whether to continue although `config.yaml` was changed since the last checkpoint.
        inception_weights: a file with the weights of the Inception network, for scores; None for the one in
            `WCGAN_INCEPTION_WEIGHTS`, if any.

    Returns:
        A `Sampler` with the weights of the last checkpoint. For the package's networks, `wcgan.load(out)` is the same.

    Raises:
        ImportError: if the packages of `wcgan[train]` are not installed.
        TypeError: for an argument of another type, such as a tensor as data, a class as a network, or losses that
            cannot be called.
        ValueError: for an unknown preset or setting, data that does not fit, or an `out` that is not empty.
        KeyboardInterrupt: after a checkpoint, if the training was interrupted.

    Example:
        ```python
        import wcgan
        from wcgan.train import Callback


        class Print(Callback):
            def on_metrics(self, iteration, values):
                print(iteration, values)


        generator = wcgan.fit("folder", "PICTURES", "runs/mine", callbacks=[Print()])
        images = generator.sample(64, classes=3, seed=1)
        ```
    """
    import json
    from collections import abc
    from numbers import Integral, Real
    from pathlib import Path

    try:
        from wcgan import report, train
        from wcgan.core.options import naming_arguments
        from wcgan.data import Dataset
        from wcgan.norm._base import check_module, check_types
        from wcgan.paper.presets import dataset_to_config, default_folder, find_config
        from wcgan.runs.config import Config, change
        from wcgan.runs.folder import Run, is_begun
        from wcgan.runs.sampler import load_generator
    except ImportError as error:
        raise ImportError(f"wcgan.fit needs the training packages: pip install 'wcgan[train]' ({error})") from error
    if origin is not None and (generator is not None or discriminator is not None):
        raise ValueError("origin is for the package's networks: load the weights into yours before you call wcgan.fit")
    preset_or_file = "the name of a preset, the path of a config.yaml or a wcgan.runs.Config"
    check_types(str | os.PathLike | Config | None, preset_or_file, config=config)
    check_types(str | os.PathLike | None, "a path", out=out, origin=origin, inception_weights=inception_weights)
    check_types(abc.Mapping | None, 'a mapping, such as {"train.iterations": 1000}', settings=settings)
    check_types(Integral | None, "an iteration", stop_at=stop_at)
    for player, network in {"generator": generator, "discriminator": discriminator}.items():
        if network is not None:
            check_module(player, network)

    def as_json(value: "Any") -> "Any":
        if isinstance(value, Real):  # of NumPy
            return int(value) if isinstance(value, Integral) else float(value)
        return os.fspath(value)

    changed = []
    for field, value in (settings or {}).items():
        try:
            changed.append(f"{field}={json.dumps(value, default=as_json)}")
        except TypeError:
            raise TypeError(f"{field} must be a number, a text, a list, a mapping or a path, got {value!r}") from None
    if not isinstance(callbacks, list | tuple) or not all(isinstance(each, train.Callback) for each in callbacks):
        raise TypeError(f"callbacks must be a list of wcgan.train.Callback objects, got {callbacks!r}")
    if loss is not None and not (isinstance(loss, list | tuple) and len(loss) == 2 and all(map(callable, loss))):
        raise TypeError(f"loss must be two functions, the discriminator's and the generator's, got {loss!r}")
    images = None if data is None or isinstance(data, str | os.PathLike) else data
    if images is not None and not isinstance(images, Dataset):
        raise TypeError(
            f"data must be a name, a folder or a wcgan.data.Dataset, got {type(images).__name__}: "
            "wcgan.data.from_tensors(images, labels, classes) makes one from tensors"
        )
    place = os.fspath(data) if isinstance(data, str | os.PathLike) else None if images is None else images.name
    source = None if origin is None else os.fspath(origin)
    with naming_arguments():
        name, file = (config, None) if isinstance(config, str) else (None, config)
        if config is None and resume and out is not None and (is_begun(Path(out)) or not (place or source)):
            file = Run(Path(out)).config()
        if isinstance(file, Config):
            config = change(file, place, settings=changed)
        elif images is not None and file is None and source is None:
            config = dataset_to_config(name, images, changed)
        else:
            config = find_config(name, None if file is None else Path(file), source, place, settings=changed)
        folder = default_folder(name, config, place) if out is None else Path(out)
        adversarial = None if loss is None else train.AdversarialLoss(*loss)
        custom = train.Custom(callbacks, adversarial, generator, discriminator)
        weights = None if inception_weights is None else Path(inception_weights)
        outcome = train.start(config, folder, resume, stop_at, accept_config, source, weights, images, custom)
        if outcome.first_process:
            report.write_report([folder], folder / "report.html")
        if outcome.stopped_by is not None:
            raise KeyboardInterrupt(f"stopped at iteration {outcome.iteration} by signal {outcome.stopped_by}")
        return load_generator(folder) if generator is None else train.load_own_generator(folder, generator)


def models() -> "tuple[Model, ...]":
    """Lists the generators that come with the package: classes, size, FID, licence, and the command that made each.

    Needs `pip install 'wcgan[train]'`.

    Raises:
        ImportError: if the packages of `wcgan[train]` are not installed.

    Example:
        >>> import wcgan
        >>> [(model.name, model.image, round(model.fid or 0, 1)) for model in wcgan.models()]
        [('cifar10-best', (3, 32, 32), 8.8), ('cifar10-cWC', (3, 32, 32), 13.3), ('digits-cWC_sa', (1, 16, 16), 0)]
    """
    try:
        from wcgan.runs.pretrained import shipped_models
    except ImportError as error:
        raise ImportError(f"wcgan.models needs the training packages: pip install 'wcgan[train]' ({error})") from error
    return shipped_models()
