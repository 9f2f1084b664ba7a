"""Creates a study: draws paired image sets and attention checks from two runs or folders of images."""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from wcgan.core.device import random_generator
from wcgan.core.files import require_new, written_whole
from wcgan.core.images import grid, pixels_to_image
from wcgan.core.terminal import counted, printable
from wcgan.data.decode import decode, fit, read_shape, reason
from wcgan.data.folder import list_classes
from wcgan.runs.pretrained import is_exported
from wcgan.runs.sampler import Sampler, load_generator
from wcgan.web.study import config
from wcgan.web.study.config import FILE, Pair, Study, check_count, picture_file, study_to_yaml

CLASSES, IMAGES, CHECKS = 50, 16, 4
MOST_BYTES = 16 << 20  # pixels of a set
RESIZE = "crop and resize all with --resolution"
_VISIBLE = 16  # grey levels by which a broken image must differ from an intact one


def create_study(
    a: Path,
    b: Path,
    out: Path,
    classes: int | None = None,
    images: int = IMAGES,
    checks: int = CHECKS,
    seed: int = 0,
    resolution: int | None = None,
    checkpoint: str = "last",
    device: str = "auto",
    title: str = config.TITLE,
    question: str = config.QUESTION,
    consent: str = config.CONSENT,
    most_participants: int = 1000,
) -> Study:
    """Draws paired image sets of the same classes and writes them to a new folder, completely or not at all.

    Args:
        a: a run, or a folder with a sub-folder per class.
        b: another; the report gives the preference for this one.
        out: the folder of the study, which must be new or empty.
        classes: number of classes, one pair each; None for 50, or for all common classes if fewer.
        images: number of images in a set.
        checks: number of attention checks, additional pairs in which one side is noise or one colour.
        seed: the same seed draws the same classes and images.
        resolution: side to crop and resize all images to; None if they have one size.
        checkpoint: for runs, `"last"`, `"best"` or the number of an iteration.
        device: for runs, `"auto"`, `"cpu"`, `"cuda"` or `"cuda:N"`.
        title: title of the pages.
        question: question above every pair.
        consent: text that a participant agrees to; an empty line begins a paragraph.
        most_participants: how many people can join.

    Raises:
        ValueError: for a value out of range, too few classes in common, images that differ in size, or an `out` that
            is not empty.
    """
    check_count("images", images, 1, config.MOST_IMAGES)
    check_count("checks", checks, config.LEAST_CHECKS, config.MOST_CHECKS)
    if classes is not None:
        check_count("classes (--pairs)", classes, 1, config.MOST_CLASSES)
    if resolution is not None:
        check_count("resolution", resolution, 1, 1024)
    require_new(out)
    names = _names(a, b)
    sides = [open_images(path, checkpoint, device) for path in (a, b)]
    labels = _choose_classes(sides, classes, images, seed)
    drawn = [
        [_bounded(side.draw(label, images, seed_for(seed, label, number), resolution)) for label in labels]
        for number, side in enumerate(sides)
    ]
    sets = _of_one_form(drawn, (a, b))
    shown = [(label, first, second, False) for label, first, second in zip(labels, *sets, strict=True)]
    shown += [(labels[place], *pair, True) for place, pair in _draw_checks(sets, checks, seed)]
    pairs = [Pair(label, secrets.token_hex(16), secrets.token_hex(16), check) for label, _, _, check in shown]
    study = Study(
        key=secrets.token_hex(16),
        join=secrets.token_urlsafe(16),
        seed=seed,
        a=names[0],
        b=names[1],
        images=images,
        pairs=tuple(pairs),
        title=title,
        question=question,
        consent=consent,
        most_participants=most_participants,
    )
    pictures: dict[str, Tensor] = {}
    for pair, (_, first, second, _) in zip(pairs, shown, strict=True):
        pictures |= {pair.a: first, pair.b: second}
    _write(out, study, pictures)
    return study


def _names(a: Path, b: Path) -> tuple[str, str]:
    """Names of the sides: those of the folders, or their paths if the names are equal."""
    if a.resolve() == b.resolve():
        raise ValueError(f"both sides are {a}: name two runs or two folders")
    short = a.resolve().name, b.resolve().name
    first, second = short if short[0] != short[1] else (str(a), str(b))
    return printable(first), printable(second)


def _choose_classes(sides: Sequence[Images], classes: int | None, images: int, seed: int) -> list[str]:
    """Draws classes that have enough images on both sides."""
    first, second = (side.available for side in sides)
    common = [name for name in first if name in second]
    if not common:
        examples = [f"{side.path} has {', '.join(list(side.available)[:3])}" for side in sides]
        raise ValueError(f"the two sides have no class in common: {'; '.join(examples)}")
    counts = {name: [n for n in (first[name], second[name]) if n is not None] for name in common}
    enough = [name for name in common if min(counts[name], default=images) >= images]
    wanted = min(CLASSES, len(enough)) if classes is None else classes
    if not enough or wanted > len(enough):
        raise ValueError(
            f"{counted(max(wanted, 1), 'class')} with {counted(images, 'image')} on both sides are needed; "
            f"there are {len(enough)} ({len(common)} in common): lower --pairs or --images"
        )
    return random.Random(seed_for(seed, "classes")).sample(enough, wanted)


def _bounded(images: Tensor) -> Tensor:
    """The images, if they are not too many for a browser to load."""
    if images.numel() > MOST_BYTES:
        count, _, height, width = images.shape
        raise ValueError(
            f"{count} images of {width}x{height} make a picture of {images.numel() / 2**20:.0f} MiB; the limit is "
            f"{MOST_BYTES >> 20} MiB: {RESIZE}, or lower --images"
        )
    return images


