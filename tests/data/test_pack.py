"""The cache of decoded images: never stale, never half written, never wrong."""

import errno
import json
import logging
import multiprocessing
import os
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.data.cases import random_images, save

from wcgan.data import decode, load, pack
from wcgan.data.folder import folder_to_recipe
from wcgan.data.pack import recipe_to_key

EVEN_THEN_ODD = [*range(0, 12, 2), *range(1, 12, 2)]  # the order of the folder's images


def pack_in_two_parts(folder: Path, log: Path, go_on: Path) -> None:
    """Loads, noting each image that it decodes, and waits at the third for a file."""
    original = decode.decode

    def noted(path: Path, *arguments: object) -> object:
        with log.open("a") as file:
            file.write(f"{path.name}\n")
        while lines(log) == 3 and not go_on.exists():
            time.sleep(0.01)
        return original(path, *arguments)

    decode.decode = noted
    load(folder, resolution=8, channels=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, image in enumerate(random_images(12, 3, 8)):
        save(tmp_path / "images" / "ab"[i % 2] / f"{i:02}.png", image)
    return tmp_path / "images"


def packs(cache: Path) -> list[Path]:
    return [path for path in (cache / "packs").iterdir() if path.is_dir()]


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_images_are_decoded_once(folder: Path, counted: list[str]) -> None:
    first = load(folder)
    assert len(counted) == 12
    second = load(folder)
    assert len(counted) == 12
    assert torch.equal(first.images, second.images)
    assert torch.equal(first.labels, second.labels)
    assert (first.classes, first.fingerprint) == (second.classes, second.fingerprint)


def test_images_are_mapped_from_the_pack_not_copied(folder: Path, own_folders: Path) -> None:
    dataset = load(folder)
    address = dataset.images.data_ptr()
    (home,) = packs(own_folders)
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(f"{home}/images.u8")]
    spans = [[int(end, 16) for end in line.split()[0].split("-")] for line in mapped]
    assert any(low <= address < high for low, high in spans)


def overcommit() -> str:
    path = Path("/proc/sys/vm/overcommit_memory")
    return path.read_text().strip() if path.exists() else "not Linux"


@pytest.mark.skipif(overcommit() not in "01", reason="this system promises no more memory than it has")
def test_a_pack_may_be_larger_than_memory(tmp_path: Path) -> None:
    blocks = 2 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // pack._BLOCK
    with (tmp_path / "file").open("wb") as file:
        file.truncate(blocks * pack._BLOCK)  # all zeros, which take no room on the disk
    crcs = (zlib.crc32(bytes(pack._BLOCK)),) * blocks
    mapped = pack._map(tmp_path / "file", crcs, torch.uint8)
    mapped[-1] = 7
    assert mapped[-2:].tolist() == [0, 7]


def test_writing_to_the_images_leaves_the_pack_alone(folder: Path) -> None:
    dataset = load(folder)
    before = dataset.images.clone()
    dataset.images.zero_()
    assert torch.equal(load(folder).images, before)


def rewrite_with_old_times(path: Path) -> None:
    before = path.stat()
    data = path.read_bytes()
    pixels = random_images(1, 3, 8, seed=99)[0]
    save(path, pixels)
    assert len(path.read_bytes()) == len(data), "the test needs a file of the same size"
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {
    "content, with size and modification time kept": lambda f: rewrite_with_old_times(f / "a/00.png"),
    "a new file": lambda f: save(f / "a/new.png", random_images(1, 3, 8, seed=50)[0]),
    "a file removed": lambda f: (f / "b/01.png").unlink(),
    "a file moved to another class": lambda f: (f / "b/01.png").rename(f / "a/01.png"),
    "a file renamed": lambda f: (f / "b/11.png").rename(f / "b/001.png"),
    "two files exchanged": lambda f: exchange(f / "a/00.png", f / "a/02.png"),
    "a class renamed": lambda f: (f / "a").rename(f / "c"),
}


def exchange(a: Path, b: Path) -> None:
    a.rename(a.with_name("x"))
    b.rename(a)
    a.with_name("x").rename(b)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_never_served_from_an_old_pack(folder: Path, change: str) -> None:
    old = load(folder, resolution=8)
    CHANGES[change](folder)
    new = load(folder, resolution=8)
    assert new.fingerprint != old.fingerprint
    for image, path in zip(new.images, sorted(folder.rglob("*.png")), strict=True):
        from PIL import Image

        np.testing.assert_array_equal(image.numpy(), np.asarray(Image.open(path)).transpose(2, 0, 1))


def test_a_file_just_written_is_named_once_a_later_write_would_get_later_times(folder: Path) -> None:
    target = folder / "a/00.png"
    save(target, random_images(1, 3, 8, seed=5)[0])
    recipe_to_key(folder_to_recipe(folder, "train", None, None))
    assert time.time() - target.stat().st_ctime_ns / 1e9 >= 0.05


def test_the_pack_of_files_that_have_changed_is_removed(folder: Path, own_folders: Path) -> None:
    load(folder)
    save(folder / "a/new.png", random_images(1, 3, 8)[0])
    load(folder)
    assert len(packs(own_folders)) == 1


def test_each_resolution_has_a_pack_of_its_own(folder: Path, own_folders: Path) -> None:
    assert {load(folder, resolution=r).images.shape[-1] for r in (4, 8, 4)} == {4, 8}
    assert len(packs(own_folders)) == 2


