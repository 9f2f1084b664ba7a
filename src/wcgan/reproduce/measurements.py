"""What `wcgan reproduce` makes besides tables of runs: pictures, times, the user study, the architectures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from wcgan.core.device import find_hardware
from wcgan.core.files import write_atomically
from wcgan.core.reading import parse_json, read_bytes
from wcgan.core.terminal import rows_to_markdown
from wcgan.paper.listing import architectures_to_lines
from wcgan.paper.tables import USER_STUDY, Judgement, canonical_name
from wcgan.reproduce.experiments import EXPERIMENTS
from wcgan.reproduce.overhead import ITERATIONS, SECONDS, WHITENINGS, measure_and_write, overhead_configs
from wcgan.reproduce.plan import folders_of
from wcgan.runs.checkpoint import MOST_FACTS
from wcgan.runs.grids import PLAIN, write_grids, write_picture
from wcgan.runs.sampler import load_generator

Say = Callable[[str], None]
Make = Callable[[Path, Sequence[str], bool, Say], None]
"""Takes the folder of all tables, settings, whether only to say what would be done, and a function to print with."""


@dataclass(frozen=True)
class Measurement:
    """Something to reproduce that is not a table of runs."""

    title: str
    make: Make
    place: str = ""
    """Its place in the paper, such as "Figure 5"; empty if it is not in the paper."""


def find_measurement(name: str) -> Measurement | None:
    """The entry of `MEASUREMENTS` for a key or a place in the paper, or None; case does not matter.

    Example:
        >>> find_measurement("figure7").title
        'CIFAR-10 and CIFAR-100, one noise per column'
    """
    wanted = name.lower().replace(" ", "")
    places = {each.place.lower().replace(" ", ""): each for each in MEASUREMENTS.values() if each.place}
    return {**places, **{key.lower(): each for key, each in MEASUREMENTS.items()}}.get(wanted)


def make_overhead(out: Path, settings: Sequence[str], dry_run: bool, say: Say) -> None:
    """Time iterations and whitening, and write the result to `OUT/overhead`."""
    folder = out / "overhead"
    if not dry_run:
        say(f"overhead: {measure_and_write(folder, settings, say)}")
        return
    device = find_hardware(overhead_configs(settings)["BN"].train).describe()["device"]
    say(f"would time iterations with {', '.join(ITERATIONS)}, and {' and '.join(WHITENINGS)}, on {device}")
    say(f"would take about {SECONDS / 60:.0f} minutes at most, and write {folder / 'table.md'}, .csv and .json")


def make_grids(out: Path, settings: Sequence[str], dry_run: bool, say: Say) -> None:
    """Draw every row that has a run with a checkpoint, from its first seed, into `OUT/grids`.

    Raises:
        ValueError: if no row has one, or for settings, since the runs have their own.
    """
    _refuse(settings, "grids are")
    trained = list(dict.fromkeys(run for runs in _trained(out).values() for run in runs))
    if not trained:
        raise ValueError(f"{out} has no run with a checkpoint: make a table first, such as `wcgan reproduce digits`")
    first = {run.parent: run for run in reversed(trained)}
    for row in sorted(first):
        folder = out / "grids" / row.parent.name / row.name
        if dry_run:
            say(f"would draw {first[row]} into {folder}")
            continue
        for picture in write_grids(first[row], folder):
            say(str(picture))


def make_figure(
    number: int, panels: Sequence[tuple[str, str]], out: Path, settings: Sequence[str], dry_run: bool, say: Say
) -> None:
    """Draw the panels of a figure of the paper, `OUT/figure5/a.png` and so on, each from a preset's first trained run.

    Args:
        number: the figure's number.
        panels: for each, a preset and what to draw, as for `write_picture`.
        out: the folder with a sub-folder for each table.
        settings: must be empty, since the runs have their own.
        dry_run: whether only to say what would be done.
        say: called with each picture.

    Raises:
        ValueError: for settings, or if a panel's run is missing; the other panels are drawn first.
    """
    _refuse(settings, "figures are")
    trained, missing = _trained(out), []
    for letter, (preset, kind) in zip("abcd", panels, strict=False):
        file = out / f"figure{number}" / f"{letter}.png"
        if not trained.get(preset):
            missing.append(preset)
        elif dry_run:
            say(f"would draw {trained[preset][0]} into {file}")
        else:
            run = trained[preset][0]
            say(str(write_picture(load_generator(run), run, kind, file)))
    if missing:
        tables = {preset: next(key for key in EXPERIMENTS if preset in _presets(key)) for preset in missing}
        how = ", ".join(f'`wcgan reproduce {key} --rows "{preset}"`' for preset, key in tables.items())
        raise ValueError(f"{out} has no checkpoint for {len(missing)} of {len(panels)} panels; make them with {how}")


def make_user_study(out: Path, settings: Sequence[str], dry_run: bool, say: Say) -> None:
    """Put a study's preference and agreement beside the paper's: `OUT/user-study/report.json` -> `table.md`.

    Raises:
        ValueError: if that file is missing or another, or for settings.
    """
    _refuse(settings, "a study is")
    folder = out / "user-study"
    try:
        found = parse_json(read_bytes(folder / "report.json", MOST_FACTS))
        alpha = float("nan") if found["alpha"] is None else float(found["alpha"])
        counts = (len(found["people"]), len(found["classes"]), found["images"])
        ours = Judgement(found["a"], found["b"], 100 * float(found["preference"]), alpha, *counts)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        raise ValueError(
            f"{folder} has no report of a study: make one with `wcgan study create` and `serve`, then "
            f"`wcgan study report STUDY --out {folder}`"
        ) from None
    lines = ["# Table 11: User study", "", *judgements_to_lines({"paper": USER_STUDY, "ours": ours})]
    for line in lines:
        say(line)
    if not dry_run:
        write_atomically(folder / "table.md", "".join(f"{line}\n" for line in lines).encode())
        say(f"user-study: {folder / 'table.md'}")


def judgements_to_lines(judgements: dict[str, Judgement]) -> list[str]:
    """A table in Markdown with one line per study."""
    heads = ("", "compared", "preference for the second", "Cronbach's alpha", "users", "classes", "images per set")
    rows = []
    for name, j in judgements.items():
        alpha = "not defined" if math.isnan(j.alpha) else f"{j.alpha:.2f}"
        figures = (f"{j.preference:.2f}%", alpha, *map(str, (j.people, j.classes, j.images)))
        rows.append((name, f"{j.a} vs {j.b}", *figures))
    return rows_to_markdown(heads, rows)


def make_architectures(number: int, out: Path, settings: Sequence[str], dry_run: bool, say: Say) -> None:
    """Print a table of architectures; nothing is trained or written."""
    _refuse(settings, "architectures are")
    for line in architectures_to_lines(number):
        say(line)


def _refuse(settings: Sequence[str], what: str) -> None:
    if settings:
        raise ValueError(f"{what} made from runs or presets as they are: leave out --set {settings[0]}")


def _presets(key: str) -> list[str]:
    return [canonical_name(row.preset) for row in EXPERIMENTS[key].rows]


def _trained(out: Path) -> dict[str, list[Path]]:
    """Preset -> its runs with a checkpoint, in all tables."""
    found: dict[str, list[Path]] = {}
    for key in (key for key, table in EXPERIMENTS.items() if not table.classifiers):
        for preset, runs in folders_of(key, out).items():
            trained = [run for run in runs if any((run / "checkpoints").glob("*.safetensors"))]
            found.setdefault(canonical_name(preset), []).extend(trained)
    return found


# Number of a figure -> its key, its title, and for each panel the preset and what to draw.
_FIGURES: dict[int, tuple[str, str, tuple[tuple[str, str], ...]]] = {
    5: (
        "images-cifar10",
        "CIFAR-10: WC, and cWC with one class per row",
        (("cifar10/WC SN + ResNet", PLAIN), ("cifar10/cWC SN + Proj. Discr.", "class-rows")),
    ),
    6: (
        "images-stl10",
        "STL-10: WC; CIFAR-100: cWC_sa, ten classes",
        (("stl10/WC SN + ResNet", PLAIN), ("cifar100/cWC_sa SN + Proj. Discr.", "class-rows")),
    ),
    7: (
        "images-fixed-z",
        "CIFAR-10 and CIFAR-100, one noise per column",
        tuple((f"{data}/cWC SN + Proj. Discr.", "fixed-z") for data in ("cifar10", "cifar100")),
    ),
    8: (
        "images-imagenet",
        "Tiny ImageNet and ImageNet: cWC_sa, ten classes",
        (("tiny-imagenet/cWC_sa", "class-rows"), ("imagenet/cWC_sa SN + Proj. Discr.", "class-rows")),
    ),
    9: (
        "images-mnist",
        "MNIST and Fashion-MNIST: WC and cWC",
        tuple(
            (f"{data}/{name}", kind)
            for data in ("mnist", "fashion-mnist")
            for name, kind in (("WC", PLAIN), ("cWC", "class-rows"))
        ),
    ),
}
MEASUREMENTS: dict[str, Measurement] = {
    "networks-WC": Measurement("Architectures, unconditional", partial(make_architectures, 9), "Table 9"),
    "networks-cWC": Measurement("Architectures, conditional", partial(make_architectures, 10), "Table 10"),
    "user-study": Measurement("User study, cBN against cWC_sa", make_user_study, "Table 11"),
    "networks-mnist": Measurement("Architectures, (Fashion-)MNIST", partial(make_architectures, 12), "Table 12"),
    **{
        key: Measurement(title, partial(make_figure, number, panels), f"Figure {number}")
        for number, (key, title, panels) in _FIGURES.items()
    },
    "overhead": Measurement("What whitening costs, beside the paper's times", make_overhead),
    "grids": Measurement("Pictures of the runs, one class per row", make_grids),
}


def list_tables() -> list[tuple[str, str, str]]:
    """The name of each table, figure or measurement, its place in the paper, such as table3, and its title."""
    tables = {key: (table.place, f"{table.title}, {len(table.rows)} rows") for key, table in EXPERIMENTS.items()}
    others = {key: (measurement.place, measurement.title) for key, measurement in MEASUREMENTS.items()}
    return [(key, place.lower().replace(" ", ""), title) for key, (place, title) in (tables | others).items()]


def tables_to_lines() -> list[str]:
    """One line for each of `list_tables`.

    Example:
        >>> tables_to_lines()[2]
        'ablation-WC       table3    Ablation of WC, 6 rows'
    """
    return [f"{key:18}{place:10}{title}" for key, place, title in list_tables()]
