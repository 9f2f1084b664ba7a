"""A dry run refuses what the training itself refuses, in the same words, and writes nothing."""

import shutil
import sys
from dataclasses import replace

import pytest
from tests.data.cases import random_images, save
from tests.reproduce.cases import TINY_CLASSIFIER, write_pictures
from tests.train.test_start import configured, photos  # noqa: F401

from wcgan.paper.presets import configure_classifier
from wcgan.train.start import dry_run, start
from wcgan.train.start_classifier import (
    dry_run_classifiers,
    dry_run_to_go_on,
    go_on_with_classifiers,
    start_classifiers,
)


def files(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def outcome(call, *arguments, **options):
    """The refusal of a call; None if there is none."""
    try:
        call(*arguments, **options)
    except (ValueError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.fixture
def begun(photos, tmp_path):  # noqa: F811
    """A run that was stopped at iteration 2 of 3."""
    start(configured(photos), tmp_path / "run", stop_at=2)
    return tmp_path / "run"


def change_config(folder):
    file = folder / "config.yaml"
    file.write_text(file.read_text().replace("beta1: 0.0", "beta1: 0.5"))


def damage_checkpoints(folder):
    for path in folder.glob("checkpoints/*.json"):
        path.write_text("{")


def widen(folder):
    file = folder / "config.yaml"
    file.write_text(file.read_text().replace("noise: 6", "noise: 7"))


def move_images(folder):
    (folder.parent / "photos").rename(folder.parent / "moved")


def replace_images(folder):
    for path, image in zip((folder.parent / "photos").rglob("*.png"), random_images(8, 3, 8, seed=1), strict=True):
        save(path, image)


def nothing(folder):
    pass


REFUSED = {
    "a run that is there": (nothing, {}, {"resume": False}, "exists already"),
    "another seed": (nothing, {"train.seed": 1}, {}, "was begun with another config"),
    "another resolution": (nothing, {"data.resolution": 16}, {}, "was begun with another config"),
    "shorter": (nothing, {"train.iterations": 1}, {}, "is less than the 2 iterations"),
    "a changed config.yaml": (change_config, {"train.beta1": 0.5}, {}, "--accept-config"),
    "weights that do not fit": (
        widen,
        {"generator.noise": 7},
        {"accept_config": True},
        "does not fit the run's config.yaml",
    ),
    "no config.yaml": (lambda folder: (folder / "config.yaml").unlink(), {}, {}, "it has no config.yaml"),
    "damaged checkpoints": (damage_checkpoints, {}, {}, "can be read"),
    "images that were moved": (move_images, {}, {}, "are no longer in"),
    "other images": (replace_images, {}, {}, "are not those that"),
    "nowhere to stop": (nothing, {}, {"stop_at": 0}, "--stop-at must be"),
    "scores without a test split": (nothing, {"train.evaluate_with": "inception"}, {}, "needs a test split"),
}


@pytest.mark.parametrize(("prepare", "settings", "options", "said"), REFUSED.values(), ids=REFUSED)
def test_what_a_run_is_refused_its_dry_run_is_refused_too(begun, prepare, settings, options, said):
    config = configured(begun.parent / "photos", *(f"{name}={value}" for name, value in settings.items()))
    prepare(begun)
    before, options = files(begun), {"resume": True, **options}
    refusal = outcome(dry_run, config, begun, **options)
    assert refusal is not None
    assert said in refusal
    assert refusal == outcome(start, config, begun, **options)
    assert files(begun) == before


@pytest.mark.parametrize(
    ("change", "settings", "options", "said"),
    [
        (nothing, [], {}, "go on from iteration 2"),
        (nothing, ["train.iterations=2"], {}, "go on from iteration 2; nothing is left to train"),
        (change_config, ["train.beta1=0.5"], {"accept_config": True}, "go on from iteration 2"),
    ],
    ids=["unfinished", "finished", "accepted"],
)
def test_a_dry_run_says_where_a_run_goes_on(begun, change, settings, options, said):
    change(begun)
    before = files(begun)
    config = configured(begun.parent / "photos", *settings)
    assert dry_run(config, begun, resume=True, **options)["weights"] == said
    assert files(begun) == before
    assert outcome(start, config, begun, resume=True, **options) is None


def test_where_nothing_is_yet_a_dry_run_with_resume_begins(photos, tmp_path):  # noqa: F811
    assert "weights" not in dry_run(configured(photos), tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()


def test_weights_that_fit_no_part_of_a_new_run_are_refused(begun, photos, tmp_path):  # noqa: F811
    config = configured(photos, "generator.widths=[5, 5]", "generator.noise=5", "discriminator.widths=[5, 5, 5]")
    refusal = outcome(dry_run, config, tmp_path / "new", origin=begun)
    assert refusal is not None
    assert "fits the generator" in refusal
    assert refusal == outcome(start, config, tmp_path / "new", origin=begun)
    assert not (tmp_path / "new").exists()


def test_batches_that_processes_cannot_share_are_refused(photos, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match=r"train\.batch=4 cannot be shared equally by 3 processes"):
        dry_run(configured(photos), tmp_path / "run")


# Classifiers


def configured_classifier(pictures, *settings):
    return configure_classifier(dataset=str(pictures), settings=[*TINY_CLASSIFIER, *settings])


@pytest.fixture
def two_seeds(tmp_path):
    """Two classifiers that were stopped at iteration 2 of 6."""
    start_classifiers(configured_classifier(write_pictures(tmp_path / "pictures")), tmp_path / "run", 2, stop_at=2)
    return tmp_path / "run"


def change_rate(folder):
    file = folder / "seed-1" / "config.yaml"
    file.write_text(file.read_text().replace("momentum: 0.9", "momentum: 0.8"))


def drop_picture(folder):
    max((folder.parent / "pictures").rglob("*.png")).unlink()


def move_pictures(folder):
    (folder.parent / "pictures").rename(folder.parent / "moved")


@pytest.mark.parametrize(
    ("prepare", "settings", "options", "said"),
    [
        (nothing, [], {"resume": False}, "exists already"),
        (nothing, [], {"seeds": None}, "holds the runs of several seeds"),
        (nothing, ["train.momentum=0.8"], {}, "was begun with another config"),
        (nothing, ["data.resolution=24"], {}, r"begun with another config (data.resolution is None, not 24)"),
        (change_rate, [], {}, "was begun with another config"),
        (drop_picture, [], {}, "are not those that"),
        (nothing, [], {"stop_at": 0}, "--stop-at must be"),
    ],
    ids=[
        "there",
        "several seeds",
        "another momentum",
        "another resolution",
        "changed",
        "other images",
        "nowhere to stop",
    ],
)
def test_what_classifiers_are_refused_their_dry_run_is_refused_too(two_seeds, prepare, settings, options, said):
    config = configured_classifier(two_seeds.parent / "pictures", *settings)
    prepare(two_seeds)
    before, options = files(two_seeds), {"seeds": 2, "resume": True, **options}
    refusal = outcome(dry_run_classifiers, config, two_seeds, **options)
    assert refusal is not None
    assert said in refusal
    assert refusal == outcome(start_classifiers, config, two_seeds, **options)
    assert files(two_seeds) == before


@pytest.mark.parametrize(
    ("prepare", "options", "said"),
    [
        (change_rate, {}, "differ in more than their seed"),
        (move_pictures, {}, "are no longer in"),
        (nothing, {"settings": ["train.batch=2"]}, "was begun with another config"),
        (nothing, {"stop_at": 0}, "--stop-at must be"),
    ],
    ids=["changed", "moved", "another batch", "nowhere to stop"],
)
def test_what_seeds_that_go_on_are_refused_their_dry_run_is_refused_too(two_seeds, prepare, options, said):
    prepare(two_seeds)
    before = files(two_seeds)
    refusal = outcome(dry_run_to_go_on, two_seeds, **options)
    assert refusal is not None
    assert said in refusal
    assert refusal == outcome(go_on_with_classifiers, two_seeds, **options)
    assert files(two_seeds) == before


def test_a_dry_run_says_where_classifiers_go_on(two_seeds):
    plan = dry_run_to_go_on(two_seeds)
    assert (plan["seeds"], plan["weights"]) == ("0, 1", "go on from iteration 2")
    go_on_with_classifiers(two_seeds)
    assert dry_run_to_go_on(two_seeds)["weights"] == "go on from iteration 6; nothing is left to train"


def test_something_is_left_to_train_unless_all_seeds_are_at_the_end(two_seeds):
    settings = ["train.iterations=2", "train.drops=[1]"]
    config = configured_classifier(two_seeds.parent / "pictures", *settings)
    start_classifiers(config, two_seeds.parent / "other", 2, stop_at=1)
    start_classifiers(replace(config, train=replace(config.train, seed=0)), two_seeds.parent / "one")
    shutil.rmtree(two_seeds.parent / "other" / "seed-0" / "checkpoints")
    shutil.copytree(two_seeds.parent / "one" / "checkpoints", two_seeds.parent / "other" / "seed-0" / "checkpoints")
    assert dry_run_to_go_on(two_seeds.parent / "other")["weights"] == "go on from iteration 2, 1"


def test_a_classifiers_batch_that_processes_cannot_share_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    config = configured_classifier(write_pictures(tmp_path / "pictures"))
    with pytest.raises(ValueError, match=r"train\.batch=8 cannot be shared equally by 3 processes"):
        dry_run_classifiers(config, tmp_path / "run")


@pytest.mark.usefixtures("digits_at_hand")
def test_a_dry_run_of_a_run_whose_data_set_is_not_here_says_where_it_goes_on(tmp_path, monkeypatch):
    config = configured("digits")
    start(config, tmp_path / "run", stop_at=2)
    classifier = configure_classifier(dataset="digits", settings=TINY_CLASSIFIER)
    start_classifiers(classifier, tmp_path / "classifier", stop_at=2)

    def load(*_):
        raise FileNotFoundError("digits is not here")

    monkeypatch.setattr(sys.modules["wcgan.train.start"], "load_data", load)
    monkeypatch.setattr(sys.modules["wcgan.train.start_classifier"], "load_splits", load)
    plans = dry_run(config, tmp_path / "run", resume=True), dry_run_to_go_on(tmp_path / "classifier")
    for plan in plans:
        assert (plan["missing"], plan["weights"]) == ("digits is not here", "go on from iteration 2")


@pytest.mark.usefixtures("digits_at_hand")
def test_a_dry_run_downloads_no_weights(tmp_path, monkeypatch):
    monkeypatch.delenv("WCGAN_INCEPTION_WEIGHTS", raising=False)
    monkeypatch.setattr("wcgan.evaluate.command.load_inception", lambda *_: pytest.fail("Inception was loaded"))
    dry_run(configured("digits", "train.evaluate_with=inception", "train.evaluate_every=1"), tmp_path / "run")
