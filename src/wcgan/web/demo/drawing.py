"""Arrays and texts as pictures, on white: legible on a light page and on a dark one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from wcgan.train.images import pixels_to_image

# Blue below 0, white at 0, red above: hues that colour-blind eyes tell apart.
_STOPS = torch.tensor([[5, 48, 97], [67, 147, 195], [247, 247, 247], [214, 96, 77], [103, 0, 31]], dtype=torch.float64)
_INK = (27, 31, 36)
_LEAST_SIDE = 288  # of a heat map, in pixels
_GAP = 8


def values_to_colours(values: Tensor, bound: float) -> Tensor:
    """Values `(H, W)` from -bound (blue) over 0 (white) to bound (red) -> `(3, H, W)` uint8.

    Example:
        >>> values_to_colours(torch.tensor([[-1.0, 0.0, 9.0]]), 1.0).squeeze(1).T.tolist()
        [[5, 48, 97], [247, 247, 247], [103, 0, 31]]
    """
    last = len(_STOPS) - 1
    place = (values.double() / bound).clamp(-1, 1).add(1).mul(last / 2)  # 0 to the last stop
    low = place.floor().clamp(max=last - 1).long()
    part = (place - low).unsqueeze(-1)
    colours = _STOPS[low] * (1 - part) + _STOPS[low + 1] * part  # (H, W, 3)
    return colours.round().to(torch.uint8).permute(2, 0, 1)


def heat_map(values: Tensor, bound: float, cell: int | None = None) -> Image.Image:
    """Values `(H, W)`, each as a square of `cell` pixels; by default as large as is easily seen."""
    return pixels_to_image(values_to_colours(values, bound), cell or max(1, -(-_LEAST_SIDE // values.shape[1])))


def with_names(picture: Image.Image, rows: Sequence[str], columns: Sequence[str] = ()) -> Image.Image:
    """A picture of equally high rows with a name to the left of each, and names above its columns."""
    height = picture.height / len(rows)
    size = int(max(11, min(28, 0.6 * height)))
    font = ImageFont.load_default(size)
    left = 2 * _GAP + int(max(font.getlength(name) for name in rows))
    top = _GAP + size if columns else 0
    sheet = Image.new("RGB", (left + picture.width, top + picture.height), "white")
    sheet.paste(picture, (left, top))
    pen = ImageDraw.Draw(sheet)
    for number, name in enumerate(rows):
        pen.text((left - _GAP, top + (number + 0.5) * height), name, _INK, font, anchor="rm")
    for number, name in enumerate(columns):
        pen.text((left + (number + 0.5) * picture.width / len(columns), top / 2), name, _INK, font, anchor="mm")
    return sheet
