"""The paper's tables of results: for each row and dataset, the preset that trains it and the figures it got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Figure = tuple[float, float | None]
"""A mean, and its standard deviation where the paper gives one."""

# A figure's name -> the score, and the protocol of `wcgan.evaluate.PROTOCOLS` that it is measured by; of a classifier,
# that of its training.
MEASURES: dict[str, tuple[str, str]] = {
    "IS": ("IS", "paper-10k"),
    "FID 5k": ("FID", "paper-5k"),
    "FID 10k": ("FID", "paper-10k"),
    "error": ("error", "test split"),
}
_UNMEASURED = ("IS", "FID 10k")
ON_THE_WAY = 2_000
"""Iterations between evaluations of a table's runs: the paper's figures are the best on the way."""


@dataclass(frozen=True)
class Row:
    """A row of a table, on one dataset."""

    preset: str
    """Its name: the dataset, a slash, the row."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """Name in `MEASURES` -> the paper's figure; empty where the paper has a dash."""
    earlier: Mapping[int, Figure] = field(default_factory=dict)
    """Iteration before the last -> the paper's IS."""

    @property
    def dataset(self) -> str:
        return self.preset.partition("/")[0]

    @property
    def protocols(self) -> dict[str, tuple[str, ...]]:
        """Protocol -> the metrics to measure by it, beside the paper's; IS and FID 10k where the paper has none.

        Example:
            >>> Row("cifar10/WC", {"IS": (8.66, 0.11), "FID 5k": (20.2, None)}).protocols
            {'paper-10k': ('is',), 'paper-5k': ('fid',)}
        """
        found: dict[str, tuple[str, ...]] = {}
        for name in self.figures or _UNMEASURED:
            score, protocol = MEASURES[name]
            found[protocol] = (*found.get(protocol, ()), score.lower())
        return found


@dataclass(frozen=True)
class Quote:
    """A row that the paper quotes from another article, or has in its text: there is nothing to train for it."""

    name: str
    figures: Mapping[str, Figure]
    """Name in `MEASURES` -> the paper's figure."""
    before: str
    """The preset of the row that it stands before."""


@dataclass(frozen=True)
class Table:
    """A table of results."""

    label: str
    """As the paper's source has it; empty for a table that the paper does not have."""
    title: str
    rows: tuple[Row, ...]
    number: int | None = None
    """In the paper, counted apart for tables and for figures."""
    quoted: tuple[Quote, ...] = ()
    """Rows without a preset."""
    evaluate_every: int = ON_THE_WAY
    """Iterations between evaluations of its runs; 0 for the last alone."""
    conditioning_every: int = 0
    """Iterations between measurements of the generator's Jacobian; 0 for none."""
    seeds: int = 1
    """Runs of each row, where nothing else is said."""
    classifiers: bool = False
    """Whether its rows are classifiers, in place of GANs."""

    @property
    def place(self) -> str:
        """Where the paper has it: "Table 3", "Figure 2"; empty where it does not.

        Example:
            >>> TABLES["ablation-WC"].place
            'Table 3'
        """
        return "" if self.number is None else f"{'Figure' if self.label.startswith('fig') else 'Table'} {self.number}"


@dataclass(frozen=True)
class Judgement:
    """What people preferred: a row of the table of the user study."""

    a: str
    b: str
    preference: float
    """User-averaged class-based preference for b, in percent."""
    alpha: float
    """Cronbach's alpha, the agreement between users."""
    people: int
    classes: int
    images: int
    """In a set."""


USER_STUDY = Judgement("cBN", "cWC_sa", 67.34, 0.87, people=21, classes=50, images=16)
"""Tab. 11, on Tiny ImageNet."""


def figures_of(preset: str) -> dict[str, Figure]:
    """What the paper reports for a preset, in all tables together.

    Example:
        >>> figures_of("cifar10/WC SN + ResNet")
        {'IS': (8.66, 0.11), 'FID 5k': (20.2, None), 'FID 10k': (17.2, None)}
    """
    rows = [row for table in TABLES.values() for row in table.rows if row.preset == preset]
    return {name: figure for row in rows for name, figure in row.figures.items()}


def _row(preset: str, score: Figure | None = None, fid_5k: float | None = None, fid_10k: float | None = None) -> Row:
    distances = {"FID 5k": fid_5k, "FID 10k": fid_10k}
    figures = {name: (value, None) for name, value in distances.items() if value is not None}
    return Row(preset, figures if score is None else {"IS": score, **figures})


def _quotes(before: str, scores: Mapping[str, Figure]) -> tuple[Quote, ...]:
    return tuple(Quote(name, {"IS": score}, before) for name, score in scores.items())


