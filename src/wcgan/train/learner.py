"""What is trained, as a loop sees it: networks and their optimisers, by name."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from wcgan.core.processes import Rank
from wcgan.norm import WhiteningLayer
from wcgan.runs.checkpoint import Checkpoint, section, tensors_to_network

Losses = dict[str, Tensor]
"""Name -> what was measured of an update, on the device."""


class Learner(Protocol):
    """Two players of a GAN, a classifier, or anything else with weights and steps."""

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """Name -> network, as checkpoints name it."""

    @property
    def optimizers(self) -> Mapping[str, Optimizer]:
        """Name -> optimiser, as checkpoints name it."""


def set_learning_rate(learner: Learner, rate: float) -> None:
    """Of all optimisers; on a GPU in place, and without a wait for it."""
    for optimizer in learner.optimizers.values():
        for group in optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


def place(network: nn.Module, device: torch.device, channels_last: bool, sync: bool) -> None:
    """Readies a network for training on a device; with `sync`, its statistics are those of all processes."""
    for layer in network.modules():
        if isinstance(layer, WhiteningLayer):
            layer.sync = sync
    network.to(device).train()
    if channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def rate_on(device: torch.device, rate: float) -> Tensor:
    """A learning rate where a CUDA graph can read it."""
    return torch.tensor(rate, dtype=torch.float32, device=device)


def update(optimizer: Optimizer, loss: Tensor, network: nn.Module, rank: Rank) -> None:
    """One step down the loss; only this network's parameters get gradients."""
    parameters = list(network.parameters())
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = None if gradient is None else laid_out_like(parameter, gradient)
    rank.average_gradients(parameters)
    optimizer.step()


def laid_out_like(parameter: Tensor, values: Tensor) -> Tensor:
    """The values with the parameter's strides, as fused optimisers want them."""
    return values if values.stride() == parameter.stride() else torch.empty_like(parameter).copy_(values)


def learner_to_tensors(learner: Learner) -> dict[str, Tensor]:
    """Every tensor of the run under one flat namespace."""
    tensors = {f"{name}.{k}": v for name, network in learner.networks.items() for k, v in network.state_dict().items()}
    for name, optimizer in learner.optimizers.items():
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"{name}.{index}.{k}": v for k, v in state.items()}
    return tensors


def tensors_to_learner(found: Checkpoint, learner: Learner) -> None:
    """Puts a checkpoint's tensors back, in place."""
    for name, network in learner.networks.items():
        tensors_to_network(found, name, network)
    for name, optimizer in learner.optimizers.items():
        state: dict[int, dict[str, Tensor]] = {}
        parameters = optimizer.param_groups[0]["params"]
        for key, value in section(found.tensors, name).items():
            index, _, entry = key.partition(".")
            moment = entry != "step"  # the number of steps lies where the optimiser wants it, on either device
            state.setdefault(int(index), {})[entry] = laid_out_like(parameters[int(index)], value) if moment else value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
