"""Speed of `wcgan.data.load` in images per second: cold (decode and pack) and warm (map the pack and read it).

    python benchmarks/loader.py [--images 2000] [--rounds 3] [--folder DIR]

Writes synthetic folders (JPEG photographs of ImageNet's usual size, and small PNG and JPEG files), loads each with an
empty cache and again with the pack in place, and prints the fastest round. The files are in the page cache, so the
timings cover decoding and mapping, not the disk. Images per second of CPU time are the speed of one core, even on a
loaded machine.
"""

import argparse
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from wcgan import data
from wcgan.data.decode import workers


@dataclass(frozen=True)
class Case:
    """A synthetic folder."""

    name: str
    extension: str
    size: tuple[int, int]
    resolution: int
    share: float  # share of the requested images; large ones take longer


CASES = (
    Case("500x375 JPEG -> 128", "jpg", (500, 375), 128, 0.25),
    Case("64x64 JPEG -> 64", "jpg", (64, 64), 64, 1),
    Case("64x64 PNG -> 64", "png", (64, 64), 64, 1),
    Case("32x32 PNG -> 32", "png", (32, 32), 32, 1),
)


def write_folder(folder: Path, case: Case, count: int) -> None:
    """Writes smooth colours with some noise, so that files are about as large as photographs, in ten classes."""
    rng = np.random.default_rng(0)
    width, height = case.size
    for i in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (height // 16 + 2, width // 16 + 2, 3), np.uint8))
        pixels = np.asarray(coarse.resize(case.size, Image.Resampling.BICUBIC)).astype(np.int16)
        pixels = (pixels + rng.integers(-8, 9, pixels.shape)).clip(0, 255).astype(np.uint8)
        path = folder / str(i % 10) / f"{i:06}.{case.extension}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(folder: Path, case: Case, rounds: int, cache: Path) -> tuple[float, float, float, float]:
    """Fastest round: seconds to load cold (wall and CPU time), to load warm, and to read all images."""

    def load() -> data.Dataset:
        return data.load(folder, resolution=case.resolution)

    cold, processors, warm, read = [], [], [], []
    for _ in range(rounds):
        shutil.rmtree(cache, ignore_errors=True)
        start = time.process_time()
        cold.append(seconds(load))
        processors.append(time.process_time() - start)
        warm.append(seconds(load))
        images = load().images
        read.append(seconds(images.clone))
    return min(cold), min(processors), min(warm), min(read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000, help="number of images in a folder of small ones")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to write the folders; a temporary folder by default")
    options = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {workers()} processors, Pillow {Image.__version__}")
    print(f"{'':22}{'images':>8}{'cold, 1/s':>12}{'1/processor-s':>15}{'warm, ms':>10}{'warm + read, 1/s':>18}")
    with tempfile.TemporaryDirectory(dir=options.folder) as home:
        cache = Path(home) / "cache"
        os.environ["WCGAN_CACHE"] = str(cache)
        for case in CASES:
            count = max(10, int(options.images * case.share))
            folder = Path(home) / case.name.replace(" ", "_")
            write_folder(folder, case, count)
            cold, processors, warm, read = measure(folder, case, options.rounds, cache)
            rates = f"{count / cold:12,.0f}{count / processors:15,.0f}{1e3 * warm:10,.1f}{count / (warm + read):18,.0f}"
            print(f"{case.name:22}{count:8,}{rates}", flush=True)


if __name__ == "__main__":
    main()
