"""Data sets from somebody who means no good: each attack ends in a sentence, or in a file that is skipped by name."""

import gzip
import os
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.data.cases import cycling_labels, random_images, save, write_imagenet, write_mnist, write_tiny_imagenet
from tests.mutations import mutated

from wcgan.data import arrays as formats
from wcgan.data import load
from wcgan.data.arrays import read_cifar_pickle, read_idx

LABELS = b"U\x06labels](K\x01e"


def array_pickle(
    kind: bytes, shape: bytes = b"K\x01M\x00\x0c\x86", content: bytes = bytes(3072), more: bytes = b""
) -> bytes:
    """A CIFAR file whose array says that it is of another kind or shape."""
    string = b"U" + bytes([len(kind)]) + kind
    dtype = b"cnumpy\ndtype\n(" + string + b"K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    content = b"T" + struct.pack("<i", len(content)) + content
    return b"\x80\x02}(U\x04data" + made + b"(K\x01" + shape + dtype + b"\x89" + content + b"tb" + more + LABELS + b"u."


PICKLES = {
    "pointers of the attacker's choice": (array_pickle(b"O8", b"K\x08K\x30\x86", b"\x41" * 3072), "an array of b'O8'"),
    "a structure with a pointer": (array_pickle(b"V8"), "an array of b'V8'"),
    "dates": (array_pickle(b"M8"), "an array of b'M8'"),
    "more than is there": (
        array_pickle(b"u1", b"J\xff\xff\xff\x7fM\x00\x0c\x86"),
        "3072 bytes for an array of 2147483647",
    ),
    "a negative size": (array_pickle(b"u1", b"J\xff\xff\xff\xffM\x00\x0c\x86"), "damaged"),
    "three dimensions": (array_pickle(b"u1", b"K\x01K\x01M\x00\x0c\x87"), "damaged"),
    "an array filled twice": (array_pickle(b"u1", more=b"(K\x01K\x00\x85NNNtb"), "damaged"),
    "an array over another's memory": (
        b"\x80\x02}(U\x04datacnumpy\nndarray\n(K\x08\x85U\x01O\x96" + struct.pack("<Q", 8) + b"\x41" * 8 + b"tRu.",
        "instruction b'.x96'",
    ),
    "a buffer from outside": (b"\x80\x05\x97.", "instruction b'.x97'"),
    "an array by its type": (b"\x80\x02cnumpy\nndarray\n(K\x01\x85tR.", "damaged"),
    "an array by its type's own maker": (b"\x80\x02cnumpy\nndarray\n(K\x01\x85t\x81.", "instruction b'.x81'"),
    "a call": (b"cos\nsystem\n(S'true'\ntR.", "asks for 'os system'"),
    "a call by the stack": (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "asks for 'os system'"),
    "a name that looks like another": (
        b"\x80\x02cnumpy.core.multiarray\nscalar\n.",
        "asks for 'numpy.core.multiarray scalar'",
    ),
    "a class's instance": (b"(ios\nsystem\n.", "instruction b'i'"),
    "a registered extension": (b"\x80\x02\x82\x01.", "instruction b'.x82'"),
    "a reference to somewhere": (b"\x80\x02U\x01aQ.", "instruction b'Q'"),
    "a place in memory of 32 GB": (b"\x80\x02}r\xff\xff\xff\x7f.", "no array of bytes"),
    "a string longer than the file": (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"x.", "cannot be unpickled"),
    "a frame longer than the file": (b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"}.", "damaged"),
    "a number of a million digits": (b"L" + b"9" * 1_000_000 + b"L\n.", "cannot be unpickled"),
    "nothing to take": (b"\x80\x02R.", "damaged"),
    "no mark": (b"\x80\x02K\x01t.", "damaged"),
    "a tuple that doubles": (b"\x80\x02)" + b"q\x00h\x00\x86" * 200 + b"h\x00\x86.", "holds a tuple"),
    "such a tuple as a type": (b"\x80\x02cnumpy\ndtype\n)" + b"q\x00h\x00\x86" * 200 + b"\x85R.", "damaged"),
    "a list in itself": (b"\x80\x02}(U\x04data]q\x00h\x00aU\x06labelsh\x00u.", "no array of bytes"),
    "a list as a key": (b"\x80\x02}](K\x01eK\x01s.", "damaged"),
}


