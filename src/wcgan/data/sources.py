"""The named datasets: their folders, contents, checksums and official addresses."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_DIGITS = tuple("0123456789")


@dataclass(frozen=True)
class Archive:
    """A file to download: an archive to unpack, or a file to keep as it is."""

    urls: tuple[str, ...]
    """Addresses, tried in order."""
    size: int
    """Size in bytes."""
    md5: str
    """Published checksum."""
    unpacks_to: str
    """The folder under the data folder that it unpacks to, or is stored in."""

    @property
    def name(self) -> str:
        return self.urls[0].rsplit("/", 1)[1]

    @property
    def is_kept(self) -> bool:
        return self.name.endswith("-ubyte.gz")


@dataclass(frozen=True)
class Source:
    """A named dataset."""

    name: str
    resolution: int
    """Default height and width in `load`."""
    channels: int
    counts: Mapping[str, int]
    """Images in each split."""
    classes: tuple[str, ...] = ()
    """Class names in the order of the labels; empty if they are read from the files."""
    class_count: int = 10
    folders: tuple[str, ...] = ()
    """Its possible folders under the data folder."""
    markers: tuple[str, ...] = ()
    """Files that identify its folder, any of which is enough; the name of a sub-folder ends with a slash."""
    archives: tuple[Archive, ...] = ()
    by_hand: str = ""
    """How to get it if it cannot be downloaded."""
    checksums: Mapping[str, str] = field(default_factory=dict)
    """File name -> algorithm:digest of its content, decompressed. Files without one are checked by content alone."""

    @property
    def what(self) -> str:
        splits = " + ".join(f"{count:,} {split}" for split, count in self.counts.items())
        return f"{splits} images, {self.resolution}x{self.resolution}x{self.channels}, {self.class_count:,} classes"

    def find(self, root: Path) -> Path | None:
        """The folder of its files: one of `folders` under `root`, or `root` itself."""
        for folder in [*(root / name for name in self.folders), root]:
            for marker in self.markers:
                if (folder / marker).is_dir() if marker.endswith("/") else (folder / marker).is_file():
                    return folder
        return None

    def how_to_get(self, root: Path) -> str:
        if self.archives:
            size = sum(archive.size for archive in self.archives) / 1e6
            first, others = self.archives[0], len(self.archives) - 1
            unpack = f"unpack {first.name} in {root}"
            put = f"put {first.name} and the {others} that go with it in {root / first.unpacks_to}"
            return (
                f"with a network, `wcgan datasets --download {self.name} --folder {root}` brings it ({size:,.0f} MB); "
                f"without one, {put if first.is_kept else unpack}"
            )
        return self.by_hand.format(folder=root / self.folders[0]) if self.folders else self.by_hand


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the named datasets: `folder`, or `$WCGAN_DATA`, or `~/.cache/wcgan/data`."""
    return Path(folder or os.environ.get("WCGAN_DATA") or "~/.cache/wcgan/data").expanduser().absolute()


def _idx_archives(bases: tuple[str, ...], folder: str, files: Mapping[str, tuple[int, str]]) -> tuple[Archive, ...]:
    return tuple(
        Archive(tuple(base + name for base in bases), size, md5, folder) for name, (size, md5) in files.items()
    )


_CIFAR100_CLASSES = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel "
    "can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur "
    "dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion "
    "lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree "
    "pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea "
    "seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank "
    "telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm"
)

