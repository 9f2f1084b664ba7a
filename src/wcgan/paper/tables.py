"""The paper's tables of results: every row's preset, and the figures that the paper prints for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wcgan.paper.printed import PRINTED, QUOTED

Figure = tuple[float, float | None]
"""A mean, and its standard deviation where the paper gives one."""

# Column of a table -> the score, and the protocol that measures it: one of `wcgan.evaluate.PROTOCOLS` for a GAN, the
# evaluation during training for a classifier.
MEASURES: dict[str, tuple[str, str]] = {
    "IS": ("IS", "paper-10k"),
    "FID 5k": ("FID", "paper-5k"),
    "FID 10k": ("FID", "paper-10k"),
    "error": ("error", "test split"),
}
_WITHOUT_FIGURES = ("IS", "FID 10k")  # what is measured for a row where the paper has a dash
EVALUATE_EVERY = 2_000
"""Iterations between evaluations of a table's runs: the paper reports the best one."""

ALIASES: dict[str, str] = {
    "cifar10/WC": "cifar10/WC SN + ResNet",
    **{f"{data}/{n}": f"{data}/{n} SN + Proj. Discr." for data in ("cifar10", "cifar100") for n in ("cWC", "cWC_sa")},
    "tiny-imagenet/cWC": "tiny-imagenet/cWC SN + Proj. Discr.",
}
"""Second name of a preset -> the preset. The ablations and Tiny ImageNet's table leave out the framework."""


@dataclass(frozen=True)
class Row:
    """A row of a table, on one dataset."""

    preset: str
    """Name of the preset that trains the row, or an alias of it: the dataset, a slash, the row's name."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """Column in `MEASURES` -> the paper's figure; empty where the paper has a dash."""
    earlier: Mapping[int, Figure] = field(default_factory=dict)
    """Iteration before the last -> the paper's IS."""

    @property
    def dataset(self) -> str:
        return self.preset.partition("/")[0]

    @property
    def protocols(self) -> dict[str, tuple[str, ...]]:
        """Protocol -> the metrics to measure with it: the paper's, or IS and FID 10k where the paper has a dash.

        Example:
            >>> Row("cifar10/WC", {"IS": (8.66, 0.11), "FID 5k": (20.2, None)}).protocols
            {'paper-10k': ('is',), 'paper-5k': ('fid',)}
        """
        found: dict[str, tuple[str, ...]] = {}
        for name in self.figures or _WITHOUT_FIGURES:
            score, protocol = MEASURES[name]
            found[protocol] = (*found.get(protocol, ()), score.lower())
        return found


@dataclass(frozen=True)
class Quote:
    """A row that the paper quotes from another article or mentions in its text; there is no preset to train."""

    name: str
    figures: Mapping[str, Figure]
    """Column in `MEASURES` -> the paper's figure."""
    before: str
    """Preset of the row that follows it."""


@dataclass(frozen=True)
class Table:
    """A table of results."""

    label: str
    """Label in the paper's LaTeX source; empty for a table that is not in the paper."""
    title: str
    rows: tuple[Row, ...]
    number: int | None = None
    """Number in the paper; tables and figures are counted separately."""
    quoted: tuple[Quote, ...] = ()
    """Rows without a preset."""
    evaluate_every: int = EVALUATE_EVERY
    """Iterations between evaluations of its runs; 0 to evaluate only after the last."""
    conditioning_every: int = 0
    """Iterations between measurements of the generator's Jacobian; 0 for none."""
    seeds: int = 1
    """Default number of runs per row."""
    classifiers: bool = False
    """Whether its rows are classifiers instead of GANs."""

    @property
    def place(self) -> str:
        """Its place in the paper, such as "Table 3" or "Figure 2"; empty for a table that is not in the paper.

        Example:
            >>> TABLES["ablation-WC"].place
            'Table 3'
        """
        return "" if self.number is None else f"{'Figure' if self.label.startswith('fig') else 'Table'} {self.number}"


@dataclass(frozen=True)
class Judgement:
    """A row of the user study's table: which of two variants people preferred."""

    a: str
    b: str
    preference: float
    """Preference for b in percent, averaged over users and classes."""
    alpha: float
    """Cronbach's alpha: the agreement between users."""
    people: int
    classes: int
    images: int
    """Images per set."""


