"""Sums over the processes that share an evaluation."""

import torch.distributed as dist
from torch import Tensor

from wcgan.train.parallel import Rank


def total_over_ranks(value: Tensor, rank: Rank) -> Tensor:
    """The sum of every process's tensor, on every process."""
    if rank.count == 1:
        return value
    total = value.clone()
    dist.all_reduce(total)
    return total
