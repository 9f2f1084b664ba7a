"""Text listings: the presets with their cost and the paper's figures, and the tables of architectures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from wcgan.core.terminal import rows_to_markdown
from wcgan.nets import DiscriminatorConfig, GeneratorConfig
from wcgan.paper.classifier_presets import CLASSIFIERS
from wcgan.paper.presets import PRESETS, classifier_preset, preset
from wcgan.paper.tables import TABLES, Figure, Table, all_names, canonical_name, figures_of
from wcgan.runs.config import LoopConfig


def presets_to_lines(text: str = "") -> list[str]:
    """One line of at most 80 characters per preset, grouped by the tables of the paper.

    Args:
        text: lists only presets with this text in one of their names or in their table's; case does not matter.

    Raises:
        ValueError: if there is none.
    """
    lines = [*_section_to_lines(_GANS, text), *_section_to_lines(_CLASSIFIERS, text)]
    if not lines:
        raise ValueError(f"no preset has {text!r} in its name or its table's; `wcgan presets` lists them all")
    return lines[:-1]


@dataclass(frozen=True)
class _Section:
    """The listing of GANs, or of classifiers."""

    names: Collection[str]
    tables: Mapping[str, Table]
    head: str
    foot: str
    to_line: Callable[[str], str]


def _section_to_lines(section: _Section, text: str) -> list[str]:
    """Head, presets by table, foot and an empty line; nothing if no preset matches the text."""
    in_tables = {canonical_name(row.preset) for table in section.tables.values() for row in table.rows}
    groups = {"In no table of the paper": [name for name in section.names if name not in in_tables]}
    groups |= {f"{table.title} ({key})": [row.preset for row in table.rows] for key, table in section.tables.items()}
    lines: list[str] = []
    for title, names in groups.items():
        found = names if text.lower() in title.lower() else [name for name in names if _has_text(name, text)]
        if found:
            lines += ["", title, *map(section.to_line, found)]
    return [section.head, *lines, "", section.foot, ""] if lines else []


def _has_text(name: str, text: str) -> bool:
    return any(text.lower() in each.lower() for each in all_names(name))


def _gan_to_line(name: str) -> str:
    train, figures = preset(name).train, figures_of(name)
    score = _score_to_text(figures.get("IS"))
    near, far = (str(figures[column][0]) if column in figures else "-" for column in ("FID 5k", "FID 10k"))
    return f"{_cost(name, train, train.critic_steps * train.batch)}  {score:>10}  {near:>6}  {far:>7}"


def _classifier_to_line(name: str) -> str:
    train = classifier_preset(name).train
    return f"{_cost(name, train, train.batch)}  {_score_to_text(figures_of(name).get('error')):>10}"


def _cost(name: str, train: LoopConfig, images: int) -> str:
    """A preset's name, its iterations, and its images at so many per iteration."""
    return f"{name:35} {train.iterations:7,} {count_to_text(train.iterations * images):>6}"


def count_to_text(count: int) -> str:
    """An exact count in thousands or millions.

    Example:
        >>> [count_to_text(count) for count in (48_000, 9_920_000, 144_000_000)]
        ['48k', '9.92M', '144M']
    """
    return f"{count / 1e6:.15g}M" if count >= 1e6 else f"{count / 1e3:.15g}k"


def _score_to_text(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    mean, std = figure
    return f"{mean:.2f}" if std is None else f"{mean:.2f}±{std:.2f}"


_GANS = _Section(
    PRESETS,
    {key: table for key, table in TABLES.items() if not table.classifiers},
    f"{'preset':33}iterations images  {'IS':>10}  FID 5k  FID 10k",
    "images: real images shown to the discriminator; IS and FID: the paper's",
    _gan_to_line,
)
_CLASSIFIERS = _Section(
    CLASSIFIERS,
    {key: table for key, table in TABLES.items() if table.classifiers},
    f"{'classifier':33}iterations images  {'error':>10}",
    "images: images shown to the classifier; error: the paper's, in percent",
    _classifier_to_line,
)


# Number of the paper's table -> the presets of its rows.
ARCHITECTURE_TABLES: dict[int, tuple[str, ...]] = {
    9: (
        *(f"cifar10/WC {row}" for row in ("GP + ResNet", "SN + DCGAN", "SN + ResNet")),
        *(f"stl10/WC {row}" for row in ("SN + DCGAN", "SN + ResNet")),
    ),
    10: (
        *(f"{data}/cWC {row}" for row in ("GP + ACGAN", "SN + Proj. Discr.") for data in ("cifar10", "cifar100")),
        "tiny-imagenet/cWC SN + Proj. Discr.",
        "imagenet/cWC_sa SN + Proj. Discr.",
    ),
    12: tuple(f"{data}/{row}" for row in ("WC", "cWC") for data in ("mnist", "fashion-mnist")),
}
# Where the presets differ from the paper's table.
NOTES: dict[int, str] = {
    10: "ImageNet: the paper lists four blocks in the generator, which make 64x64 images; 128x128 needs five.",
    12: "The paper says C_3^S, but MNIST and Fashion-MNIST images have one channel.",
}
NOTATION = (
    "D_k is a dense layer of k outputs, P_h a reshaping to an h x h grid, R_d a residual block and C_d a convolution "
    "block of d filters that doubles (U), halves (D) or keeps (S) the side, G the global sum, F flattening."
)


def architectures_to_lines(number: int) -> list[str]:
    """A table of architectures in Markdown, with the notation and where it differs from the paper."""
    rows = []
    for name in ARCHITECTURE_TABLES[number]:
        config = preset(name)
        generator, critic = generator_to_notation(config.generator), discriminator_to_notation(config.discriminator)
        rows.append((f"`{name}`", f"`{generator}`", f"`{critic}`"))
    table = rows_to_markdown(("Row", "Generator", "Discriminator"), rows)
    return [f"# Table {number}: architectures", "", *table, "", NOTATION, *([NOTES[number]] if number in NOTES else [])]


def generator_to_notation(config: GeneratorConfig) -> str:
    """A generator in the paper's notation; the final tanh is left out.

    Example:
        >>> generator_to_notation(GeneratorConfig(widths=(128, 128, 128)))
        'D_2048-P_4-R_128^U-R_128^U-R_128^U-C_3^S'
    """
    block = "R" if config.kind == "resnet" else "C"
    blocks = [f"{block}_{width}^U" for width in config.widths]
    dense = config.base**2 * config.widths[0]
    return "-".join([f"D_{dense}", f"P_{config.base}", *blocks, f"C_{config.channels}^S"])


def discriminator_to_notation(config: DiscriminatorConfig) -> str:
    """A discriminator in the paper's notation, which leaves out how the head uses labels.

    Example:
        >>> discriminator_to_notation(DiscriminatorConfig())
        'R_128^D-R_128^D-R_128^S-R_128^S-G-D_1'
    """
    if config.kind == "dcgan":
        first, *rest = config.widths
        return "-".join([f"C_{first}^S", *(f"C_{width}^D-C_{width}^S" for width in rest), "F", "D_1"])
    sides = ["D" if place < config.downsample else "S" for place in range(len(config.widths))]
    return "-".join([*(f"R_{w}^{side}" for w, side in zip(config.widths, sides, strict=True)), "G", "D_1"])