@pytest.mark.parametrize("name", PICKLES)
def test_a_hostile_pickle_is_refused(tmp_path: Path, name: str) -> None:
    content, said = PICKLES[name]
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(ValueError, match=said) as refusal:
        read_cifar_pickle(tmp_path / "data_batch_1", 10, None)
    assert "data_batch_1" in str(refusal.value)
    assert len(str(refusal.value)) < 400


def test_the_attacks_are_near_misses(tmp_path: Path) -> None:
    """The same file with an array of bytes is read, so that each attack above is refused for what makes it one."""
    (tmp_path / "batch").write_bytes(array_pickle(b"u1", content=bytes(range(256)) * 12))
    images, labels = read_cifar_pickle(tmp_path / "batch", 10, None)
    assert (images.tobytes(), labels.tolist()) == (bytes(range(256)) * 12, [1])


def png(width: int, height: int, depth: int = 16, colour: int = 0, rows: int | None = None) -> bytes:
    """A grey PNG of zeros, written without holding it in memory."""
    squeeze, lines = zlib.compressobj(9), bytearray()
    row = bytes(1 + width * depth // 8)
    for _ in range(height if rows is None else rows):
        lines += squeeze.compress(row)
    lines += squeeze.flush()

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">2I5B", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", bytes(lines)) + chunk(b"IEND", b"")


# Loads a folder in a process of its own; prints what it skipped, and the megabytes that loading took, at the most, and
# then those that a list of 300 MB took, to show that they are measured.
MEMORY = """
import sys
from wcgan.data import load
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024
before = peak()
print(*load(sys.argv[1], resolution=8).skipped)
loaded = peak()
taken = bytearray(300 << 20)
taken[::4096] = b"x" * len(taken[::4096])
print(loaded - before, peak() - loaded)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_small_files_of_many_pixels_take_no_memory(tmp_path: Path) -> None:
    save(tmp_path / "a.png", random_images(1, 1, 8)[0])
    for name, side in (("b", 8_193), ("c", 13_376), ("d", 60_000)):
        (tmp_path / f"{name}.png").write_bytes(png(side, side, rows=16))  # to decode one takes room for all its rows
    command = [sys.executable, "-W", "ignore", "-c", MEMORY, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    skipped, megabytes = done.stdout.splitlines()
    assert skipped == "b.png c.png d.png"
    assert "skipped 3 images" in done.stderr
    loaded, taken = map(int, megabytes.split())
    assert loaded < 100 < taken


def test_many_pixels_are_named_with_how_many_there_may_be(tmp_path: Path) -> None:
    (tmp_path / "bomb.png").write_bytes(png(9_000, 9_000, rows=1))
    with pytest.raises(ValueError, match=r"bomb\.png in .* cannot be read \(it has 81 megapixels, and at most 67 are"):
        load(tmp_path, resolution=8, channels=1, strict=True)


def run_length_bmp(width: int, height: int) -> bytes:
    """Grey, of which each row is given by its first pixel and by where it ends."""
    palette = bytes(value for level in range(256) for value in (level, level, level, 0))
    body = b"\x01\xff\x00\x00" * height + b"\x00\x01"
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(body), 2835, 2835, 256, 0)
    start = 14 + len(info) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(body), 0, 0, start) + info + palette + body


def test_a_large_run_length_bmp_is_refused_and_a_small_one_is_read(tmp_path: Path) -> None:
    (tmp_path / "large.bmp").write_bytes(run_length_bmp(1 << 18, 8))  # 2 KB, and 7 seconds at 8192 x 8192
    (tmp_path / "small.bmp").write_bytes(run_length_bmp(4, 4))
    with pytest.raises(ValueError, match="2,097,152 pixels in run-length encoding, and at most 1,048,576 are decoded"):
        load(tmp_path, resolution=4, channels=1, strict=True)
    found = load(tmp_path, resolution=4, channels=1)
    assert found.images.squeeze().tolist() == [[255, 0, 0, 0]] * 4
    assert found.skipped == ("large.bmp",)


def test_what_is_called_an_image_is_handed_to_no_other_program(tmp_path: Path) -> None:
    save(tmp_path / "a.png", random_images(1, 3, 8)[0])
    postscript = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n8 8 scale\n%%EOF\n"
    (tmp_path / "b.jpg").write_text(postscript)
    save(tmp_path / "c.tiff", random_images(1, 3, 8)[0]).rename(tmp_path / "c.png")
    assert load(tmp_path).skipped == ("b.jpg", "c.png")


@pytest.mark.parametrize("classes", [False, True])
def test_what_is_no_file_is_skipped_by_name(tmp_path: Path, classes: bool) -> None:
    folder = tmp_path / "data/a" if classes else tmp_path / "data"
    save(folder / "0.png", random_images(1, 3, 8)[0])
    os.mkfifo(folder / "pipe.png")
    (folder / "dangling.png").symlink_to("nowhere.png")
    (folder / "endless.png").symlink_to("/dev/zero")
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "through.png").symlink_to("0.png/b.png")
    (folder / "linked.png").symlink_to("0.png")
    dataset = load(tmp_path / "data")
    names = ("dangling", "endless", "loop", "pipe", "through")
    assert dataset.skipped == tuple(f"{'a/' if classes else ''}{name}.png" for name in names)
    assert len(dataset) == 2
    with pytest.raises(ValueError, match=r"5 images of data cannot be read: .*dangling\.png"):
        load(tmp_path / "data", strict=True)


def test_a_name_that_is_not_utf8_is_read_and_can_be_printed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    image = save(tmp_path / "a/0.png", random_images(1, 3, 8)[0])
    root = os.fsencode(tmp_path)
    os.mkdir(root + b"/caf\xe9")
    for name in (b"/caf\xe9/0.png", b"/a/\xff\xfe.png", b"/a/\x1b[2J.png"):
        os.link(image, root + name)
    with open(root + b"/a/br\xf6ken\x1b]0;.png", "wb") as file:
        file.write(b"x")
    dataset = load(tmp_path)
    assert dataset.classes == ("a", "caf\\xe9")
    assert dataset.labels.tolist() == [0, 0, 0, 1]
    assert "a/br\\xf6ken\\x1b]0;.png" in caplog.text
    assert "\x1b" not in caplog.text


def test_a_link_to_the_whole_disk_is_not_walked(tmp_path: Path) -> None:
    save(tmp_path / "data/a/0.png", random_images(1, 3, 8)[0])
    for target in ("/", tmp_path, tmp_path / "data"):
        (tmp_path / f"data/a/{len(str(target))}").symlink_to(target)
    assert len(load(tmp_path / "data")) == 1


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A folder with 1,500 others in each other; taken away step by step, as Python's own function cannot."""
    save(tmp_path / "a/0.png", random_images(1, 3, 8)[0])
    here, depth = os.getcwd(), 1500
    os.chdir(tmp_path / "a")
    try:
        for _ in range(depth):
            os.mkdir("d")
            os.chdir("d")
        os.chdir(here)
        yield tmp_path
        os.chdir(tmp_path / "a")
        for _ in range(depth):
            os.chdir("d")
        for _ in range(depth):
            os.chdir("..")
            os.rmdir("d")
    finally:
        os.chdir(here)


def test_folders_nested_a_thousand_deep_are_read_or_refused(deep: Path) -> None:
    if sys.version_info >= (3, 12):
        assert len(load(deep)) == 1
    else:
        with pytest.raises(ValueError, match="nested too deep"):
            load(deep)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_listed_is_named(tmp_path: Path) -> None:
    save(tmp_path / "a/0.png", random_images(1, 3, 8)[0])
    (tmp_path / "a/closed").mkdir(mode=0)
    with pytest.raises(PermissionError, match="closed"):
        load(tmp_path)


def test_a_gzip_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_MOST_UNPACKED", 1 << 20)
    (tmp_path / "images.gz").write_bytes(gzip.compress(bytes(64 << 20)))
    with pytest.raises(ValueError, match=r"images\.gz unpacks to more than 1,048,576 bytes"):
        read_idx(tmp_path / "images.gz", 3)


@pytest.mark.parametrize("shape", [(0, 28, 28), (5, 0, 28), (5, 28, 0), (5, 1, 1), (4_000_000_000, 0, 0)])
def test_idx_files_of_other_images_than_mnist_has_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    write_mnist(tmp_path / "mnist", "train", random_images(5, 1, 28), cycling_labels(5, 10))
    content = bytes(min(5, int(np.prod(shape))))
    header = struct.pack(">HBB3I", 0, 8, 3, *shape)
    (tmp_path / "mnist/train-images-idx3-ubyte").write_bytes(header + content)
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte has .*where MNIST's are 28x28"):
        load("mnist", "train", tmp_path, verify=False)


def test_a_pickle_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "batch").write_bytes(array_pickle(b"u1", b"K\x00M\x00\x0c\x86", b""))
    with pytest.raises(ValueError, match="no array of bytes"):
        read_cifar_pickle(tmp_path / "batch", 10, None)


