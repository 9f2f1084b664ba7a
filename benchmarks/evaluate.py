"""Speed of FID in images per second, compared with torch-fidelity on the same images and weights.

    python benchmarks/evaluate.py [--device cpu|cuda] [--weights FILE] [--data FOLDER] [--images 64] [--rounds 3]

Both read uint8 tensors, so that decoding PNG files is not part of the timing, and both take turns. A round computes one
FID against a reference set, from pixels to the score. Ours streams features into moments; torch-fidelity's
`calculate_metrics` collects all features first. Random weights are used if none are given; the work is the same. With
weights and `--data`, the script also prints the FID of CIFAR-10's 50,000 training images against its 10,000 test images
(published: 3.15), and the time for 10,000 images once the reference is cached.
"""

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from wcgan import __version__, data
from wcgan.evaluate.inception import Inception, empty_network, fidelity_version, import_torchvision, load_inception
from wcgan.evaluate.protocol import Plan
from wcgan.evaluate.score import evaluate_images

REFERENCE = 32  # images in the reference set, the same for both


class Pixels(TorchDataset[Tensor]):
    """Images in the form that torch-fidelity accepts."""

    def __init__(self, images: Tensor) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return self.images[index]


def write_complete_weights(weights: Path | None, file: Path) -> None:
    """The weights, with missing ones filled in at random: torch-fidelity requires all of them."""
    torch.manual_seed(0)
    state = empty_network(("2048",)).state_dict()
    if weights is not None:
        state |= torch.load(weights, map_location="cpu", weights_only=True)
    torch.save(state, file)


def random_set(count: int, seed: int) -> data.Dataset:
    images = torch.randint(0, 256, (count, 3, 32, 32), generator=torch.Generator().manual_seed(seed)).to(torch.uint8)
    return data.Dataset(images, None, (), "random", "train", f"random-{count}-{seed}")


def ours(network: Inception, images: data.Dataset, reference: data.Dataset) -> float:
    plan = Plan("benchmark", len(reference), len(images), 1, 0)
    with tempfile.TemporaryDirectory() as cache:  # so that nothing is cached between rounds
        scores = evaluate_images(images, reference, [network], plan, metrics=("fid",), cache=Path(cache))
    return float(scores["FID"])


def theirs(weights: Path, images: data.Dataset, reference: data.Dataset, device: str, batch: int) -> float:
    import_torchvision()
    from torch_fidelity import calculate_metrics  # type: ignore[import-untyped]

    scores = calculate_metrics(
        input1=Pixels(images.images),
        input2=Pixels(reference.images),
        feature_extractor_weights_path=str(weights),
        cuda=device == "cuda",
        fid=True,
        batch_size=batch,
        save_cpu_ram=True,  # no worker processes: the images are in memory
        cache=False,
        verbose=False,
    )
    return float(scores["frechet_inception_distance"])


def seconds(function: Callable[[], float]) -> tuple[float, float]:
    start = time.perf_counter()
    value = function()
    return time.perf_counter() - start, value


def features_per_second(network: Inception, file: Path, images: Tensor, rounds: int) -> dict[str, float]:
    """Speed of the two networks alone, in turns."""
    plain = empty_network(("2048",))
    plain.load_state_dict(torch.load(file, weights_only=True))
    plain.to(network.device)

    def run(predict: Callable[[Tensor], Any], batch: int) -> float:
        for part in images.split(batch):
            last = predict(part.to(network.device))[0]
        return float(last.sum())  # waits for the device

    times: dict[str, list[float]] = {"ours": [], "torch-fidelity": []}
    with torch.no_grad():
        for _ in range(rounds + 1):
            times["ours"].append(seconds(lambda: run(network.predict, network.batch))[0])
            times["torch-fidelity"].append(seconds(lambda: run(plain, network.batch))[0])
    return {name: len(images) / median(values[1:]) for name, values in times.items()}


def measure(arguments: argparse.Namespace, file: Path) -> dict[str, Any]:
    write_complete_weights(arguments.weights, file)
    network = load_inception(file, arguments.device)
    images, reference = random_set(arguments.images, 0), random_set(REFERENCE, 1)
    rounds: dict[str, list[tuple[float, float]]] = {"ours": [], "torch-fidelity": []}
    for _ in range(arguments.rounds):
        rounds["ours"].append(seconds(lambda: ours(network, images, reference)))
        rounds["torch-fidelity"].append(
            seconds(lambda: theirs(file, images, reference, arguments.device, network.batch))
        )
    report: dict[str, Any] = {
        "images": arguments.images,
        "rounds": arguments.rounds,
        "seconds": {name: [round(s, 3) for s, _ in values] for name, values in rounds.items()},
        "FID": {name: values[-1][1] for name, values in rounds.items()},
        "images_per_second_of_the_network": features_per_second(network, file, images.images, arguments.rounds),
    }
    return report


def measure_cifar(weights: Path, folder: Path, device: str) -> dict[str, Any]:
    """FID of CIFAR-10's training images against its test images, and the time for 10,000 images after that."""
    network = load_inception(weights, device)
    train, test = (data.load("cifar10", split, folder) for split in ("train", "test"))
    with tempfile.TemporaryDirectory() as cache:
        options: dict[str, Any] = {"metrics": ("fid",), "cache": Path(cache)}
        first = evaluate_images(train, test, [network], Plan("50k against 10k", 10_000, 50_000, 1, 0), **options)
        second = evaluate_images(train, test, [network], Plan("10k against 10k", 10_000, 10_000, 1, 0), **options)
    return {
        "FID_train_against_test": round(first["FID"], 4),
        "seconds_of_60k_images": first["seconds"],
        "seconds_of_10k_images_against_a_known_reference": second["seconds"],
        "weights": network.fingerprint,
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--weights", type=Path, help="Inception weights; random by default, at the same speed")
    parser.add_argument("--data", type=Path, help="folder of the named datasets, for CIFAR-10")
    parser.add_argument("--images", type=int, help="images per round; by default 64 on a CPU and 10000 on a GPU")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    chosen = parser.parse_args(arguments)
    chosen.images = chosen.images or (10_000 if chosen.device == "cuda" else 64)
    with tempfile.TemporaryDirectory() as folder:
        report = measure(chosen, Path(folder) / "weights.pth")
    gpu = chosen.device == "cuda"
    report["machine"] = (
        torch.cuda.get_device_name() if gpu else f"{platform.machine()}, {torch.get_num_threads()} threads"
    )
    report["versions"] = {"wcgan": __version__, "torch": torch.__version__, "torch-fidelity": fidelity_version()}
    if chosen.data is not None and chosen.weights is not None:
        report["cifar10"] = measure_cifar(chosen.weights, chosen.data, chosen.device)
    both = {name: median(values) for name, values in report["seconds"].items()}
    print(f"{report['machine']}: FID of {chosen.images} images, median of {chosen.rounds} rounds")
    for name, value in both.items():
        alone = report["images_per_second_of_the_network"][name]
        print(f"  {name:16}{value:8.2f} s{chosen.images / value:10.1f} images/s; network alone {alone:10.1f} images/s")
    print(f"  ratio           {both['torch-fidelity'] / both['ours']:8.2f}")
    for name, value in report.get("cifar10", {}).items():
        print(f"  {name}: {value}")
    if chosen.out is not None:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
