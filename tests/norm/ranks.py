"""What each of two processes runs for `test_distributed`: every case once, its results into a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from tests.norm.cases import CHANNELS, make_batch, make_labels, make_layer
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import wcgan
from wcgan.core.processes import process_group
from wcgan.nets.equal_classes import equal_classes

NAMES = ("WC", "BN", "cWC", "DBN", "IterNorm", "std-C", "WzcaC", "cBN", "cWC_sa")
SPLITS = {"5 and 3": (5, 3), "4 and 0": (4, 0), "1 and 6": (1, 6)}
BATCHES = 2


def start_two(function: Callable[..., None], *arguments: Any) -> None:
    """Calls `function(rank, *arguments)` in two processes; both are forked from one that has imported torch already."""
    multiprocessing.get_context("forkserver").set_forkserver_preload([__name__])
    multiprocessing.start_processes(function, args=arguments, nprocs=2, start_method="forkserver")


def whole_batch(split: str, seed: int) -> tuple[Tensor, Tensor]:
    samples = sum(SPLITS[split])
    return make_batch(samples, CHANNELS, 2, 2, seed=seed), make_labels(samples, seed=seed)


def part_of(rank: int | None, split: str, tensor: Tensor) -> Tensor:
    """A rank's samples; all of them for no rank."""
    return tensor if rank is None else tensor.split(SPLITS[split])[rank]


def loss_of(out: Tensor, rank: int | None, split: str) -> Tensor:
    """A sum over samples with weights of their own: summed over ranks, it is the loss of the whole batch."""
    weights = torch.randn(sum(SPLITS[split]), *out.shape[1:], generator=torch.Generator().manual_seed(5)).double()
    return (part_of(rank, split, weights) * out.pow(2)).sum()


def train_layer(rank: int | None, name: str, split: str) -> dict[str, Any]:
    """Two training batches, then evaluation: what a rank sees, or one process with the whole batch."""
    layer = make_layer(name, momentum=0.3, sync=rank is not None)
    results: dict[str, Any] = {"outputs": [], "input gradients": []}
    for seed in range(BATCHES):
        x, labels = (part_of(rank, split, t) for t in whole_batch(split, seed))
        x = x.clone().requires_grad_()
        out = layer(x, labels) if hasattr(layer, "classes") else layer(x)
        loss_of(out, rank, split).backward()
        results["outputs"].append(out.detach())
        results["input gradients"].append(x.grad)
    results["parameter gradients"] = [parameter.grad for parameter in layer.parameters()]
    results["buffers"] = {key: value.clone() for key, value in layer.named_buffers()}
    x, labels = whole_batch(split, 7)
    layer.eval()
    results["evaluation"] = (layer(x, labels) if hasattr(layer, "classes") else layer(x)).detach()
    return results


def differentiate_statistics(rank: int | None) -> dict[str, Tensor]:
    """Features with a matrix for each sample, and the gradient of a sum of statistics, which each rank weights anew."""
    split, group = "5 and 3", "" if rank is None else dist.group.WORLD.group_name
    x, color = (part_of(rank, split, make_batch(8, *shape)) for shape in ((CHANNELS,), (CHANNELS, CHANNELS)))
    x = x.clone().requires_grad_()
    out, (mean, covariance, _) = wcgan.functional.whiten_color(x, color, torch.zeros_like(x), process_group=group)
    own, other = torch.randn(2, CHANNELS, CHANNELS, generator=torch.Generator().manual_seed(6)).double()
    weights = own + other if rank is None else (own, other)[rank]
    ((weights * covariance).sum() + weights[0] @ mean).backward()
    return {"out": out.detach(), "gradient": x.grad}


def far_from_zero() -> Tensor:
    """A batch in float32 whose mean is far larger than its spread."""
    return (make_batch(8, CHANNELS, 2, 2) + 1e4).float()


def covariance_far_from_zero(rank: int) -> Tensor:
    x = part_of(rank, "5 and 3", far_from_zero())
    return wcgan.functional.whiten_color(x, process_group=dist.group.WORLD.group_name)[1].covariance[0]


class Critic(nn.Module):
    """A small network with a layer inside; the penalty on its slope needs second derivatives."""

    def __init__(self, name: str, sync: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(CHANNELS, CHANNELS, 1, dtype=torch.float64)
        self.norm = make_layer(name, sync=sync)
        self.last = nn.Conv2d(CHANNELS, 1, 1, dtype=torch.float64)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        features = self.first(x)
        features = self.norm(features, labels) if hasattr(self.norm, "classes") else self.norm(features)
        return self.last(torch.tanh(features))


def penalize_slope(rank: int | None, name: str) -> dict[str, Any]:
    """The gradient of a penalty on the gradient of the whole batch's score to the rank's images."""
    split = "5 and 3"
    model = Critic(name, sync=rank is not None)
    x, labels = (part_of(rank, split, t) for t in whole_batch(split, 0))
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss_of(model(x, labels), rank, split), x, create_graph=True)
    penalty = slope.pow(2).sum()
    penalty.backward()
    return {
        "penalty": penalty.detach(),
        "input gradients": x.grad,
        "parameter gradients": [zeros_if_none(parameter) for parameter in model.parameters()],
    }


