"""Coverage-guided fuzzing of everything that reads files from others: `python -m tests.attack.fuzz LOADER`.

Each loader is a function of one file's bytes. It passes if the file is read or refused with one sentence that names it,
and fails on any other exception. atheris adds limits on time and memory. Inputs that reached new code in earlier runs
are in `tests/corpus`; `tests/attack/test_corpus.py` replays them without atheris.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from tests.attack.tally import require_named, require_sentence
from tests.mutations import with_other_values

CORPUS = Path(__file__).parents[1] / "corpus"
SECONDS, MEGABYTES = 10, 2048  # for one input; torch takes some 400 of the megabytes
MEMORY = Path("/dev/shm")  # a disk would take most of the time
Load = Callable[[bytes], None]
Mutate = Callable[[bytes, random.Random], bytes]


class Loader(NamedTuple):
    """What is fuzzed, and how."""

    prepare: Callable[[Path], Load]
    """An empty folder -> the function to fuzz. Imports what it needs, so that atheris can instrument it."""
    most: int
    """Bytes of an input."""
    instrumented: tuple[str, ...]
    """Packages in which new code counts as progress."""
    mutate: Mutate | None = None
    """Damage to the parsed content, for every other input; the rest is libFuzzer's damage to bytes."""


@contextmanager
def may_refuse(name: str) -> Iterator[None]:
    """A refusal is one sentence about the file of that name; whatever else is raised is a finding."""
    try:
        yield
    except (ValueError, OSError) as error:
        require_named(error, name)
        require_sentence(error)


def checkpoint(folder: Path) -> Load:
    """A line of facts, then the tensors: the hash is put right, as whoever writes a checkpoint can."""
    from tests.train.cases import tiny_config

    from wcgan.runs.checkpoint import _digest, check_config, read_checkpoint
    from wcgan.train.learner import tensors_to_learner

    config, learner, file = tiny_config(), tiny_learner(), folder / "0000004.safetensors"

    def load(data: bytes) -> None:
        line, _, content = data.partition(b"\n")
        try:
            facts = json.loads(line)
            facts["bytes"] = len(content)
            facts["sha256"] = _digest(content, facts)
            line = json.dumps(facts).encode()
        except (ValueError, TypeError, RecursionError):  # no facts that could have a hash
            pass
        file.with_suffix(".json").write_bytes(line)
        file.write_bytes(content)
        with may_refuse(file.stem):
            found = read_checkpoint(file)
            check_config(found, config)
            tensors_to_learner(found, learner)

    return load


def mutate_checkpoint(data: bytes, chance: random.Random) -> bytes:
    """Other values in the facts, or in the header of the tensors, whose length is put right."""
    line, _, content = data.partition(b"\n")
    if chance.random() < 0.5:
        return mutate_lines(line, chance) + b"\n" + content
    end = 8 + int.from_bytes(content[:8], "little")
    header = mutate_lines(content[8:end], chance)
    return line + b"\n" + len(header).to_bytes(8, "little") + header + content[end:]


def mutate_lines(data: bytes, chance: random.Random) -> bytes:
    """Other values in lines of JSON, without their checksums."""
    records = with_other_values([*map(json.loads, data.splitlines())], chance)
    return "\n".join(json.dumps(_without_checksum(record)) for record in records).encode()


def _without_checksum(record: Any) -> Any:
    return {key: value for key, value in record.items() if key != "crc"} if isinstance(record, dict) else record


def mutate_yaml(data: bytes, chance: random.Random) -> bytes:
    """Other values in YAML, written as JSON, which is YAML too."""
    import yaml

    return json.dumps(with_other_values(yaml.load(data, yaml.CSafeLoader), chance)).encode()


def tiny_learner() -> Any:
    """A network and an optimiser after one step, in a checkpoint of two kilobytes."""
    import torch

    from wcgan import WhiteningColoring1d

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(2, 2), WhiteningColoring1d(2))
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.randn(4, 2)).square().sum().backward()
    optimizer.step()
    return SimpleNamespace(networks={"generator": network}, optimizers={"generator_optimizer": optimizer})


def config(folder: Path) -> Load:
    """The config of a GAN or, if it speaks of one, of a classifier."""
    from wcgan.runs.config import ClassifyConfig, Config, read_config

    file = folder / "config.yaml"

    def load(data: bytes) -> None:
        file.write_bytes(data)
        with may_refuse(folder.name):
            read_config(file, ClassifyConfig if b"classifier" in data else Config)

    return load


def metrics(folder: Path) -> Load:
    """Metrics are never refused: what cannot be read is counted, and the rest becomes a page."""
    from wcgan.report.formats import runs_to_rows
    from wcgan.report.page import runs_to_page
    from wcgan.report.read import read_runs
    from wcgan.runs.folder import line_to_bytes, read_metrics

    file, again = folder / "metrics.jsonl", folder / "again.jsonl"
    settings = "{data: {name: digits}, generator: {normalization: cWC, classes: 3}, train: {iterations: 99, batch: 4}}"
    (folder / "config.yaml").write_text(settings)

    def load(data: bytes) -> None:
        file.write_bytes(data)
        lines, _ = read_metrics(file)
        again.write_bytes(b"".join(map(line_to_bytes, lines)))
        assert repr(read_metrics(again)) == repr((lines, []))  # as text: NaN differs from itself
        runs = read_runs([folder])
        runs_to_rows(runs)
        runs_to_page(runs)

    return load


