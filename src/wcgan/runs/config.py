"""The configs of runs, of a GAN and of a classifier: everything that decides one, written beside its results."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, overload

from wcgan.core.config import AnyConfig, config_from_dict, config_to_yaml, override
from wcgan.core.files import write_atomically
from wcgan.core.reading import read_yaml
from wcgan.nets import ClassifierConfig, DiscriminatorConfig, GeneratorConfig

LARGEST_SEED = (1 << 63) - 1


@dataclass(frozen=True)
class DataConfig:
    """Which images."""

    name: str = "digits"
    """A data set's name, or a folder of images."""
    folder: str | None = None
    """Where the data sets are; None for the usual place."""
    resolution: int | None = None
    """Side of the square images; None for the data set's own."""
    strict: bool = False
    """Whether a broken image is fatal instead of skipped."""
    flip: bool = False
    """Whether half of the real images are mirrored; for GANs, since a classifier has `train.flip`."""
    reference: str | None = None
    """The split that scores are taken against; None for the authors', which is test for most data sets."""
    held_out: bool = False
    """Whether every tenth image is kept out of training, to score against: for a folder without a test split."""

    @property
    def reference_name(self) -> str:
        """The real images of an evaluation, as `wcgan evaluate --data` takes them."""
        return self.name if self.reference is None else f"{self.name}:{self.reference}"


@dataclass(frozen=True)
class LoopConfig:
    """The settings of every training: its length, what it writes and when, and what it runs on."""

    iterations: int = 50_000
    """Length of the training."""
    batch: int = 64
    """Images in an update."""
    learning_rate: float = 2e-4
    """Highest learning rate of the schedule."""
    seed: int = 0
    """Decides weights, the order of the data, and everything that is drawn."""
    log_every: int = 10
    """Iterations between lines of metrics."""
    checkpoint_every: int = 500
    """Iterations between checkpoints."""
    keep_checkpoints: int = 3
    """How many of the last are kept."""
    evaluate_every: int = 0
    """Iterations between evaluations; 0 for none but the last."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda` or `cuda:N`."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Autocast; auto is bfloat16 on a GPU that has it."""
    compile: Literal["auto", "yes", "no"] = "auto"
    """`torch.compile`; auto is yes on a GPU."""
    channels_last: Literal["auto", "yes", "no"] = "auto"
    """Memory format; auto is yes on a GPU."""
    cuda_graph: Literal["auto", "yes", "no"] = "auto"
    """Whether an iteration is replayed as one CUDA graph; auto is yes for a single process on a GPU."""
    deterministic: bool = False
    """Whether a seed gives the same bits again on a GPU too, at some cost in speed; on a CPU it always does."""


