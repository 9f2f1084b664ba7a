"""A generator's output to pictures: pixels, grids and image files."""

from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from wcgan.core.files import require_new


def to_uint8(images: Tensor) -> Tensor:
    """[-1, 1] -> 0..255: the inverse of dequantisation, which spreads value v over [v, v+1) / 128 - 1."""
    return ((images.float() + 1) * 128).floor().clamp(0, 255).to(torch.uint8)


def grid(images: Tensor, columns: int, border: int = 2) -> Tensor:
    """`(N, C, H, W)` uint8 -> one picture `(C, rows H, columns W)`, filled row by row, on white."""
    n, c, h, w = images.shape
    rows = -(-n // columns)
    picture = images.new_full((c, rows * (h + border) + border, columns * (w + border) + border), 255)
    for i, image in enumerate(images):
        top, left = (border + k * (size + border) for k, size in zip(divmod(i, columns), (h, w), strict=True))
        picture[:, top : top + h, left : left + w] = image
    return picture


def scale_to_show(resolution: int) -> int:
    """The factor by which images are enlarged for display; small images more."""
    return max(1, 64 // resolution)


def pixels_to_image(pixels: Tensor, scale: int = 1) -> Image.Image:
    """`(C, H, W)` uint8 with one or three channels, each pixel as a square of `scale`."""
    image = Image.fromarray(pixels.cpu().permute(1, 2, 0).squeeze(2).contiguous().numpy())
    return image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)


def write_png(picture: Tensor, path: Path, scale: int = 1) -> None:
    """Writes a picture to a PNG file; see `pixels_to_image`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels_to_image(picture, scale).save(path)


def write_images(images: Tensor, target: Path) -> None:
    """Writes all images as one grid to a `.png`, or one by one to a folder, which must be new or empty."""
    if target.suffix.lower() == ".png":
        write_png(grid(images, columns=max(1, round(len(images) ** 0.5))), target)
        return
    require_new(target, "name another folder, or a .png file for a grid")
    for number, image in enumerate(images):
        write_png(image, target / f"{number:06d}.png")