@pytest.mark.parametrize("name", ["../../../..", "..", "/etc", "a/b", "a\0b"])
def test_names_in_lists_do_not_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = write_tiny_imagenet(tmp_path)
    lists = {"train": folder / "wnids.txt", "test": folder / "val/val_annotations.txt"}
    for split, file in lists.items():
        before = file.read_text()
        file.write_text(f"{before}{name}\tn01443537\n" if split == "test" else f"{before}{name}\n")
        with pytest.raises(ValueError, match="where a name in a folder stands"):
            load("tiny-imagenet", split, tmp_path, verify=False)
        file.write_text(before)


def test_lists_that_are_no_lists_are_named(tmp_path: Path) -> None:
    wnids = write_tiny_imagenet(tmp_path) / "wnids.txt"
    wnids.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"wnids\.txt is not text in UTF-8"):
        load("tiny-imagenet", "train", tmp_path, verify=False)
    os.truncate(wnids, 1 << 40)
    with pytest.raises(ValueError, match=r"wnids\.txt cannot be read: it has 1,099,511,627,776 bytes"):
        load("tiny-imagenet", "train", tmp_path, verify=False)


@pytest.mark.parametrize(
    "content", ["ImageId\n1\n", "a,b\n1,2\n", "ImageId,PredictionString\nx,\n", 'ImageId,"' + "x" * 200_000]
)
def test_a_damaged_table_of_classes_is_named(tmp_path: Path, content: str) -> None:
    folder = write_imagenet(tmp_path)
    save(folder / "val/x.JPEG", random_images(1, 3, 8)[0])
    (folder / "LOC_val_solution.csv").write_text(content)
    with pytest.raises(ValueError, match=r"LOC_val_solution\.csv lacks ImageId or PredictionString"):
        load("imagenet", "test", tmp_path, verify=False)