def test_the_fingerprint_is_of_the_content_not_of_the_place(folder: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(folder, tmp_path / "elsewhere")
    assert load(tmp_path / "elsewhere").fingerprint == load(folder).fingerprint


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "a bit of the images": lambda home: flip_a_bit(home / "images.u8"),
    "a bit of the labels": lambda home: flip_a_bit(home / "labels.i64"),
    "the images cut short": lambda home: os.truncate(home / "images.u8", 100),
    "the images made longer": lambda home: os.truncate(home / "images.u8", 10_000_000),
    "the images emptied": lambda home: os.truncate(home / "images.u8", 0),
    "the images gone": lambda home: (home / "images.u8").unlink(),
    "the labels gone": lambda home: (home / "labels.i64").unlink(),
    "the description gone": lambda home: (home / "pack.json").unlink(),
    "the description cut short": lambda home: os.truncate(home / "pack.json", 40),
    "the description of another kind": lambda home: (home / "pack.json").write_text('{"shape": [1]}'),
    "the description not a table": lambda home: (home / "pack.json").write_text("[]"),
    "everything gone": lambda home: [path.unlink() for path in home.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_pack_is_written_anew(folder: Path, own_folders: Path, damage: str) -> None:
    good = load(folder)
    expected, fingerprint = good.images.clone(), good.fingerprint
    del good
    (home,) = packs(own_folders)
    DAMAGES[damage](home)
    mended = load(folder)
    assert torch.equal(mended.images, expected)
    assert mended.labels.tolist() == [0] * 6 + [1] * 6
    assert mended.fingerprint == fingerprint
    assert packs(own_folders) == [home]


def test_of_a_large_pack_the_ends_and_some_blocks_between_are_checked(
    folder: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pack, "_BLOCK", 16)
    monkeypatch.setattr(pack, "_MOST_BLOCKS_CHECKED", 3)
    load(folder)
    (home,) = packs(own_folders)
    assert len(json.loads((home / "pack.json").read_text())["image_crcs"]) == 12 * 192 // 16
    for place in (0, -1):
        data = bytearray((home / "images.u8").read_bytes())
        data[place] ^= 1
        (home / "images.u8").write_bytes(data)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            load(folder)
        assert "fails its CRC; it is written anew" in caplog.text


@pytest.mark.parametrize("size", [1, 15, 16, 17, 32, 100])
def test_blocks_are_cut_the_same_when_written_and_when_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(pack, "_BLOCK", 16)
    data = np.random.default_rng(size).bytes(size)
    with (tmp_path / "file").open("wb") as file:
        writer = pack._CheckedFile(file)
        for start_ in range(0, size, 7):
            writer.write(memoryview(data)[start_ : start_ + 7])
        crcs = writer.finish()
    assert pack._map(tmp_path / "file", crcs, torch.uint8).numpy().tobytes() == data


def test_of_several_that_ask_at_once_one_decodes(folder: Path, counted: list[str]) -> None:
    with ThreadPoolExecutor(4) as pool:  # a lock excludes threads as it does processes
        datasets = list(pool.map(load, [folder] * 4))
    assert len({dataset.fingerprint for dataset in datasets}) == 1
    assert len(counted) == 12


def test_without_locks_two_processes_at_once_still_agree(
    folder: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wcgan.core.files.fcntl", None)
    recipe_chunks = pack._write

    def overtaken(*arguments: object) -> None:
        monkeypatch.setattr(pack, "_write", recipe_chunks)
        load(folder)  # another process is faster
        recipe_chunks(*arguments)

    monkeypatch.setattr(pack, "_write", overtaken)
    dataset = load(folder)
    assert len(packs(own_folders)) == 1
    assert torch.equal(dataset.images, load(folder).images)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are started by forking, which is quick")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_when_the_process_that_packs_is_killed_the_one_that_waits_takes_over(
    folder: Path, own_folders: Path, tmp_path: Path
) -> None:
    fork, go_on = multiprocessing.get_context("fork"), tmp_path / "go-on"
    logs = [tmp_path / "log-0", tmp_path / "log-1"]
    running = [fork.Process(target=pack_in_two_parts, args=(folder, log, go_on)) for log in logs]
    for process in running:
        process.start()
    while max(map(lines, logs)) < 3 and any(process.is_alive() for process in running):
        time.sleep(0.01)
    first = 0 if lines(logs[0]) else 1
    running[first].kill()
    running[first].join()
    go_on.touch()
    for process in running:
        process.join()
    assert running[1 - first].exitcode == 0
    assert lines(logs[first]) == 3, "killed on the way"
    assert lines(logs[1 - first]) == 12, "all images, from the beginning"
    (home,) = packs(own_folders)
    written = load(folder, resolution=8, channels=3)
    assert ".part-" not in home.name
    assert torch.equal(written.images, torch.tensor(np.stack([random_images(12, 3, 8)[i] for i in EVEN_THEN_ODD])))


def test_files_that_change_while_they_are_read_are_refused(folder: Path, own_folders: Path) -> None:
    def meddle(what: str, done: int, total: int) -> None:
        if done == total:
            save(folder / "a/00.png", random_images(1, 3, 8, seed=7)[0])

    with pytest.raises(ValueError, match="changed while they were read"):
        load(folder, progress=meddle)
    assert packs(own_folders) == []


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    folder: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, data: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pack._CheckedFile, "write", full)
    with pytest.raises(OSError, match=r"^cannot write .* \(No space left on device\); .* WCGAN_CACHE$"):
        load(folder)
    assert packs(own_folders) == []


def test_progress_ends_with_everything_done(folder: Path) -> None:
    told: list[tuple[str, int, int]] = []
    load(folder, resolution=8, channels=3, progress=lambda *now: told.append(now))
    assert told[0] == ("packing images", 0, 12)
    assert told[-1] == ("packing images", 12, 12)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
