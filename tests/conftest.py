"""What all tests share."""

import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.attack.tally import attack, pytest_terminal_summary  # noqa: F401

torch.set_num_threads(1)  # the tests share the cores among processes; threads on top only get in each other's way
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # so do processes, each of which imports torch


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Imports leave little garbage, and looking for it takes a quarter of the time of collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and a data folder of its own for each test, and no weights but its own."""
    folder = tmp_path_factory.mktemp("wcgan")
    monkeypatch.setenv("WCGAN_CACHE", str(folder / "cache"))
    monkeypatch.setenv("WCGAN_DATA", str(folder / "data"))
    monkeypatch.delenv("WCGAN_INCEPTION_WEIGHTS", raising=False)
    return folder


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """A test draws the same numbers whichever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Fills a folder of some name once for all processes that run tests -> the folder, which is to be left as it is."""

    def fill(name: str, make: Callable[[Path], object]) -> Path:
        from wcgan.core.files import locked

        several = "PYTEST_XDIST_WORKER" in os.environ  # their folders lie side by side
        folder = (tmp_path_factory.getbasetemp().parent if several else tmp_path_factory.mktemp("once")) / name
        with locked(folder.with_name(f"{name}.lock")):
            if not (folder / "filled").is_file():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                (folder / "filled").touch()
        return folder

    return fill


@pytest.fixture(scope="session")
def digits_cache(
    tmp_path_factory: pytest.TempPathFactory, once: Callable[[str, Callable[[Path], object]], Path]
) -> Path:
    """A cache with the classifier of the digits in it, which takes seconds to train."""
    from wcgan.data import load
    from wcgan.evaluate.train_small_classifier import load_small_classifier

    def train(folder: Path) -> None:
        load_small_classifier(load("digits", "train"), load("digits", "test"), device="cpu", cache=folder / "cache")

    made = once("digits-classifier", train) / "cache"
    return shutil.copytree(made, tmp_path_factory.mktemp("digits-cache"), dirs_exist_ok=True)


@pytest.fixture
def digits_at_hand(digits_cache: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of the test is that one."""
    monkeypatch.setenv("WCGAN_CACHE", str(digits_cache))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real one, without a window; its tests skip where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="there is no playwright: pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no browser: apt install chromium")
    flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync"]
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=flags)
        yield opened
        opened.close()


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs `wcgan ...` -> exit code, standard output, standard error."""
    from wcgan import cli

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["wcgan", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as end:
            cli.main()
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out, captured.err

    return run
