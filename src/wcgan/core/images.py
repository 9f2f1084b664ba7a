"""A generator's output to pictures: pixels, grids and image files."""

import io
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from wcgan.core.files import is_named_like_a_file, require_new, write_atomically

FRAME_COLUMNS, FRAME_MILLISECONDS = 4, 80
LARGE = 640
"""Width in pixels to which pictures on a page and animations are enlarged."""
PNG_HEADER = 24  # bytes of a PNG up to and including its size
_INK, _TAG, _GAP = "white", (87, 96, 106), 8  # of names; readable on a light and on a dark page


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


def scale_to_fill(images: Tensor, columns: int) -> int:
    """The factor that makes a grid of images `(N, C, H, W)` at least `LARGE` pixels wide."""
    return -(-LARGE // (columns * images.shape[-1]))


def pixels_to_image(pixels: Tensor, scale: int = 1) -> Image.Image:
    """`(C, H, W)` uint8 with one, three or four channels, each pixel as a square of `scale`."""
    image = Image.fromarray(pixels.cpu().permute(1, 2, 0).squeeze(2).contiguous().numpy())
    return image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)


def with_names(picture: Image.Image, rows: Sequence[str], columns: Sequence[str] = ()) -> Image.Image:
    """A picture with a name to the left of each of its rows and, if given, above each of its columns."""
    rows, columns = [_to_ascii(name) for name in rows], [_to_ascii(name) for name in columns]
    height = picture.height / len(rows)
    size = int(max(11, min(28, 0.5 * height)))
    font = ImageFont.load_default(size)
    left = 3 * _GAP + int(max(font.getlength(name) for name in rows))
    top = 2 * _GAP + size if columns else 0
    sheet = Image.new("RGBA", (left + picture.width, top + picture.height))
    sheet.paste(picture, (left, top))
    pen = ImageDraw.Draw(sheet)
    places = [(left - 2.0 * _GAP, top + (number + 0.5) * height, name, "rm") for number, name in enumerate(rows)]
    width = picture.width / max(1, len(columns))
    places += [(left + (number + 0.5) * width, top / 2, name, "mm") for number, name in enumerate(columns)]
    for x, y, name, anchor in places:
        box = pen.textbbox((x, y), name, font, anchor)
        pen.rounded_rectangle((box[0] - _GAP, y - 0.6 * size, box[2] + _GAP, y + 0.6 * size), 0.3 * size, _TAG)
        pen.text((x, y), name, _INK, font, anchor)
    return sheet


def _to_ascii(name: str) -> str:
    """A name in the letters of Pillow's own font: accents are left out, and other characters become `?`."""
    bases = (base for base in unicodedata.normalize("NFKD", name) if not unicodedata.combining(base))
    return "".join(base if base.isascii() else "?" for base in bases)


def frames_to_pictures(frames: Tensor) -> list[Image.Image]:
    """Frames `(F, N, C, H, W)` uint8, each with N images -> pictures with the images side by side, large."""
    columns = min(FRAME_COLUMNS, frames.shape[1])
    return [pixels_to_image(grid(images, columns), scale_to_fill(images, columns)) for images in frames]


def pictures_to_animation(pictures: Sequence[Image.Image], kind: str) -> bytes:
    """An endless animation there and back; lossless as `"webp"`, in 256 colours as `"gif"`."""
    film, content = [*pictures, *pictures[-2:0:-1]], io.BytesIO()
    options = {"lossless": True, "exact": True} if kind == "webp" else {}
    film[0].save(content, kind, save_all=True, append_images=film[1:], duration=FRAME_MILLISECONDS, loop=0, **options)
    return content.getvalue()


def write_animation(frames: Tensor, file: Path) -> None:
    """Writes frames `(F, N, C, H, W)` uint8 as an endless animation there and back.

    Raises:
        ValueError: for a file that is neither a `.gif` nor a `.webp`.
    """
    kind = file.suffix.lower().removeprefix(".")
    if kind not in ("gif", "webp"):
        raise ValueError(f"an animation is a .gif or a .webp file, not {file}")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, pictures_to_animation(frames_to_pictures(frames), kind))


def image_to_png(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


def png_size(content: bytes) -> tuple[int, int]:
    """The width and height of a PNG, from its header.

    Raises:
        ValueError: if the header is not that of a PNG.
    """
    # A PNG opens with 8 fixed bytes, then the header chunk: length, "IHDR", width, height.
    if len(content) < PNG_HEADER or content[:8] != b"\x89PNG\r\n\x1a\n" or content[12:16] != b"IHDR":
        raise ValueError("it is not a PNG")
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def write_png(picture: Tensor, path: Path, scale: int = 1) -> None:
    """Writes a picture to a PNG file, atomically; see `pixels_to_image`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, image_to_png(pixels_to_image(picture, scale)))


def check_images_target(target: Path) -> None:
    """Raises a ValueError for a name under which `write_images` writes nothing."""
    if target.suffix.lower() == ".png":
        return
    if is_named_like_a_file(target):
        raise ValueError(
            f"{target} is neither a .png file, for a grid, nor a folder, for one .png per image: a new folder has a "
            f"name without {target.suffix}"
        )
    require_new(target, "name another folder, or a .png file for a grid")


def write_images(images: Tensor, target: Path) -> None:
    """Writes all images as one grid to a `.png`, or one by one to a folder, which must be new or empty.

    Raises:
        ValueError: for a name with another extension that is not an existing folder, or a folder that is not empty.
    """
    check_images_target(target)
    if target.suffix.lower() == ".png":
        write_png(grid(images, columns=max(1, round(len(images) ** 0.5))), target)
        return
    target.mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(images):
        pixels_to_image(image).save(target / f"{number:06d}.png")  # to flush each to the disk would take longer
