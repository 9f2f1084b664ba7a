"""Randomness without state: every draw is a function of the seed, its purpose and the iteration.

Nothing needs to be saved to resume a run with the same bits, and every process of a distributed run can draw the whole
global batch and keep its share, so that a run does not depend on how many processes share it.
"""

import hashlib

import torch
from torch import Tensor


def generator_for(seed: int, purpose: str, step: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A random generator of its own for each purpose and step."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{step}".encode(), digest_size=8).digest()
    generator = torch.Generator(device=device)
    generator.manual_seed(int.from_bytes(digest, "little") >> 1)
    return generator


class EpochOrder:
    """The order of the data: one permutation after another, cut into batches that may span two of them."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed
        self._epoch, self._permutation = -1, torch.empty(0, dtype=torch.int64)

    def indices(self, step: int, batch: int) -> Tensor:
        """The indices `(batch,)` of a step."""
        parts, start, stop = [], step * batch, (step + 1) * batch
        while start < stop:
            epoch, offset = divmod(start, self.size)
            taken = min(self.size - offset, stop - start)
            parts.append(self._order(epoch)[offset : offset + taken])
            start += taken
        return torch.cat(parts)

    def _order(self, epoch: int) -> Tensor:
        if epoch != self._epoch:
            generator = generator_for(self.seed, "order", epoch)
            self._epoch, self._permutation = epoch, torch.randperm(self.size, generator=generator)
        return self._permutation