@dataclass(frozen=True)
class TrainConfig(LoopConfig):
    """How the two networks of a GAN are trained. An iteration is one update of the generator.

    `batch` counts real images, and as many generated ones, in an update of the discriminator. `learning_rate` is that
    of Adam, for both networks unless the discriminator has its own.
    """

    learning_rate_discriminator: float | None = None
    """Highest learning rate of the discriminator; None for `learning_rate`."""

    loss: Literal["hinge", "wasserstein"] = "hinge"
    """Hinge goes with spectral normalisation, Wasserstein with a gradient penalty."""
    gradient_penalty: float = 0.0
    """Weight of the two-sided gradient penalty; 10 in the paper's GP runs."""
    critic_steps: int = 5
    """Discriminator updates for each of the generator."""
    critic_statistics: Literal["update", "iteration"] = "update"
    """Which statistics normalise the generated images of a discriminator update: those of its own batch, or of all
    updates in the iteration together."""
    generator_batch: int = 128
    """Generated images in a generator update."""
    beta1: float = 0.0
    """Adam's first moment."""
    beta2: float = 0.9
    """Adam's second moment."""
    generated_labels: Literal["real", "uniform", "balanced"] = "uniform"
    """Labels of generated images in training: those of the real batch beside them, uniform over the classes, or each
    class equally often in every batch."""
    schedule: Literal["linear", "constant"] = "linear"
    """Learning rate: linear decay to 0, or constant."""
    schedule_start: int = 0
    """Iteration at which linear decay begins; the rate is constant before."""
    schedule_end: int | None = None
    """Iteration at which linear decay reaches 0; None for the last of the run."""
    drop_at: int | None = None
    """Iteration from which the learning rate is multiplied by 0.1; None for no drop."""
    class_weight_discriminator: float = 1.0
    """Weight of ACGAN's cross-entropy on real images."""
    class_weight_generator: float = 0.1
    """Weight of ACGAN's cross-entropy on generated images."""
    label_smoothing: float = 0.0
    """Probability that ACGAN's cross-entropy spreads over all classes."""
    augment: tuple[Literal["color", "translation", "cutout"], ...] = ()
    """Differentiable augmentation (DiffAugment) of all that the discriminator sees; empty for none."""
    augment_ramp: int = 0
    """Real images over which the share of images that are augmented grows from 0 to 1; 0 for all from the start."""
    consistency: float = 0.0
    """Weight of consistency regularisation: the squared difference of D's scores for a real image and for the same
    image shifted and mirrored at random; 10 as published, 0 for none."""
    lecam: float = 0.0
    """Weight of LeCam regularisation: D's scores of real images are held near the average score of generated ones, and
    the other way around; 0 for none."""
    coloring_decay: float = 0.0
    """Decoupled weight decay of the coloring matrices of the generator, times the learning rate."""
    class_rate: float = 1.0
    """Share of the generator's learning rate for what belongs to one class: its coloring matrix or scale, its bias, its
    weights of a dictionary. They see the images of one class, but Adam moves them as far as all others."""
    equal_classes: float = 0.0
    """Weight of a penalty on classes of unequal size after each block of the generator; 0 for none."""
    equal_classes_whitened: bool = False
    """Whether that size is measured after whitening all classes together, where all directions count the same."""
    ema: float = 0.0
    """Decay per iteration of an exponential moving average of the generator; 0 for none, or for `ema_half_life`."""
    ema_half_life: int = 0
    """Real images after which a state of the generator has half its weight in the average; 0 for none, or for `ema`."""
    ema_ramp: float = 0.0
    """Upper limit of the half-life, as a share of the real images so far, so that the average keeps up with the first
    iterations; 0 for no limit."""
    ema_start: int = 0
    """Real images until which the average is a copy of the generator."""
    ema_statistics: Literal["averaged", "recomputed"] = "averaged"
    """Running statistics of the average: averaged like its weights, or recomputed before each grid of samples,
    evaluation and checkpoint."""
    sample_every: int = 500
    """Iterations between grids of samples; 0 for none."""
    conditioning_every: int = 0
    """Iterations between measurements of the generator's Jacobian; 0 for none."""
    evaluate_images: int = 10_000
    """Generated images in an evaluation."""
    evaluate_with: Literal["auto", "classifier", "inception", "none"] = "auto"
    """Network that scores them; auto is Inception where `WCGAN_INCEPTION_WEIGHTS` names its weights. With none, nothing
    is scored, not even at the end."""

    @property
    def images(self) -> int:
        """Real images in an iteration."""
        return self.critic_steps * self.batch


