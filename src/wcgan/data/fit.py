"""Images of one size and number of channels -> images of another.

Pillow resizes files and arrays alike: it computes in integers, so that every machine gives the same pixels.
"""

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def fit_image(image: Image.Image, resolution: int) -> Image.Image:
    """The central square, resized: bicubic, with antialiasing when it shrinks."""
    if image.size == (resolution, resolution):
        return image
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    box = (left, top, left + side, top + side)
    return image.resize((resolution, resolution), Image.Resampling.BICUBIC, box=box)


def fit(images: NDArray[np.uint8], resolution: int, channels: int) -> NDArray[np.uint8]:
    """`fit_image` of each, in grey or colour.

    A grey image becomes three equal channels; a colour image becomes its luma (ITU-R 601).

    Args:
        images: (n, C, H, W), C = 1 or 3.
        resolution: height and width to give.
        channels: 1 or 3.

    Returns:
        (n, channels, resolution, resolution).
    """
    if images.shape[1:] == (channels, resolution, resolution):
        return images
    if images.shape[1] == 1 and channels == 3:
        return np.repeat(fit(images, resolution, 1), 3, axis=1)
    fitted = np.empty((len(images), channels, resolution, resolution), np.uint8)
    for i, planes in enumerate(images):
        image = Image.fromarray(planes[0] if len(planes) == 1 else np.ascontiguousarray(planes.transpose(1, 2, 0)))
        pixels = np.asarray(fit_image(image.convert("L") if channels == 1 else image, resolution))
        fitted[i] = pixels if channels == 1 else pixels.transpose(2, 0, 1)  # (R, R) or (R, R, 3)
    return fitted
