"""ImageNet (ILSVRC 2012) and Tiny ImageNet, from their official folders.

Split `test` is their validation set; `unlabeled` is Tiny ImageNet's test set, whose classes are not published.
"""

import csv
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from wcgan.core.reading import parse_json, read_bytes, read_text
from wcgan.core.terminal import printable, shown
from wcgan.data.decode import decode_all
from wcgan.data.folder import list_images
from wcgan.data.pack import Recipe
from wcgan.data.sources import Source

_DEVKIT = "ILSVRC2012_devkit_t12/data"
_PATIENCE = 120  # seconds
_READ_SYNSETS = """
import io, json, sys
from scipy.io import loadmat
synsets = loadmat(io.BytesIO(sys.stdin.buffer.read()), squeeze_me=True)["synsets"]
print(json.dumps([(int(s["ILSVRC2012_ID"]), str(s["WNID"]), str(s["words"])) for s in synsets.reshape(-1)]))
"""
_MOST_LISTED = 1 << 26  # bytes in an official list; the largest has a third of this


def imagenet_to_recipe(
    source: Source, folder: Path, split: str, resolution: int, channels: int, verify: bool
) -> Recipe:
    """List the images of a split with their classes.

    Args:
        source: `imagenet` or `tiny-imagenet`.
        folder: the folder with `train` and `val`.
        split: `train`, `test` or, for `tiny-imagenet`, `unlabeled`.
        resolution: height and width of the result.
        channels: channels of the result, 1 or 3.
        verify: whether the numbers of classes and images must be those of the official set.

    Raises:
        FileNotFoundError: if a folder or file is missing.
        ValueError: if a file names an unknown class, or the counts differ.
    """
    tiny = source.name == "tiny-imagenet"
    wnids = _lines(folder / "wnids.txt") if tiny else _folder_names(folder / "train")
    _require_names(wnids, folder / "wnids.txt")
    pairs: list[tuple[str, str]]
    read_too: list[Path] = []
    if split == "unlabeled":
        if not (folder / "test/images").is_dir():
            raise FileNotFoundError(f"{folder} lacks the folder test/images; unpack the dataset again")
        pairs = [(file, "") for file in list_images(folder, "test/images")]
    elif split == "train":
        pairs = [(file, wnid) for wnid in wnids for file in list_images(folder, f"train/{wnid}")]
    else:
        pairs, read_too = _tiny_validation(folder) if tiny else _validation(folder, wnids)
    index = {wnid: label for label, wnid in enumerate(wnids)}
    labelled = split != "unlabeled"
    unknown = next((wnid for _, wnid in pairs if labelled and wnid not in index), None)
    if unknown is not None:
        raise ValueError(f"{source.name} {split} in {folder} has class {unknown[:40]}, which its training set has not")
    if verify and (len(wnids), len(pairs)) != (source.class_count, source.counts[split]):
        raise ValueError(
            f"{source.name} {split} in {folder} has {len(pairs):,} images of {len(wnids):,} classes where the official "
            f"set has {source.counts[split]:,} of {source.class_count:,}; unpack it again, or pass verify=False"
        )
    if not pairs:
        raise ValueError(f"{source.name} {split} in {folder} has no images; unpack it again")
    files = [file for file, _ in pairs]
    labels = np.array([index[wnid] for _, wnid in pairs], np.int64) if labelled else None
    size = (resolution, resolution)
    return Recipe(
        root=folder,
        files=[*files, *map(str, read_too)],
        count=len(files),
        classes=_class_names(wnids, _words(folder)) if labelled else (),
        options=(source.name, split, resolution, channels, verify),
        chunks=partial(decode_all, folder, files, labels, size, resolution, channels, upright=False),
    )


def _tiny_validation(folder: Path) -> tuple[list[tuple[str, str]], list[Path]]:
    annotations = folder / "val/val_annotations.txt"
    rows = [line.split("\t") for line in _lines(annotations)]
    short = next((row for row in rows if len(row) < 2), None)
    if short is not None:
        raise ValueError(f"{annotations} has a line {short[0]!r} without a class; unpack it again")
    _require_names((row[0] for row in rows), annotations)
    return [(f"val/images/{row[0]}", row[1]) for row in rows], [annotations]


