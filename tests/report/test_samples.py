"""Grids side by side: drawn from checkpoints with one noise, or the runs' own where there are none."""

import base64
import io
import shutil
from dataclasses import replace
from functools import cache

import pytest
import torch
from PIL import Image
from tests.report.reader import read_page, section
from tests.train.cases import tiny_config, tiny_data, tiny_run

from wcgan.core.images import grid
from wcgan.report import write_report
from wcgan.runs.sampler import load_generator
from wcgan.train.gan import train


@pytest.fixture(scope="module")
def train_once(tmp_path_factory):
    """Trains a tiny run that writes grids during training, or finds it trained -> its folder."""
    folder = tmp_path_factory.mktemp("trained")

    @cache
    def train_once(variant, noise, iterations):
        config = tiny_config(variant, iterations=iterations, sample_every=1)
        config = replace(config, generator=replace(config.generator, noise=noise))
        run = folder / f"{variant}-{noise}-{iterations}"
        train(config, tiny_data(), tiny_run(run, config))
        return run

    return train_once


@pytest.fixture
def trained(train_once, tmp_path):
    """Gives a copy of a trained run, free to be damaged -> its folder."""

    def copy(name, variant="cWC", noise=6, iterations=2):
        return shutil.copytree(train_once(variant, noise, iterations), tmp_path / name)

    return copy


@pytest.fixture
def report(tmp_path):
    return lambda *runs: read_page(write_report(runs, tmp_path / "page.html"))


def pixels(image):
    data = base64.b64decode((image.attributes["src"] or "").partition(",")[2])
    return torch.tensor(list(Image.open(io.BytesIO(data)).tobytes()))


def test_grids_of_several_runs_are_drawn_from_their_checkpoints_with_one_noise(trained, report):
    runs = [trained("a"), trained("b", "cBN")]
    page = report(*runs)
    for run, image in zip(runs, page.all("img"), strict=True):
        expected = grid(load_generator(run).rows(10, seed=0), 10)
        assert torch.equal(pixels(image), expected.flatten().long())
    assert "Drawn from the last checkpoints with the same noise (seed 0) and the same classes." in page.text


def test_the_picture_is_that_of_the_last_checkpoint(trained, report):
    runs = [trained("a", iterations=4), trained("b", "cBN", iterations=2)]
    captions = [caption.text for caption in report(*runs).all("figcaption")]
    assert [caption.partition(":")[0] for caption in captions] == ["cWC, iteration 4", "cBN, iteration 2"]


def test_noise_of_another_length_is_said_to_be_another(trained, report):
    page = report(trained("a"), trained("b", noise=9))
    assert "The noise has 6 or 9 dimensions; grids share it only if they have equally many" in page.text


def test_generators_with_and_without_classes_are_not_said_to_share_their_noise(trained, report):
    page = report(trained("a"), trained("b", "WC"))
    assert "with the same noise" not in page.text
    assert "both conditional or both unconditional" in page.text


def test_without_a_checkpoint_the_runs_own_picture_stands_in_and_says_so(trained, report):
    bare, whole = trained("bare"), trained("whole", "cBN")
    shutil.rmtree(bare / "checkpoints")
    page = report(bare, whole)
    own, drawn = (caption.text for caption in page.all("figcaption"))
    assert own.endswith("Picture from training, since there is no checkpoint")
    assert "from training" not in drawn
    data = (page.all("img")[0].attributes["src"] or "").partition(",")[2]
    assert base64.b64decode(data) == (bare / "samples" / "0000002.png").read_bytes()


def test_a_damaged_checkpoint_is_named_without_its_path(trained, report, tmp_path):
    damaged = trained("damaged")
    for file in (damaged / "checkpoints").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    page = report(damaged, trained("whole", "cBN"))
    assert "its checkpoint cannot be used: no checkpoint in damaged/checkpoints can be read" in page.text
    assert str(tmp_path) not in page.text


def test_an_invalid_config_leaves_the_runs_own_picture(trained, report):
    strange, whole = trained("strange"), trained("whole", "cBN")
    for content in ("a: [", "- 1", "generator: {widths: [x]}", "generator: 3"):
        (strange / "config.yaml").write_text(content)
        page = report(strange, whole)
        assert "its checkpoint cannot be used" in page.text
        assert len(page.all("img")) == 2


def test_one_run_alone_shows_its_own_picture(trained, report):
    run = trained("run")
    page = report(run)
    assert "Drawn from" not in section(page, "Samples")
    data = (page.all("img")[0].attributes["src"] or "").partition(",")[2]
    assert base64.b64decode(data) == (run / "samples" / "0000002.png").read_bytes()


def row_names(page):
    return [[name.text for name in names.all("li")] for names in page.all("ol")]


def test_grids_name_their_rows(trained, report):
    assert row_names(report(trained("run"))) == [["a", "b", "c"]]
    assert row_names(report(trained("one"), trained("two", "WC"))) == [["a", "b", "c"]]


@pytest.mark.parametrize("facts", ["{", "[]", '{"classes": 3}', '{"classes": [1, 2, 3]}', None])
def test_rows_whose_names_cannot_be_read_have_their_numbers(trained, report, facts):
    run = trained("run")
    for file in (run / "checkpoints").glob("*.json"):
        file.unlink() if facts is None else file.write_text(facts)
    assert row_names(report(run)) == [["0", "1", "2"]]
