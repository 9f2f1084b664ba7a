"""The handwritten digits that come with scikit-learn: the dataset that is always there."""

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray

from wcgan.data.fit import fit
from wcgan.data.pack import Pack, content_fingerprint
from wcgan.data.sources import SOURCES


def load_digits(split: str, resolution: int, channels: int) -> Pack:
    """1,797 digits of 8 x 8 pixels; of each class, in the order they are published, every fifth is a test image."""
    try:
        from sklearn import datasets  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError("the digits come with scikit-learn: pip install 'wcgan[train]'") from error
    published = datasets.load_digits()
    labels = published.target.astype(np.int64)
    chosen = _is_test(labels) == (split == "test")
    pixels = np.rint(published.images[chosen] * (255 / 16)).astype(np.uint8)  # 0..16 -> 0..255
    images, labels = np.ascontiguousarray(fit(pixels[:, None], resolution, channels)), labels[chosen]
    classes = SOURCES["digits"].classes
    label_bytes = labels.astype("<i8").tobytes()
    fingerprint = content_fingerprint(hashlib.sha256(images.data), label_bytes, images.shape, classes)
    return Pack(torch.tensor(images), torch.tensor(labels), classes, fingerprint, ())


def _is_test(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    place = np.empty_like(labels)  # of each digit among those of its class
    for label in np.unique(labels):
        members = labels == label
        place[members] = np.arange(members.sum())
    return place % 5 == 2