def _error(preset: str, percent: float) -> Row:
    return Row(preset, {"error": (percent, None)})


TABLES: dict[str, Table] = {
    "unconditional": Table(
        "tab.cifar-unsup-GP-SN-only",
        "Unconditional, with and without WC",
        (
            _row("cifar10/GP + ResNet", (7.86, 0.07)),
            _row("cifar10/WC GP + ResNet", (8.20, 0.08), None, 20.4),
            _row("cifar10/SN + DCGAN", (7.58, 0.12), 25.5),
            _row("cifar10/WC SN + DCGAN", (7.84, 0.10), 25.5, 23.0),
            _row("cifar10/SN + ResNet", (8.22, 0.05), 21.7),
            _row("cifar10/WC SN + ResNet", (8.66, 0.11), 20.2, 17.2),
            _row("stl10/GP + ResNet"),
            _row("stl10/WC GP + ResNet"),
            _row("stl10/SN + DCGAN", (8.79, 0.14), 43.2),
            _row("stl10/WC SN + DCGAN", (9.45, 0.18), 40.1, 37.9),
            _row("stl10/SN + ResNet", (9.10, 0.04), 40.1),
            _row("stl10/WC SN + ResNet", (9.93, 0.13), 38.7, 36.4),
        ),
        number=1,
    ),
    "state-of-the-art": Table(
        "tab.cifar-cond-and-uncond-SOTA",
        "State of the art",
        (
            _row("cifar10/WC SN + ResNet", (8.66, 0.11)),
            _row("cifar10/cWC SN + Proj. Discr. drop", (9.06, 0.13)),
            _row("cifar10/cWC_sa SN + Proj. Discr.", (8.85, 0.10)),
        ),
        number=2,
        quoted=(
            *_quotes(
                "cifar10/WC SN + ResNet",
                {
                    "ALI": (5.34, 0.05),
                    "BEGAN": (5.62, None),
                    "DCGAN": (6.16, 0.07),
                    "Improved GAN (-L+HA)": (6.86, 0.06),
                    "EGAN-Ent-VI": (7.07, 0.10),
                    "DFM": (7.72, 0.13),
                    "WGAN-GP": (7.86, 0.07),
                    "CT-GAN": (8.12, 0.12),
                    "SN-GAN": (8.22, 0.05),
                    "OT-GAN": (8.46, 0.12),
                    "PROGRESSIVE": (8.80, 0.13),
                    # The paper's text: both averages over ten runs are the same.
                    "PROGRESSIVE, average of 10 runs": (8.56, None),
                    "WC SN + ResNet, average of 10 runs": (8.56, None),
                },
            ),
            *_quotes(
                "cifar10/cWC SN + Proj. Discr. drop",
                {
                    "SteinGAN": (6.35, None),
                    "DCGAN with labels": (6.58, None),
                    "Improved GAN": (8.09, 0.07),
                    "AC-GAN": (8.25, 0.07),
                    "SGAN-no-joint": (8.37, 0.08),
                    "WGAN-GP ResNet": (8.42, 0.10),
                    "SGAN": (8.59, 0.12),
                    "SNGAN-PROJECTIVE": (8.62, None),
                    "CT-GAN with labels": (8.81, 0.13),
                    "AM-GAN": (8.91, 0.11),
                },
            ),
        ),
    ),
    "ablation-WC": Table(
        "tab.CIFAR-ablation-unsup",
        "Ablation of WC",
        (
            _row("cifar10/W-only", (6.63, 0.07), None, 36.8),
            _row("cifar10/WC-diag", (7.00, 0.09), None, 34.1),
            _row("cifar10/C-only", (7.86, 0.08), None, 23.17),
            _row("cifar10/std-C", (8.34, 0.08), None, 18.02),
            _row("cifar10/WzcaC", (8.29, 0.08), None, 18.57),
            _row("cifar10/WC", (8.66, 0.11), None, 17.2),
        ),
        number=3,
    ),
    "tiny-imagenet": Table(
        "tab.ImageNet-ablation-sup",
        "Tiny ImageNet",
        (
            _row("tiny-imagenet/cBN", (9.27, 0.14), None, 39.9),
            _row("tiny-imagenet/cWC", (10.43, 0.13), None, 35.7),
            _row("tiny-imagenet/cWC_sa", (11.78, 0.25), None, 27.7),
        ),
        number=4,
    ),
    "conditional": Table(
        "tab.cond-exp-direct-comparison",
        "Conditional, with and without cWC",
        (
            _row("cifar10/GP + ACGAN", (8.42, 0.10)),
            _row("cifar10/cWC GP + ACGAN", (8.80, 0.13), None, 17.2),
            _row("cifar10/cWC_sa GP + ACGAN", (8.69, 0.13), None, 16.8),
            _row("cifar10/SN + Proj. Discr.", (8.62, None), 17.5),
            _row("cifar10/cWC SN + Proj. Discr.", (8.97, 0.11), 16.0, 13.5),
            _row("cifar10/cWC_sa SN + Proj. Discr.", (8.85, 0.10), 16.5, 13.5),
            _row("cifar100/GP + ACGAN"),
            _row("cifar100/cWC GP + ACGAN"),
            _row("cifar100/cWC_sa GP + ACGAN"),
            _row("cifar100/SN + Proj. Discr.", (9.04, None), 23.2),
            _row("cifar100/cWC SN + Proj. Discr.", (9.52, 0.07), 20.5, 17.2),
            _row("cifar100/cWC_sa SN + Proj. Discr.", (9.80, 0.17), 20.6, 17.4),
        ),
        number=5,
    ),
    "imagenet": Table(
        "tab.full-ImageNet",
        "ImageNet",
        (
            Row(
                "imagenet/SN + Proj. Discr.",
                {"IS": (29.7, 0.61)},
                {100_000: (17.5, None), 200_000: (21.0, None), 300_000: (23.5, None)},
            ),
            Row(
                "imagenet/cWC_sa SN + Proj. Discr.",
                {"IS": (34.36, 0.67)},
                {100_000: (21.39, 0.37), 200_000: (26.11, 0.40), 300_000: (29.20, 0.87)},
            ),
        ),
        number=6,
        evaluate_every=100_000,  # the paper's figures before the last
    ),
    "ablation-cWC": Table(
        "tab.ablation-sup",
        "Ablation of cWC",
        (
            _row("cifar10/cBN", (7.68, 0.13), None, 22.1),
            _row("cifar10/c-std-C", (7.92, 0.11), None, 24.37),
            _row("cifar10/c-std-C_sa", (7.93, 0.11), None, 26.75),
            _row("cifar10/cWC-cls-only", (8.10, 0.09), None, 28.0),
            _row("cifar10/cWC_sa-cls-only", (8.20, 0.09), None, 23.5),
            _row("cifar10/cWC-diag", (8.90, 0.09), None, 14.2),
            _row("cifar10/cWC", (8.97, 0.11), None, 13.5),
            _row("cifar10/cWC_sa", (8.85, 0.10), None, 13.5),
            _row("cifar100/cBN", (8.08, 0.08), None, 26.5),
            _row("cifar100/c-std-C", (7.67, 0.08), None, 46.46),
            _row("cifar100/c-std-C_sa", (8.23, 0.10), None, 27.59),
            _row("cifar100/cWC-cls-only", (7.10, 0.06), None, 75.4),
            _row("cifar100/cWC_sa-cls-only", (7.88, 0.12), None, 33.4),
            _row("cifar100/cWC-diag", (8.82, 0.12), None, 20.8),
            _row("cifar100/cWC", (9.52, 0.07), None, 17.2),
            _row("cifar100/cWC_sa", (9.80, 0.17), None, 17.4),
        ),
        number=7,
    ),
    "classification": Table(
        "tab.disc",
        "Classification, BN against WC and DBN",
        (
            _error("cifar10/ResNet-32 BN", 7.31),
            _error("cifar10/ResNet-32 WC", 7.00),
            _error("cifar10/ResNet-32 DBN", 6.94),
            _error("cifar10/ResNet-56 BN", 7.21),
            _error("cifar10/ResNet-56 WC", 6.60),
            _error("cifar10/ResNet-56 DBN", 6.49),
            _error("cifar100/ResNet-32 BN", 31.41),
            _error("cifar100/ResNet-32 WC", 31.25),
            _error("cifar100/ResNet-56 BN", 30.68),
            _error("cifar100/ResNet-56 WC", 30.40),
        ),
        number=8,
        evaluate_every=4000,
        seeds=5,
        classifiers=True,
    ),
    "mnist": Table(
        "tab.mnist",
        "MNIST and Fashion-MNIST",
        (
            _row("mnist/BN", None, None, 3.6),
            _row("mnist/WC", None, None, 4.9),
            _row("mnist/cBN", None, None, 4.5),
            _row("mnist/cWC", None, None, 4.3),
            _row("fashion-mnist/BN", None, None, 10.6),
            _row("fashion-mnist/WC", None, None, 10.4),
            _row("fashion-mnist/cBN", None, None, 7.5),
            _row("fashion-mnist/cWC", None, None, 6.2),
        ),
        number=13,
    ),
}
