"""What is trained, as the loop sees it: networks and optimisers by name, one update, and their checkpoint."""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from wcgan.core.processes import Rank
from wcgan.core.terminal import shortened
from wcgan.norm import WhiteningLayer
from wcgan.runs.checkpoint import Checkpoint, CheckpointError, section, tensors_to_network

Losses = dict[str, Tensor]
"""Name -> a loss or error of an update, on the device."""
COLORINGS = ("weight", "class_weight", "dictionary")  # matrices and scales of a layer
OF_ONE_CLASS = ("class_weight", "class_bias", "assignment")  # a slice for each class


class Learner(Protocol):
    """The players of a GAN, a classifier, or anything else with networks and optimisers."""

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """Name -> network, as checkpoints name it."""

    @property
    def optimizers(self) -> Mapping[str, Optimizer]:
        """Name -> optimiser, as checkpoints name it."""


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Sets the learning rate of an optimiser, of a group its share; on a GPU in place, without a host sync."""
    for group in optimizer.param_groups:
        own = rate * group.get("share", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(own)
        else:
            group["lr"] = own


def place(network: nn.Module, device: torch.device, channels_last: bool, sync: bool) -> None:
    """Readies a network for training on a device; with `sync`, processes share whitening statistics."""
    share_statistics(network, sync)
    network.to(device).train()
    if channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def share_statistics(network: nn.Module, sync: bool) -> None:
    """Sets whether the processes whiten with the statistics of the batch that they have together."""
    for layer in network.modules():
        if isinstance(layer, WhiteningLayer):
            layer.sync = sync


def rate_on(device: torch.device, rate: float) -> Tensor:
    """A learning rate as a tensor, which a CUDA graph reads at every replay."""
    return torch.tensor(rate, dtype=torch.float32, device=device)


def parameters_to_groups(network: nn.Module, coloring_decay: float, class_rate: float) -> list[dict[str, Any]]:
    """Groups of parameters for an optimiser, by their weight decay and their share of the learning rate.

    Coloring matrices decay. What is trained by the images of one class has `class_rate` of the learning rate.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    settings: dict[int, tuple[float, float]] = {}
    for layer in network.modules():
        if isinstance(layer, WhiteningLayer):
            for name, parameter in layer.named_parameters(recurse=False):
                decay = coloring_decay if name in COLORINGS else 0.0
                settings[id(parameter)] = decay, class_rate if name in OF_ONE_CLASS else 1.0
    for parameter in network.parameters():
        groups.setdefault(settings.get(id(parameter), (0.0, 1.0)), []).append(parameter)
    ordered = sorted(groups.items(), key=lambda item: item[0], reverse=True)
    return [{"params": group, "weight_decay": decay, "share": share} for (decay, share), group in ordered]


def update(optimizer: Optimizer, loss: Tensor, network: nn.Module, rank: Rank) -> None:
    """One optimiser step on the loss; only this network's parameters get gradients, and none that is frozen."""
    if loss.shape != ():
        raise ValueError(f"a loss must be a scalar, such as a mean over the batch, got shape {tuple(loss.shape)}")
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = None if gradient is None else laid_out_like(parameter, gradient)
    rank.average_gradients(parameters)
    optimizer.step()


def laid_out_like(parameter: Tensor, values: Tensor) -> Tensor:
    """The values with the parameter's strides, as fused optimisers want them."""
    return values if values.stride() == parameter.stride() else torch.empty_like(parameter).copy_(values)


def count_retries(learner: Learner) -> dict[str, int]:
    """Layer -> the number of batches so far that it could whiten only with extra shrinkage. Waits for the device.

    A network that is not trained, such as a moving average, has no batches of its own.
    """
    return {
        f"{name}.{path}": int(layer.num_retried)
        for name, network in learner.networks.items()
        if any(parameter.requires_grad for parameter in network.parameters())
        for path, layer in network.named_modules()
        if isinstance(layer, WhiteningLayer)
    }


@torch.no_grad()
def update_average(average: nn.Module, network: nn.Module, weight: Tensor) -> None:
    """Moves the parameters and running statistics of an average towards a network's.

    `weight`, a scalar on the device, is how far: 1 makes a copy.
    """
    theirs = network.state_dict()
    for name, value in average.state_dict().items():
        if value.is_floating_point():
            value.lerp_(theirs[name], weight.to(value.dtype))
        else:
            value.copy_(theirs[name])


def learner_to_tensors(learner: Learner) -> dict[str, Tensor]:
    """All tensors of networks and optimisers, under one flat namespace."""
    tensors = {f"{name}.{k}": v for name, network in learner.networks.items() for k, v in network.state_dict().items()}
    for name, optimizer in learner.optimizers.items():
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"{name}.{index}.{k}": v for k, v in state.items()}
    return tensors


def tensors_to_learner(found: Checkpoint, learner: Learner) -> None:
    """Puts a checkpoint's tensors back, in place.

    Raises:
        CheckpointError: if they do not fit.
    """
    for name, network in learner.networks.items():
        tensors_to_network(found, name, network)
    for name, optimizer in learner.optimizers.items():
        optimizer.load_state_dict({**optimizer.state_dict(), "state": _optimizer_state(found, name, optimizer)})


def _optimizer_state(found: Checkpoint, name: str, optimizer: Optimizer) -> dict[int, dict[str, Tensor]]:
    """Parameter's number -> its moments, each as large as the parameter, and its number of steps."""
    state: dict[int, dict[str, Tensor]] = {}
    parameters = dict(enumerate(p for group in optimizer.param_groups for p in group["params"]))
    by_number = {str(number): number for number in parameters}
    for key, value in section(found.tensors, name).items():
        index, _, entry = key.partition(".")
        number = by_number.get(index)
        if number is None or not value.is_floating_point() or value.shape != _shape_of(entry, parameters[number]):
            raise CheckpointError(
                f"{found.path} does not fit the run's config.yaml: {name} has no place for {shortened(key)}"
            )
        # The number of steps stays where the optimiser wants it, on either device.
        fitted = value if entry == "step" else laid_out_like(parameters[number], value)
        state.setdefault(number, {})[entry] = fitted
    if len({frozenset(entries) for entries in state.values()}) > 1:
        raise CheckpointError(f"{found.path} does not fit the run's config.yaml: {name} lacks moments")
    return state


def _shape_of(entry: str, parameter: Tensor) -> torch.Size | None:
    if entry == "step":
        return torch.Size()
    return parameter.shape if entry in ("exp_avg", "exp_avg_sq", "momentum_buffer") else None