def study(folder: Path) -> Load:
    """A study whose pictures are named by the numbers 0 to 15."""
    from tests.data.cases import random_images, save

    from wcgan.web.study.config import FILE, picture_file, read_study

    for number in range(16):
        save(picture_file(folder, f"{number:032x}"), random_images(1, 1, 2)[0])

    def load(data: bytes) -> None:
        (folder / FILE).write_bytes(data)
        with may_refuse(folder.name):
            read_study(folder)

    return load


def images(folder: Path) -> Load:
    """A folder of one image, resized and as it is: pixels, or a name on the list of broken files."""
    from wcgan.data.folder import folder_to_recipe

    file = folder / "image.png"  # whatever its format: the name does not decide

    def load(data: bytes) -> None:
        file.write_bytes(data)
        for resolution, channels in ((8, 3), (None, None)):
            with may_refuse(folder.name):
                for chunk in folder_to_recipe(folder, "train", resolution, channels).chunks():
                    assert len(chunk.images) + len(chunk.broken) == 1
                    assert resolution is None or chunk.images.shape[1:] == (channels, resolution, resolution)

    return load


def cifar(folder: Path) -> Load:
    """A pickle of CIFAR-10; what is accepted is what Python's own unpickler finds in it."""
    import numpy as np
    from tests.data.cases import unpickle_cifar

    from wcgan.data.arrays import read_cifar_pickle

    file = folder / "data_batch_1"

    def load(data: bytes) -> None:
        file.write_bytes(data)
        with may_refuse(file.name):
            found = read_cifar_pickle(file, 10, None)
            for ours, theirs in zip(found, unpickle_cifar(data), strict=True):
                assert np.array_equal(ours, theirs)

    return load


LOADERS = {
    "checkpoint": Loader(checkpoint, 1 << 12, ("wcgan",), mutate_checkpoint),
    "config": Loader(config, 1 << 11, ("wcgan", "yaml"), mutate_yaml),
    "metrics": Loader(metrics, 1 << 12, ("wcgan",), mutate_lines),
    "study": Loader(study, 1 << 11, ("wcgan", "yaml"), mutate_yaml),
    "images": Loader(images, 1 << 12, ("wcgan", "PIL")),
    "cifar": Loader(cifar, 1 << 13, ("wcgan",)),
}


def memory_folder() -> "tempfile.TemporaryDirectory[str]":
    """A folder for the files of a loader, in memory where the system has such a place."""
    return tempfile.TemporaryDirectory(prefix="wcgan-fuzz-", dir=MEMORY if MEMORY.is_dir() else None)


def run_atheris(name: str, flags: Sequence[str]) -> int:
    """Runs libFuzzer on a loader in another process -> its exit code."""
    with memory_folder() as folder:
        child = os.fork()  # since it ends its process, and would leave the folder behind
        if child == 0:
            start_atheris(name, Path(folder), flags)
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def start_atheris(name: str, folder: Path, flags: Sequence[str]) -> None:
    """Runs libFuzzer in this process, and ends it."""
    try:
        import atheris
    except ImportError:
        sys.exit("fuzzing needs atheris, which runs on Linux: pip install atheris")
    import torch

    torch.set_num_threads(1)
    packages = {*LOADERS[name].instrumented}
    if any("merge" in flag for flag in flags):
        packages -= {"yaml"}  # a way through PyYAML is soon found again, and not worth a file
    with atheris.instrument_imports(include=packages):
        load = LOADERS[name].prepare(folder)
        for file in (CORPUS / name).iterdir():
            load(file.read_bytes())  # imports what is imported late, such as Pillow's formats

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        with suppress(Exception):  # what cannot be parsed is damaged as bytes
            changed = parsed_mutation(data, chance) if chance.random() < 0.5 else b""
            if 0 < len(changed) <= most:
                return changed
        return atheris.Mutate(data, most)

    # To merge, libFuzzer starts itself again: a shell runs these words with its flags behind them.
    words = f"{sys.executable} -m tests.attack.fuzz {name}"
    parsed_mutation = LOADERS[name].mutate
    atheris.Setup([words, *flags], load, custom_mutator=mutate if parsed_mutation else None)
    atheris.Fuzz()


def choose_corpus(name: str, found: Path) -> int:
    """Replaces the corpus of a loader by the fewest inputs, of it and of those found, that reach the same code."""
    with memory_folder() as folder:
        # Without counters: how often a line runs is worth searching for, but not worth a file.
        flags = ["-set_cover_merge=1", "-use_counters=0", f"-max_len={LOADERS[name].most}"]
        code = run_atheris(name, [*flags, folder, str(CORPUS / name), str(found)])
        if code == 0:
            shutil.rmtree(CORPUS / name)
            shutil.copytree(folder, CORPUS / name)
    return code


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzzes one loader; needs atheris. Other flags go to libFuzzer.")
    parser.add_argument("loader", choices=LOADERS)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="folder for new inputs and findings")
    parser.add_argument("--merge", action="store_true", help="choose the corpus anew, from itself and from --out")
    options, flags = parser.parse_known_args()
    name, found = options.loader, options.out / options.loader
    found.mkdir(parents=True, exist_ok=True)
    if options.merge:
        sys.exit(choose_corpus(name, found))
    if not flags:
        flags = [f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}", f"-max_len={LOADERS[name].most}"]
        flags += [f"-artifact_prefix={options.out / name}-", "-print_final_stats=1"]
        flags += [f"-max_total_time={options.seconds}", str(found), str(CORPUS / name)]
    sys.exit(run_atheris(name, flags))


if __name__ == "__main__":
    main()