def _validation(folder: Path, wnids: Sequence[str]) -> tuple[list[tuple[str, str]], list[Path]]:
    """The validation images: in a folder per class, or in one folder with their classes in an official list."""
    if not (folder / "val").is_dir():
        raise FileNotFoundError(f"{folder} lacks the folder val; unpack ILSVRC2012_img_val.tar there")
    classes = [name for name in _folder_names(folder / "val") if not name.startswith(".")]
    if classes:
        return [(file, wnid) for wnid in classes for file in list_images(folder, f"val/{wnid}")], []
    files = list_images(folder, "val")
    truth = _beside(folder, f"{_DEVKIT}/ILSVRC2012_validation_ground_truth.txt")
    synsets = _beside(folder, f"{_DEVKIT}/meta.mat")
    if truth is not None and synsets is not None:
        numbers = {str(number): wnid for number, wnid, _ in _devkit_synsets(synsets)}
        values = [numbers.get(line.strip(), line) for line in _lines(truth)]
        if len(values) != len(files):
            raise ValueError(f"{folder / 'val'} has {len(files):,} images where {truth} has {len(values):,} classes")
        return list(zip(files, values, strict=True)), [truth, synsets]
    solution = _beside(folder, "LOC_val_solution.csv")
    if solution is not None:
        try:
            rows = csv.DictReader(_lines(solution))
            found = {row["ImageId"]: row["PredictionString"].split()[0] for row in rows}
        except (LookupError, AttributeError, csv.Error):
            raise ValueError(f"{solution} lacks ImageId or PredictionString in a row; get it again") from None
        missing = next((name for name in files if Path(name).stem not in found), None)
        if missing is not None:
            raise ValueError(f"{solution} does not name the class of {missing}")
        return [(name, found[Path(name).stem]) for name in files], [solution]
    raise FileNotFoundError(
        f"the classes of the images in {folder / 'val'} are not known; unpack ILSVRC2012_devkit_t12.tar.gz beside it, "
        "or move the images into a sub-folder per class"
    )


def _words(folder: Path) -> dict[str, str]:
    """Class identifier -> words, from the first official file that exists."""
    for name, separator in (("words.txt", "\t"), ("LOC_synset_mapping.txt", " ")):
        path = _beside(folder, name)
        if path is not None:
            return {wnid: words for wnid, _, words in (line.partition(separator) for line in _lines(path))}
    synsets = _beside(folder, f"{_DEVKIT}/meta.mat")
    return {} if synsets is None else {wnid: words for _, wnid, words in _devkit_synsets(synsets)}


def _class_names(wnids: Sequence[str], words: Mapping[str, str]) -> tuple[str, ...]:
    """The first word of each class, with the identifier if two classes share it."""
    names = [words.get(wnid, wnid).split(",")[0].strip() for wnid in wnids]
    times = Counter(names)
    pairs = zip(names, wnids, strict=True)
    return tuple(printable(name if times[name] == 1 else f"{name} ({wnid})") for name, wnid in pairs)


def _devkit_synsets(path: Path) -> list[tuple[int, str, str]]:
    """Number, identifier and words of each class, from a MATLAB file.

    SciPy reads it in a separate process, because a damaged file can crash the process.
    """
    content = read_bytes(path, _MOST_LISTED)
    command = [sys.executable, "-W", "ignore", "-c", _READ_SYNSETS]
    try:
        done = subprocess.run(command, input=content, capture_output=True, timeout=_PATIENCE, check=True)
        return [(int(number), str(wnid), str(words)) for number, wnid, words in parse_json(done.stdout)]
    except (subprocess.SubprocessError, ValueError, TypeError):
        raise ValueError(f"{path} is not the publisher's list of classes; get it again") from None


def _beside(folder: Path, name: str) -> Path | None:
    """A file in the folder or in one of the three above it."""
    return next((home / name for home in (folder, *folder.parents[:3]) if (home / name).is_file()), None)


def _folder_names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir())


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} lacks {path.name}; unpack the dataset again")
    return [line for line in read_text(path, _MOST_LISTED).splitlines() if line.strip()]


def _require_names(names: Iterable[str], file: Path) -> None:
    """Raises ValueError for a name that would lead out of its folder."""
    wrong = next((name for name in names if name in (".", "..") or "/" in name or os.sep in name or "\0" in name), None)
    if wrong is not None:
        raise ValueError(f"{file} has {shown(wrong)} where a name in a folder stands; unpack the dataset again")