def zeros_if_none(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def train_in_parallel(rank: int | None, name: str) -> dict[str, Any]:
    """Three steps of gradient descent, wrapped in DistributedDataParallel on a rank; DDP averages over ranks."""
    split = "5 and 3"
    model = Critic(name, sync=rank is not None)
    wrapped = model if rank is None else DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for seed in range(3):
        x, labels = (part_of(rank, split, t) for t in whole_batch(split, seed))
        loss = loss_of(wrapped(x, labels), rank, split) / (2 if rank is None else 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {"state": {key: value.clone() for key, value in model.state_dict().items()}}


def one_bad_rank(rank: int) -> dict[str, Any]:
    """A NaN on rank 1 alone."""
    layer = make_layer("WC", sync=True)
    x = make_batch(4, CHANNELS, 2, 2, seed=rank)
    if rank == 1:
        x[0, 0] = torch.nan
    out = layer(x)
    return {"nan": out.isnan().all(), "nonfinite": layer.num_nonfinite.clone(), "state": layer.state_dict()}


def own_group(rank: int) -> dict[str, Any]:
    """A process group of one: a synchronised layer shares with nobody, and converting keeps to the group."""
    groups = [dist.new_group([r]) for r in range(2)]
    x = make_batch(4, CHANNELS, 2, 2, seed=rank)
    alone = make_layer("WC", sync=True, process_group=groups[rank])(x).detach()
    source = nn.SyncBatchNorm(CHANNELS, process_group=groups[rank]).double()
    return {
        "alone": alone,
        "converted": wcgan.convert_batchnorm(source)(x).detach(),
        "lonely": outcome_of(lambda: make_layer("WC", sync=True, process_group=groups[rank])(x[:1, :, :1, :1])),
    }


def outcome_of(call: Any) -> str:
    try:
        return f"returned {call().flatten().tolist()}"
    except ValueError as error:
        return f"ValueError: {error}"


def compiled_layer(rank: int) -> dict[str, Any]:
    """A synchronised layer under torch.compile."""
    layer = make_layer("WC", momentum=0.3, sync=True)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x, _ = (part_of(rank, "5 and 3", t) for t in whole_batch("5 and 3", 0))
    x = x.clone().requires_grad_()
    out = compiled(x)
    loss_of(out, rank, "5 and 3").backward()
    return {"out": out.detach(), "gradient": x.grad, "covariance": layer.running_covariance.clone()}


def penalize_classes(rank: int | None, whitened: bool) -> Tensor:
    """The gradient of the penalty on classes of unequal size to the rank's images."""
    split, group = "5 and 3", "" if rank is None else str(dist.group.WORLD.group_name)
    x, labels = (part_of(rank, split, t) for t in whole_batch(split, 0))
    x = (x * (1 + labels).view(-1, 1, 1, 1)).requires_grad_()
    out = equal_classes(x, labels, 3, 0.7, whitened, group)
    return torch.autograd.grad(out, x, torch.zeros_like(out))[0]


def run(rank: int, folder: str) -> None:
    """All cases on one rank."""
    torch.set_num_threads(1)
    with process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2):
        results: dict[Any, Any] = {}
        for name in NAMES:
            for split in SPLITS:
                results["train", name, split] = caught(train_layer, rank, name, split)
        for name in ("WC", "BN", "cWC"):
            results["penalty", name] = caught(penalize_slope, rank, name)
            results["parallel", name] = caught(train_in_parallel, rank, name)
        for whitened in (False, True):
            results["classes", whitened] = caught(penalize_classes, rank, whitened)
        results["statistics"] = caught(differentiate_statistics, rank)
        results["far from zero"] = caught(covariance_far_from_zero, rank)
        results["bad"] = caught(one_bad_rank, rank)
        results["own group"] = caught(own_group, rank)
        results["compiled"] = caught(compiled_layer, rank)
        torch.save(results, Path(folder) / f"rank{rank}.pt")
    os._exit(0)  # not through destructors: now and then, one of PyTorch's waits forever for a thread of Gloo


def caught(case: Any, *args: Any) -> Any:
    """A case's results, or its error as text: one case that fails on both ranks must not hide the others."""
    try:
        return case(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