@dataclass(frozen=True)
class Config:
    """The run of a GAN."""

    data: DataConfig = field(default_factory=DataConfig)
    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    discriminator: DiscriminatorConfig = field(default_factory=DiscriminatorConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    preset: str | None = None
    """Name of the preset it began as."""
    origin: str | None = None
    """Run or shipped generator whose weights it started with; None for random weights."""

    def __post_init__(self) -> None:
        check_train(self.train)
        d, g = self.discriminator, self.generator
        if d.resolution != g.resolution:
            raise ValueError(
                f"generator.base and generator.widths give {g.resolution}x{g.resolution} images, "
                f"discriminator.resolution is {d.resolution}; they must agree"
            )
        if d.channels != g.channels:
            raise ValueError(
                f"generator.channels is {g.channels}, discriminator.channels {d.channels}; they must agree"
            )
        if self.conditional and None not in (d.classes, g.classes) and d.classes != g.classes:
            raise ValueError(f"generator.classes is {g.classes}, discriminator.classes {d.classes}; they must agree")

        if self.train.equal_classes and not g.conditional:
            raise ValueError(
                f"train.equal_classes={self.train.equal_classes} needs a generator with classes, "
                f"not generator.normalization={g.normalization}"
            )

    def without_paths(self) -> "Config":
        """A copy to publish: paths say more about a machine than about the images."""
        data = replace(self.data, name=Path(self.data.name).name, folder=None, strict=False)
        return replace(self, data=data, origin=None if self.origin is None else Path(self.origin).name)

    @property
    def conditional(self) -> bool:
        """Whether either network sees labels."""
        return self.generator.conditional or self.discriminator.head != "plain"

    @property
    def classes(self) -> int | None:
        return self.generator.classes or self.discriminator.classes


def check_train(train: TrainConfig) -> None:
    """Raises a ValueError that names the field, its value and what is allowed."""
    check_loop(train)
    at_least(train, 1, "critic_steps")
    at_least(train, 2, "generator_batch")
    at_least(train, 10, "evaluate_images")  # the inception score is taken of ten parts
    at_least(train, 0, "gradient_penalty", "sample_every", "conditioning_every")
    at_least(train, 0, "class_weight_discriminator", "class_weight_generator", "consistency", "lecam")
    at_least(train, 0, "coloring_decay", "class_rate", "equal_classes")
    at_least(train, 0, "schedule_start", "ema_half_life", "ema_ramp", "ema_start", "augment_ramp")
    in_unit_interval(train, "beta1", "beta2", "ema", "label_smoothing")
    if train.learning_rate_discriminator is not None:
        at_least(train, 0, "learning_rate_discriminator")
    if train.evaluate_with == "none" and train.evaluate_every:
        raise ValueError(
            f"train.evaluate_with=none gives no scores, but train.evaluate_every={train.evaluate_every} asks for some: "
            "set it to 0, or evaluate_with to a network"
        )
    if train.ema and train.ema_half_life:
        raise ValueError(
            f"train.ema={train.ema} and train.ema_half_life={train.ema_half_life} both set the decay: set one to 0"
        )
    if len(set(train.augment)) < len(train.augment):
        raise ValueError(f"train.augment must name each augmentation once, got {list(train.augment)}")
    if train.augment_ramp and not train.augment:
        raise ValueError(f"train.augment_ramp={train.augment_ramp} needs train.augment, which names no augmentation")
    if train.equal_classes_whitened and not train.equal_classes:
        raise ValueError("train.equal_classes_whitened=True needs train.equal_classes, the weight, above 0")
    if train.schedule_end is not None and train.schedule == "constant":
        raise ValueError("train.schedule_end needs train.schedule=linear: a constant rate has no end")
    if train.schedule_start and train.schedule == "constant":
        raise ValueError("train.schedule_start needs train.schedule=linear: a constant rate never begins to fall")
    if train.schedule_start and train.schedule_start >= (train.schedule_end or train.iterations):
        raise ValueError(
            f"train.schedule_start must be less than train.{'schedule_end' if train.schedule_end else 'iterations'}="
            f"{train.schedule_end or train.iterations}, got {train.schedule_start}"
        )
    for name in ("schedule_end", "drop_at"):
        if getattr(train, name) is not None:
            at_least(train, 1, name)


def check_loop(train: LoopConfig) -> None:
    """Checks the settings that every training has."""
    at_least(train, 1, "iterations", "log_every", "checkpoint_every", "keep_checkpoints")
    at_least(train, 2, "batch")
    at_least(train, 0, "learning_rate", "evaluate_every", "seed")
    if train.seed > LARGEST_SEED:
        raise ValueError(f"train.seed must be less than 2**63, got {train.seed}")


def at_least(train: LoopConfig, minimum: float, *names: str) -> None:
    for name in names:
        if getattr(train, name) < minimum:
            raise ValueError(f"train.{name} must be at least {minimum}, got {getattr(train, name)}")


def in_unit_interval(train: LoopConfig, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(train, name) < 1:
            raise ValueError(f"train.{name} must be in [0, 1), got {getattr(train, name)}")


@dataclass(frozen=True)
class ClassifyTrainConfig(LoopConfig):
    """How a classifier is trained: by default as He et al. trained theirs on CIFAR-10."""

    iterations: int = 64_000
    """Updates."""
    batch: int = 128
    """Images in an update."""
    learning_rate: float = 0.1
    """Of stochastic gradient descent, until the first drop."""
    momentum: float = 0.9
    """Of the gradient."""
    weight_decay: float = 1e-4
    """Of every parameter."""
    drops: tuple[int, ...] = (32_000, 48_000)
    """Iterations at which the learning rate becomes a tenth of what it was."""
    warm_up: int = 0
    """Iterations at the start with a tenth of the learning rate."""
    crop: int = 4
    """Pixels around an image that a window of its size, cut at random, may reach into; 0 for none."""
    flip: bool = True
    """Whether half of the images are mirrored."""
    log_every: int = 100
    """Iterations between lines of metrics."""
    checkpoint_every: int = 4000
    """Iterations between checkpoints."""
    evaluate_every: int = 4000
    """Iterations between evaluations; 0 for none but the last."""

    def __post_init__(self) -> None:
        check_loop(self)
        at_least(self, 0, "weight_decay", "warm_up", "crop")
        in_unit_interval(self, "momentum")
        if list(self.drops) != sorted(set(self.drops)) or any(drop < 1 for drop in self.drops):
            raise ValueError(f"train.drops must be iterations in order, at least 1, got {list(self.drops)}")
        if self.drops and self.drops[-1] > self.iterations:
            half, most = self.iterations // 2, self.iterations * 3 // 4
            raise ValueError(
                f"train.drops={list(self.drops)} go beyond train.iterations={self.iterations}: set both, such as "
                f'--set train.iterations={self.iterations} --set "train.drops=[{half},{most}]"'
            )


@dataclass(frozen=True)
class ClassifyConfig:
    """The run of a classifier."""

    data: DataConfig = field(default_factory=DataConfig)
    classifier: ClassifierConfig = field(default_factory=ClassifierConfig)
    train: ClassifyTrainConfig = field(default_factory=ClassifyTrainConfig)
    preset: str | None = None
    """Name of the preset it began as."""

    def __post_init__(self) -> None:
        if self.data.flip:
            raise ValueError("data.flip is for GANs: set train.flip for a classifier")


# Changes


CHANGEABLE = frozenset(
    [f"data.{name}" for name in ("name", "folder", "strict", "reference")]  # the images are checked instead
    + [f"train.{name}" for name in ("iterations", "schedule_end")]
    + [f"train.{name}_every" for name in ("log", "checkpoint", "sample", "evaluate", "conditioning")]
    + [f"train.{name}" for name in ("keep_checkpoints", "evaluate_images", "evaluate_with")]
    + [f"train.{name}" for name in ("device", "precision", "compile", "channels_last", "cuda_graph", "deterministic")]
)
"""What a run may change when it is resumed: where its images are, its length, what it writes and what it runs on."""


def change(config: AnyConfig, data: str | None = None, strict: bool = False, settings: Sequence[str] = ()) -> AnyConfig:
    """A copy of a run's config with other data, and with single fields changed by `section.field=value`."""
    any_config: Any = config
    chosen = any_config.data
    chosen = replace(chosen, name=data or chosen.name, strict=strict or chosen.strict)
    return override(replace(any_config, data=chosen), settings)


# Files


def write_config(config: Any, path: Path) -> None:
    """Writes a config as YAML, atomically; `read_config` reads it back."""
    write_atomically(path, config_to_yaml(config).encode())


@overload
def read_config(path: Path) -> Config: ...


@overload
def read_config(path: Path, kind: type[AnyConfig]) -> AnyConfig: ...


def read_config(path: Path, kind: type = Config) -> Any:
    """A config of one kind, `Config` by default; a file with the other kind is refused by name."""
    try:
        values = read_yaml(path)
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    found = "classifier" if isinstance(values, dict) and "classifier" in values else "GAN"
    wanted = "classifier" if any(f.name == "classifier" for f in dataclasses.fields(kind)) else "GAN"
    if found != wanted:
        raise ValueError(f"{path.parent} is the run of a {found}, and that of a {wanted} is needed here")
    try:
        return config_from_dict(values, kind)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