_ALL = (
    Source(
        "digits",
        resolution=16,
        channels=1,
        counts={"train": 1438, "test": 359},
        classes=_DIGITS,
        by_hand="it comes with scikit-learn",
    ),
    Source(
        "mnist",
        resolution=28,
        channels=1,
        counts={"train": 60_000, "test": 10_000},
        classes=_DIGITS,
        folders=("mnist", "MNIST/raw"),
        markers=("train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"),
        archives=_idx_archives(
            ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
            "mnist",
            {
                "train-images-idx3-ubyte.gz": (9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                "train-labels-idx1-ubyte.gz": (28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
                "t10k-images-idx3-ubyte.gz": (1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
                "t10k-labels-idx1-ubyte.gz": (4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
            },
        ),
        checksums={
            "train-images-idx3-ubyte": "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels-idx1-ubyte": "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "t10k-images-idx3-ubyte": "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels-idx1-ubyte": "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
    ),
    Source(
        "fashion-mnist",
        resolution=28,
        channels=1,
        counts={"train": 60_000, "test": 10_000},
        classes=(
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        folders=("fashion-mnist", "FashionMNIST/raw"),
        markers=("train-images-idx3-ubyte.gz", "train-images-idx3-ubyte"),
        archives=_idx_archives(
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
            "fashion-mnist",
            {
                "train-images-idx3-ubyte.gz": (26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                "train-labels-idx1-ubyte.gz": (29_515, "25c81989df183df01b3e8a0aad5dffbe"),
                "t10k-images-idx3-ubyte.gz": (4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
                "t10k-labels-idx1-ubyte.gz": (5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
            },
        ),
        checksums={
            "train-images-idx3-ubyte": "sha256:c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train-labels-idx1-ubyte": "sha256:bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "t10k-images-idx3-ubyte": "sha256:5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "t10k-labels-idx1-ubyte": "sha256:0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
    ),
    Source(
        "cifar10",
        resolution=32,
        channels=3,
        counts={"train": 50_000, "test": 10_000},
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        folders=("cifar-10-batches-bin", "cifar-10-batches-py"),
        markers=("data_batch_1.bin", "data_batch_1"),
        archives=(
            Archive(
                (_TORONTO + "cifar-10-binary.tar.gz",),
                170_052_171,
                "c32a1d4ab5d03f1284b67883e8d87530",
                "cifar-10-batches-bin",
            ),
        ),
        checksums={
            "data_batch_1.bin": "sha256:cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2.bin": "sha256:a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3.bin": "sha256:bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4.bin": "sha256:014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5.bin": "sha256:755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch.bin": "sha256:8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
            "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
            "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "md5:40351d587109b95175f43aff81a1287e",
        },
    ),
    Source(
        "cifar100",
        resolution=32,
        channels=3,
        counts={"train": 50_000, "test": 10_000},
        classes=tuple(_CIFAR100_CLASSES.split()),
        class_count=100,
        folders=("cifar-100-binary", "cifar-100-python"),
        markers=("train.bin", "train"),
        archives=(
            Archive(
                (_TORONTO + "cifar-100-binary.tar.gz",),
                168_513_733,
                "03b5dce01913d631647c71ecec9e9cb8",
                "cifar-100-binary",
            ),
        ),
        checksums={"train": "md5:16019d7e3df5f24257cddd939b257f8d", "test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc"},
    ),
    Source(
        "stl10",
        resolution=48,
        channels=3,
        counts={"train": 5_000, "test": 8_000, "unlabeled": 100_000},
        classes=("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"),
        folders=("stl10_binary",),
        markers=("unlabeled_X.bin", "train_X.bin"),
        archives=(
            Archive(
                ("http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",),
                2_640_397_119,
                "91f7769df0f17e558f3565bffb0c7dfb",
                "stl10_binary",
            ),
        ),
        checksums={
            "train_X.bin": "md5:918c2871b30a85fa023e0c44e0bee87f",
            "train_y.bin": "md5:5a34089d4802c674881badbb80307741",
            "test_X.bin": "md5:7f263ba9f9e0b06b93213547f721ac82",
            "test_y.bin": "md5:36f9794fa4beb8a2c72628de14fa638e",
            "unlabeled_X.bin": "md5:5242ba1fed5e4be9e1e742405eb56ca4",
        },
    ),
    Source(
        "tiny-imagenet",
        resolution=64,
        channels=3,
        counts={"train": 100_000, "test": 10_000, "unlabeled": 10_000},
        class_count=200,
        folders=("tiny-imagenet-200",),
        markers=("wnids.txt",),
        archives=(
            Archive(
                ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
                248_100_043,
                "90528d7ca1a48142e341f4ef8d21d0de",
                "tiny-imagenet-200",
            ),
        ),
    ),
    Source(
        "imagenet",
        resolution=128,
        channels=3,
        counts={"train": 1_281_167, "test": 50_000},
        class_count=1000,
        folders=("imagenet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC"),
        markers=("train/n01440764/",),
        by_hand=(
            "register at https://image-net.org/download-images, then unpack ILSVRC2012_img_train.tar, "
            "a folder per class, into {folder}/train and ILSVRC2012_img_val.tar into {folder}/val"
        ),
    ),
)
SOURCES: Mapping[str, Source] = {source.name: source for source in _ALL}