def _of_one_form(drawn: Sequence[Sequence[Tensor]], paths: Sequence[Path]) -> list[list[Tensor]]:
    """Sets with the same size and number of channels, so that the shape of a picture does not reveal its side."""
    sizes = {
        f"{images.shape[3]}x{images.shape[2]} ({path})"
        for path, own in zip(paths, drawn, strict=True)
        for images in own
    }
    if len({size.split(" ")[0] for size in sizes}) > 1:
        raise ValueError(f"the images have several sizes, {' and '.join(sorted(sizes)[:3])}: {RESIZE}")
    channels = max(images.shape[1] for own in drawn for images in own)
    return [[images.expand(-1, channels, -1, -1) for images in own] for own in drawn]


def _draw_checks(sets: Sequence[Sequence[Tensor]], checks: int, seed: int) -> list[tuple[int, tuple[Tensor, Tensor]]]:
    """For each check: the place of a class, and an intact and a broken set of it; the sides take turns."""
    chance = random.Random(seed_for(seed, "checks"))
    turn, found = chance.randrange(2), []
    for number in range(checks):
        place = chance.randrange(len(sets[0]))
        intact = sets[(turn + number) % 2][place]
        found.append((place, (intact, _broken(intact, number // 2 % 2 == 1, seed_for(seed, "check", number)))))
    return found


def _broken(images: Tensor, plain: bool, seed: int) -> Tensor:
    """Clearly worse images: one colour each if `plain` (and if that differs from the originals), else noise."""
    one_colour = images.double().mean((2, 3), keepdim=True).round().to(torch.uint8).expand(images.shape)
    if plain and (images.double() - one_colour).abs().mean() >= _VISIBLE:
        return one_colour
    return torch.randint(256, images.shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def _write(out: Path, study: Study, sets: dict[str, Tensor]) -> None:
    """Writes the folder in one step; only its owner may read it, since it has the answers."""
    with written_whole(out) as temporary:
        temporary.chmod(0o700)
        picture_file(temporary, "").parent.mkdir()
        for name, images in sets.items():
            _write_picture(images, picture_file(temporary, name))
        (temporary / FILE).write_text(study_to_yaml(study), encoding="utf-8")


def _write_picture(images: Tensor, file: Path) -> None:
    """Writes a set as one picture. It is not compressed: the size of the file would reveal smooth images."""
    picture = grid(images, columns=math.ceil(len(images) ** 0.5))
    pixels_to_image(picture).save(file, compress_level=0)


class Images(Protocol):
    """A source of images for one side of a study."""

    path: Path
    available: Mapping[str, int | None]
    """Classes by name, each with its number of images; None if unlimited."""

    def draw(self, label: str, count: int, seed: int, resolution: int | None) -> Tensor:
        """`(count, C, H, W)` uint8, all different; the same seed gives the same ones."""


def open_images(path: Path, checkpoint: str = "last", device: str = "auto") -> Images:
    """The images of a run, of an exported generator, or of a folder.

    Raises:
        ValueError: if the path is neither, or has no classes.
    """
    if not path.is_dir():
        raise ValueError(f"{path} does not exist; name the folder of a run, or one with a sub-folder per class")
    if (path / "config.yaml").is_file() or is_exported(path):
        return RunImages(path, load_generator(path, checkpoint, device))
    return FolderImages(path)


class RunImages:
    """Images that a conditional generator draws."""

    def __init__(self, path: Path, sampler: Sampler) -> None:
        number = sampler.config.classes
        if not sampler.conditional or number is None:
            raise ValueError(f"{path} has no classes (its generator has {sampler.config.normalization})")
        self.path, self.sampler = path, sampler
        names = sampler.class_names or tuple(map(str, range(number)))
        self.labels = {name: label for label, name in enumerate(names)}
        self.available: Mapping[str, int | None] = dict.fromkeys(names)

    def draw(self, label: str, count: int, seed: int, resolution: int | None) -> Tensor:
        """Images of a class, drawn by the generator."""
        images = self.sampler.sample(count, self.labels[label], seed)
        return images if resolution is None else torch.from_numpy(fit(images.numpy(), resolution, images.shape[1]))


class FolderImages:
    """Images in a folder with a sub-folder per class."""

    def __init__(self, path: Path) -> None:
        files, labels, classes = list_classes(path)
        if labels is None:
            raise ValueError(f"{path} has images but no classes: put them in a sub-folder per class")
        self.path = path
        self.files: dict[str, list[str]] = {name: [] for name in classes}
        for file, label in zip(files, labels.tolist(), strict=True):
            self.files[classes[label]].append(file)
        self.available: Mapping[str, int | None] = {name: len(found) for name, found in self.files.items()}

    def draw(self, label: str, count: int, seed: int, resolution: int | None) -> Tensor:
        """Images of files that the seed chooses, in colour if any of them is."""
        files = random.Random(seed).sample(self.files[label], count)
        try:
            channels = 1 if all(read_shape(self.path / file).grey for file in files) else 3
            images = [decode(self.path / file, resolution, channels) for file in files]
        except Exception as error:  # a damaged file can make a decoder raise anything
            raise ValueError(f"an image of {self.path / label} cannot be read: {reason(error)}") from None
        sizes = sorted({f"{image.shape[2]}x{image.shape[1]}" for image in images})
        if len(sizes) > 1:
            raise ValueError(f"images in {self.path / label} have several sizes, {' and '.join(sizes)}: {RESIZE}")
        return torch.from_numpy(np.stack(images))


def seed_for(seed: int, *purpose: object) -> int:
    """An independent seed for each purpose."""
    return random_generator(seed, "/".join(map(str, ("study", *purpose))), 0).initial_seed()
