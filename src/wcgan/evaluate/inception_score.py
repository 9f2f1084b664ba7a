"""The Inception Score's formula, on the predictions of any classifier."""

from __future__ import annotations

import torch
from torch import Tensor


def inception_score(logits: Tensor, splits: int = 10) -> tuple[float, float]:
    r"""How sure the predictions are of one class each, and how evenly they spread over the classes.

    .. math:: \exp \operatorname{E}_x \operatorname{KL}(p(y|x) \,\|\, p(y))
              = \exp \big( H[\operatorname{E}_x p(y|x)] - \operatorname{E}_x H[p(y|x)] \big)

    Between 1 (every image gets the same prediction) and the number of classes (each image gets one class, all
    classes equally often).

    Args:
        logits: `(n, classes)`, in the order in which the images were made.
        splits: consecutive parts of (almost) equal size; each gets a score.

    Returns:
        The mean of the scores and their standard deviation (that of these scores, 1 / splits).

    Raises:
        ValueError: for fewer than 2 images, splits that cannot be filled, or NaN.

    Example:
        >>> import torch
        >>> inception_score(1000 * torch.eye(4), splits=1)
        (4.0, 0.0)
    """
    if logits.dim() != 2:
        raise ValueError(f"logits must be (n, classes), got shape {tuple(logits.shape)}")
    n = len(logits)
    if n < 2:
        raise ValueError(f"a score needs at least 2 images, got {n}")
    if not 1 <= splits <= n:
        raise ValueError(f"splits must be from 1 to the number of images, {n}, got {splits}")
    broken = int(logits.isnan().any(1).sum())
    if broken:
        raise ValueError(f"the predictions for {broken} of {n} images are NaN: no score can be computed from them")
    probabilities = logits.detach().to("cpu", torch.float64).softmax(1)
    scores = torch.stack([_score(part) for part in probabilities.tensor_split(splits)])
    return float(scores.mean()), float(scores.std(correction=0))


def _score(probabilities: Tensor) -> Tensor:
    """The score of predictions `(n, classes)`."""
    marginal = torch.special.entr(probabilities.mean(0)).sum()
    conditional = torch.special.entr(probabilities).sum(1).mean()
    return (marginal - conditional).exp()