USER_STUDY = Judgement("cBN", "cWC_sa", 67.34, 0.87, people=21, classes=50, images=16)
"""Table 11, on Tiny ImageNet."""


def canonical_name(name: str) -> str:
    """A preset's own name, given that name or an alias.

    Example:
        >>> canonical_name("cifar10/WC")
        'cifar10/WC SN + ResNet'
    """
    return ALIASES.get(name, name)


def all_names(name: str) -> tuple[str, ...]:
    """A preset's own name followed by its aliases, given any of them."""
    own = canonical_name(name)
    return own, *(alias for alias, preset in ALIASES.items() if preset == own)


def figures_of(preset: str) -> dict[str, Figure]:
    """All figures that the paper reports for a preset, under any of its names.

    Example:
        >>> figures_of("cifar10/WC SN + ResNet")
        {'IS': (8.66, 0.11), 'FID 5k': (20.2, None), 'FID 10k': (17.2, None)}
    """
    names = all_names(preset)
    rows = [row for table in TABLES.values() for row in table.rows if row.preset in names]
    return {name: figure for row in rows for name, figure in row.figures.items()}


def _rows(text: str) -> tuple[Row, ...]:
    """A table of `PRINTED` -> its rows, one dataset after another."""
    head, measures, *lines = [[cell.strip() for cell in line.split("|")] for line in text.strip("\n").splitlines()]
    datasets: list[str] = []
    for name in head[1:]:
        datasets.append(name or datasets[-1])
    rows = []
    for dataset in dict.fromkeys(datasets):
        for name, *cells in lines:
            columns = [(m, c) for m, of, c in zip(measures[1:], datasets, cells, strict=True) if of == dataset and c]
            printed = {measure: _figure(cell) for measure, cell in columns if cell != "-"}
            earlier = {1000 * int(m[3:-1]): figure for m, figure in printed.items() if m not in MEASURES}
            figures = {m: figure for m, figure in printed.items() if m in MEASURES}
            if columns:
                rows.append(Row(f"{dataset}/{name}", figures, earlier))
    return tuple(rows)


def _quotes(before: str, text: str) -> tuple[Quote, ...]:
    """An entry of `QUOTED` -> its rows."""
    lines = [line.rpartition(" ") for line in text.strip().splitlines()]
    return tuple(Quote(name.strip(), {"IS": _figure(score)}, before) for name, _, score in lines)


def _figure(text: str) -> Figure:
    mean, _, deviation = text.partition("±")
    return float(mean), float(deviation) if deviation else None


TABLES: dict[str, Table] = {
    "unconditional": Table(
        "tab.cifar-unsup-GP-SN-only",
        "Unconditional, with and without WC",
        _rows(PRINTED["unconditional"]),
        number=1,
    ),
    "state-of-the-art": Table(
        "tab.cifar-cond-and-uncond-SOTA",
        "State of the art",
        _rows(PRINTED["state-of-the-art"]),
        number=2,
        quoted=tuple(quote for preset, text in QUOTED.items() for quote in _quotes(preset, text)),
    ),
    "ablation-WC": Table(
        "tab.CIFAR-ablation-unsup",
        "Ablation of WC",
        _rows(PRINTED["ablation-WC"]),
        number=3,
    ),
    "tiny-imagenet": Table(
        "tab.ImageNet-ablation-sup",
        "Tiny ImageNet",
        _rows(PRINTED["tiny-imagenet"]),
        number=4,
    ),
    "conditional": Table(
        "tab.cond-exp-direct-comparison",
        "Conditional, with and without cWC",
        _rows(PRINTED["conditional"]),
        number=5,
    ),
    "imagenet": Table(
        "tab.full-ImageNet",
        "ImageNet",
        _rows(PRINTED["imagenet"]),
        number=6,
        evaluate_every=100_000,  # the paper's columns before the last
    ),
    "ablation-cWC": Table(
        "tab.ablation-sup",
        "Ablation of cWC",
        _rows(PRINTED["ablation-cWC"]),
        number=7,
    ),
    "classification": Table(
        "tab.disc",
        "Classification, BN against WC and DBN",
        _rows(PRINTED["classification"]),
        number=8,
        evaluate_every=4000,
        seeds=5,
        classifiers=True,
    ),
    "mnist": Table(
        "tab.mnist",
        "MNIST and Fashion-MNIST",
        _rows(PRINTED["mnist"]),
        number=13,
    ),
}
