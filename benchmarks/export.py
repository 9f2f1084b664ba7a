"""Size and speed of exported generators: ONNX files in onnxruntime, compared with batch norm.

    python benchmarks/export.py [--width 64] [--batch 16] [--rounds 20]

Times are milliseconds on one core; the generators take turns. `all` keeps a matrix per class, or the dictionary; `one`
keeps a single class. `maps` and `fold` run in PyTorch: in `maps` the normalisation layers are separate linear maps, in
`fold` they are merged into the convolutions.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import torch

import wcgan
from _gpu.timing import Timer, take_turns
from wcgan.export import sampler_to_servable, write_onnx
from wcgan.export.programs import onnx_runner
from wcgan.nets import GeneratorConfig, build_generator
from wcgan.runs.sampler import Sampler

CLASSES = 10
# Name -> normalisation, and the class to keep (None for all).
ROWS: dict[str, tuple[str, int | None]] = {
    "BN": ("BN", None),
    "WC": ("WC", None),
    "cBN, all": ("cBN", None),
    "cWC, all": ("cWC", None),
    "cWC_sa, all": ("cWC_sa", None),
    "cBN, one": ("cBN", 0),
    "cWC, one": ("cWC", 0),
}


def build(name: str, kind: str, width: int) -> Sampler:
    """A generator whose running statistics differ from their initial values."""
    torch.manual_seed(0)
    classes = CLASSES if wcgan.VARIANTS[name].conditional else None
    config = GeneratorConfig(kind=kind, widths=(width,) * 3, normalization=name, classes=classes)
    sampler = Sampler(build_generator(config))
    labels = sampler.labels(64, None)
    with torch.no_grad():
        sampler.network(sampler.noise(64, 0), *(() if labels is None else (labels,)))
    sampler.network.eval().requires_grad_(False)
    return sampler


def processor_seconds(call: Callable[[], object]) -> float:
    """CPU seconds of this process, unaffected by other processes."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def measure(kind: str, width: int, batch: int, rounds: int) -> list[tuple[str, int, list[float]]]:
    """Rows: name, size of the ONNX file, and seconds in onnxruntime, for `fold` and for `maps`."""
    sizes: dict[str, int] = {}
    timers: dict[str, Timer] = {}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for name, (normalization, label) in ROWS.items():
            sampler = build(normalization, kind, width)
            servable = sampler_to_servable(sampler, label)
            path = Path(folder) / f"{name}.onnx"
            write_onnx(servable, path, lambda what, done, total: None)
            sizes[name] = path.stat().st_size
            inputs = servable.draw(batch, 0)
            for form, model in (
                ("onnx", onnx_runner(path, threads=1)),
                ("fold", wcgan.fold(sampler.network, label)),
                ("maps", wcgan.fold(sampler.network, label, neighbours=False)),
            ):
                timers[f"{name}/{form}"] = partial(processor_seconds, partial(model, *inputs))
        times = {name: median(values) for name, values in take_turns(timers, rounds).items()}
    return [(name, sizes[name], [times[f"{name}/{form}"] for form in ("onnx", "fold", "maps")]) for name in ROWS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=64, help="channels (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="images per batch (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=20, help="rounds (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| generator | KiB of ONNX | onnxruntime, ms | beside BN | fold, ms | beside BN | maps, ms | beside BN |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in ("resnet", "dcgan"):
        rows = measure(kind, options.width, options.batch, options.rounds)
        first = rows[0][2]
        for name, size, seconds in rows:
            cells = [f"{1e3 * s:.1f} | {s / base:.2f}" for s, base in zip(seconds, first, strict=True)]
            print(f"| {kind}, {name} | {size / 1024:,.0f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
