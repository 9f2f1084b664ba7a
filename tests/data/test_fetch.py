"""Downloading, from a server on this machine."""

import hashlib
import http.server
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.data.cases import cifar_records, cycling_labels, random_images, write_mnist, write_tiny_imagenet

from wcgan.data import download, load
from wcgan.data.sources import SOURCES, Archive


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; notes what was asked for, and can break off or ignore ranges."""

    files: dict[str, bytes]
    asked: list[tuple[str, str | None]]
    break_after: int | None = None
    ranges = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.asked = {}, []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name, wanted = self.path.lstrip("/"), self.headers.get("Range")
        self.server.asked.append((name, wanted))
        if name not in self.server.files:
            self.send_error(404)
            return
        data = self.server.files[name]
        if wanted and self.server.ranges:
            data = data[int(wanted.removeprefix("bytes=").removesuffix("-")) :]
        self.send_response(206 if wanted and self.server.ranges else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: self.server.break_after])

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def offer(server: Server, monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, bytes], into: str) -> None:
    """Makes `files` the archives of dataset `name`."""
    server.files = files
    archives = tuple(
        Archive((server.url(file),), len(data), hashlib.md5(data).hexdigest(), into) for file, data in files.items()
    )
    monkeypatch.setattr(
        "wcgan.data.fetch.SOURCES", {**SOURCES, name: replace(SOURCES[name], archives=archives, checksums={})}
    )


def cifar_archive() -> bytes:
    fine = cycling_labels(100, 100)
    records = cifar_records(random_images(100, 3, 32), fine, fine)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in ("train.bin", "test.bin"):
            entry = tarfile.TarInfo(f"cifar-100-binary/{name}")
            entry.size = len(records)
            tar.addfile(entry, io.BytesIO(records))
    return packed.getvalue()


@pytest.fixture
def archive(server: Server, monkeypatch: pytest.MonkeyPatch) -> bytes:
    data = cifar_archive()
    offer(server, monkeypatch, "cifar100", {"cifar-100-binary.tar.gz": data}, "cifar-100-binary")
    return data


def remains(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_an_archive_is_unpacked_and_loads(tmp_path: Path, archive: bytes) -> None:
    told: list[tuple[str, int, int]] = []
    where = download("cifar100", tmp_path / "new", progress=lambda *now: told.append(now))
    assert where == tmp_path / "new/cifar-100-binary"
    assert len(load("cifar100", "test", tmp_path / "new", verify=False)) == 100
    assert told[-1] == ("downloading cifar-100-binary.tar.gz", len(archive), len(archive))
    assert remains(tmp_path / "new") == ["cifar-100-binary"]


def test_what_is_there_is_not_downloaded_again(tmp_path: Path, server: Server, archive: bytes) -> None:
    download("cifar100", tmp_path)
    download("cifar100", tmp_path)
    assert len(server.asked) == 1


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_that_broke_off_is_continued(tmp_path: Path, server: Server, archive: bytes, ranges: bool) -> None:
    server.break_after, server.ranges = 5000, ranges
    with pytest.raises(ConnectionError, match=r"cannot download http.*tar\.gz .*goes on where it stopped"):
        download("cifar100", tmp_path)
    server.break_after = None
    assert download("cifar100", tmp_path).name == "cifar-100-binary"
    assert server.asked[-1] == ("cifar-100-binary.tar.gz", "bytes=5000-")
    assert remains(tmp_path) == ["cifar-100-binary"]


def test_a_file_that_is_not_the_official_one_is_deleted(tmp_path: Path, server: Server, archive: bytes) -> None:
    server.files["cifar-100-binary.tar.gz"] = archive[:-1] + b"x"
    with pytest.raises(ValueError, match=r"cifar-100-binary\.tar\.gz came as .* it was deleted, try again"):
        download("cifar100", tmp_path)
    assert remains(tmp_path) == []


def test_a_file_longer_than_the_official_one_is_deleted(tmp_path: Path, server: Server, archive: bytes) -> None:
    server.files["cifar-100-binary.tar.gz"] = archive + bytes(10)
    with pytest.raises(ValueError, match="came as"):
        download("cifar100", tmp_path)
    assert remains(tmp_path) == []


def test_a_folder_that_lacks_its_files_is_not_overwritten(tmp_path: Path, server: Server, archive: bytes) -> None:
    (tmp_path / "cifar-100-binary").mkdir()
    (tmp_path / "cifar-100-binary/mine").touch()
    with pytest.raises(ValueError, match=r"cifar-100-binary is there but lacks train\.bin; move it away"):
        download("cifar100", tmp_path)
    assert server.asked == []


def test_a_zip_archive_is_unpacked(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_tiny_imagenet(tmp_path / "made")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        for file in folder.rglob("*.*"):
            zipped.write(file, file.relative_to(folder.parent))
    offer(server, monkeypatch, "tiny-imagenet", {"tiny-imagenet-200.zip": packed.getvalue()}, "tiny-imagenet-200")
    download("tiny-imagenet", tmp_path / "new")
    assert len(load("tiny-imagenet", "test", tmp_path / "new", verify=False)) == 4


def test_files_that_are_no_archives_are_put_in_their_folder(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for split in ("train", "test"):
        write_mnist(tmp_path / "made", split, random_images(5, 1, 28), cycling_labels(5, 10), compress=True)
    files = {file.name: file.read_bytes() for file in (tmp_path / "made").iterdir()}
    offer(server, monkeypatch, "mnist", files, "mnist")
    (tmp_path / "new/mnist").mkdir(parents=True)
    (tmp_path / "new/mnist/t10k-labels-idx1-ubyte").write_bytes(b"kept")
    download("mnist", tmp_path / "new")
    assert len(load("mnist", "train", tmp_path / "new", verify=False)) == 5
    assert sorted(name for name, _ in server.asked) == sorted(set(files) - {"t10k-labels-idx1-ubyte.gz"})


def test_the_second_address_is_tried_when_the_first_fails(
    tmp_path: Path, server: Server, archive: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    md5 = hashlib.md5(archive).hexdigest()
    urls = (server.url("absent/cifar-100-binary.tar.gz"), server.url("cifar-100-binary.tar.gz"))
    source = replace(SOURCES["cifar100"], archives=(Archive(urls, len(archive), md5, "cifar-100-binary"),))
    monkeypatch.setattr("wcgan.data.fetch.SOURCES", {"cifar100": source})
    assert download("cifar100", tmp_path).is_dir()


def test_without_a_network_one_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(("http://127.0.0.1:9/cifar-100-binary.tar.gz",), 10, "0" * 32, "cifar-100-binary")
    monkeypatch.setattr("wcgan.data.fetch.SOURCES", {"cifar100": replace(SOURCES["cifar100"], archives=(archive,))})
    with pytest.raises(ConnectionError) as caught:
        download("cifar100", tmp_path)
    said = str(caught.value)
    assert said.startswith("cannot download http://127.0.0.1:9/cifar-100-binary.tar.gz (")
    assert said.endswith(f"or bring cifar-100-binary.tar.gz by hand and unpack it in {tmp_path}")
    assert "\n" not in said


def test_what_cannot_be_downloaded_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"imagenet cannot be downloaded without an account: register at https://image-net"
    ):
        download("imagenet", tmp_path)
    with pytest.raises(ValueError, match="unknown dataset 'cifar11'; choose one of digits, mnist"):
        download("cifar11", tmp_path)


@pytest.mark.parametrize("source", SOURCES.values(), ids=lambda source: source.name)
def test_the_addresses_are_whole(source: object) -> None:
    for archive in source.archives:
        assert archive.unpacks_to == source.folders[0]
        assert len(archive.md5) == 32
        assert {url.rsplit("/", 1)[1] for url in archive.urls} == {archive.name}
