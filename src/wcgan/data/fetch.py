"""Download the official files of a dataset: interrupted downloads resume, and every file is verified."""

import hashlib
import http.client
import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from wcgan.core.files import locked
from wcgan.core.terminal import OnProgress
from wcgan.data.sources import SOURCES, Archive, data_folder

_BLOCK = 1 << 20
_TIMEOUT = 30  # seconds without a byte


def download(name: str, folder: str | os.PathLike[str] | None = None, *, progress: OnProgress | None = None) -> Path:
    """Download a named dataset from its official address into the data folder, and return its folder.

    What is already there is left alone. A download that was interrupted is continued.

    Args:
        name: one of `names()`.
        folder: the data folder; None for `$WCGAN_DATA`, else `~/.cache/wcgan/data`.
        progress: called with what is being done, bytes done and bytes in all.

    Raises:
        ValueError: for a dataset that cannot be downloaded, or a file that is not the official one.
        ConnectionError: if the address cannot be reached.
    """
    if name not in SOURCES:
        raise ValueError(f"unknown dataset {name!r}; choose one of {', '.join(SOURCES)}")
    source, root = SOURCES[name], data_folder(folder)
    if not source.folders:
        return root  # the digits come with scikit-learn
    if not source.archives:
        raise ValueError(f"{name} cannot be downloaded without an account: {source.how_to_get(root)}")
    root.mkdir(parents=True, exist_ok=True)
    with locked(root / f".{name}.lock"):
        for archive in source.archives:
            home = root / archive.unpacks_to
            if archive.is_kept:
                if not (home / archive.name).is_file() and not (home / archive.name.removesuffix(".gz")).is_file():
                    home.mkdir(exist_ok=True)
                    os.replace(fetch(archive, root, progress), home / archive.name)
            elif source.find(root) is None:
                if home.exists():
                    raise ValueError(f"{home} is there but lacks {source.markers[0]}; move it away and try again")
                _unpack(fetch(archive, root, progress), home)
    where = source.find(root)
    if where is None:
        raise ValueError(f"{source.archives[0].name} did not hold {source.markers[0]}; report this")
    return where


def fetch(archive: Archive, root: Path, progress: OnProgress | None = None) -> Path:
    """The complete, verified file, under a temporary name in `root`."""
    part = root / f".{archive.unpacks_to}.{archive.name}.part"
    failures = []
    for url in archive.urls:
        try:
            _continue(url, archive, part, progress)
            break
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            failures.append(f"{url} ({reason})")
    else:
        raise ConnectionError(
            f"cannot download {' or '.join(failures)}; with a network, run it again and it goes on where it stopped, "
            f"or bring {archive.name} by hand and unpack it in {root}"
        )
    with part.open("rb") as file:
        digest = hashlib.new("md5", usedforsecurity=False)
        while block := file.read(_BLOCK):
            digest.update(block)
    if part.stat().st_size != archive.size or digest.hexdigest() != archive.md5:
        found = f"{part.stat().st_size} bytes, md5 {digest.hexdigest()[:12]}..."
        part.unlink()
        raise ValueError(
            f"{archive.name} came as {found}, not {archive.size} bytes, md5 {archive.md5[:12]}...; "
            "it was deleted, try again"
        )
    return part


def _continue(url: str, archive: Archive, part: Path, progress: OnProgress | None) -> None:
    have = part.stat().st_size if part.exists() else 0
    if have >= archive.size:
        return
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
        have = have if response.status == 206 else 0  # a server may ignore the range and send everything
        with part.open("ab" if have else "wb") as file:
            while (block := response.read(_BLOCK)) and have <= archive.size:
                file.write(block)
                have += len(block)
                if progress:
                    progress(f"downloading {archive.name}", have, archive.size)
    if have < archive.size:
        raise ConnectionError(f"it ended after {have} of {archive.size} bytes")


def _unpack(part: Path, home: Path) -> None:
    """Unpack next to the destination, rename atomically, and delete the archive."""
    scratch = home.with_name(f".{home.name}.unpacking")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        if zipfile.is_zipfile(part):
            with zipfile.ZipFile(part) as zipped:
                zipped.extractall(scratch)
        else:
            with tarfile.open(part) as tarred:
                if hasattr(tarfile, "data_filter"):
                    tarred.extractall(scratch, filter="data")
                else:  # an early 3.10; the archive's checksum was verified
                    tarred.extractall(scratch)
        os.replace(scratch / home.name, home)
        part.unlink()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
