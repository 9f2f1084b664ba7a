"""Everything that decides the run of a classifier."""

from dataclasses import dataclass, field

from wcgan.nets import ClassifierConfig
from wcgan.train.config import DataConfig, LoopConfig, at_least, check_loop, in_unit_interval


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
    """A run."""

    data: DataConfig = field(default_factory=DataConfig)
    classifier: ClassifierConfig = field(default_factory=ClassifierConfig)
    train: ClassifyTrainConfig = field(default_factory=ClassifyTrainConfig)
    preset: str | None = None
    """Name of the preset it began as."""
