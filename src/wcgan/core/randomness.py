"""Randomness without state: every draw is a function of the seed, its purpose and the iteration.

Nothing needs to be saved to resume a run with the same bits, and every process of a distributed run can draw the whole
global batch and keep its share, so that a run does not depend on how many processes share it.
"""

import hashlib

import torch


def generator_for(seed: int, purpose: str, step: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A random generator of its own for each purpose and step."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{step}".encode(), digest_size=8).digest()
    generator = torch.Generator(device=device)
    generator.manual_seed(int.from_bytes(digest, "little") >> 1)
    return generator