def test_a_damaged_devkit_is_named(tmp_path: Path) -> None:
    """The first of these, with one byte changed, ends the process in which SciPy 1.17.1 reads it."""
    from scipy import io

    folder, chance = write_imagenet(tmp_path), random.Random(0)
    save(folder / "val/x.JPEG", random_images(1, 3, 8)[0])
    devkit = folder / "ILSVRC2012_devkit_t12/data"
    devkit.mkdir(parents=True)
    (devkit / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n")
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O")]
    synsets = np.array([(1, "n01440764", "tench"), (2, "n02012849", "crane")], kind)
    io.savemat(devkit / "meta.mat", {"synsets": synsets})
    whole = (devkit / "meta.mat").read_bytes()
    assert load("imagenet", "test", tmp_path, verify=False).classes[0] == "tench"
    for content in (
        whole[:296] + b"\0" + whole[297:],
        b"",
        b"MATLAB 5.0 MAT-file" + bytes(200),
        *(mutated(whole[:-40], chance) for _ in range(2)),
    ):
        (devkit / "meta.mat").write_bytes(content)
        with pytest.raises(ValueError, match=r"meta\.mat is not the publisher's list of classes"):
            load("imagenet", "test", tmp_path, verify=False)


def test_a_huge_resolution_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "a.png", random_images(1, 3, 8)[0])
    for resolution in (0, -1, 4097, 10**9, 10**400, 1 << 100_000):
        with pytest.raises(ValueError, match="resolution must be a whole number from 1 to 4096"):
            load(tmp_path, resolution=resolution)


def test_a_flipped_bit_in_a_packs_description_is_noticed(
    tmp_path: Path, own_folders: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("cat", "dog"):
        save(tmp_path / name / "0.png", random_images(1, 3, 8, ord(name[0]))[0])
    first = load(tmp_path)
    (written,) = own_folders.glob("packs/*/pack.json")
    written.write_text(written.read_text().replace('"cat"', '"bat"'))
    again = load(tmp_path)
    assert again.classes == first.classes
    assert "pack.json fails its CRC; it is written anew" in caplog.text
