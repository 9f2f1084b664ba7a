import pytest
import torch
from tests.end_to_end.cases import training, write_photos


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder of its own to stand in, with cache and data folders beside what a command may write."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("WCGAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WCGAN_DATA", str(tmp_path / "data"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path / "here"
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run of three iterations on three classes of 8 x 8 colour images."""
    from wcgan.paper.presets import configure
    from wcgan.train.start import start

    folder = tmp_path_factory.mktemp("trained")
    arguments = training(write_photos(folder / "photos"), folder / "run", iterations=3)
    settings = [arguments[i + 1] for i, argument in enumerate(arguments) if argument == "--set"]
    start(configure("digits/cWC", str(folder / "photos"), settings=settings), folder / "run")
    return folder / "run"


@pytest.fixture
def digits_run(place, digits_cache, monkeypatch):
    """A run of two iterations on the digits."""
    monkeypatch.setenv("WCGAN_CACHE", str(digits_cache))
    from wcgan.paper.presets import configure
    from wcgan.train.start import start

    settings = ["train.iterations=2", "train.batch=4", "train.generator_batch=4", "train.evaluate_images=10"]
    start(configure("digits/cWC", settings=[*settings, "train.device=cpu"]), place / "run")
    return place / "run"
