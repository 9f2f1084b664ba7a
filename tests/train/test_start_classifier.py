"""Classifiers: their presets, their configs by options, and runs from start to end, one or several."""

import pytest
from tests.data.cases import random_images, save
from tests.reproduce.cases import TINY_CLASSIFIER, everything, lines_of, write_pictures
from tests.train.cases import different, last_tensors

from wcgan.data.sources import SOURCES
from wcgan.paper.classifier_presets import CLASSIFIERS, classifier_to_name
from wcgan.paper.presets import classifier_preset, configure, configure_classifier
from wcgan.paper.tables import TABLES
from wcgan.runs.config import ClassifyConfig, ClassifyTrainConfig
from wcgan.runs.folder import Run
from wcgan.train.start_classifier import dry_run_classifiers, folder_to_runs, go_on_with_classifiers, start_classifiers


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture
def configured(pictures):
    def configured(*settings, **options):
        return configure_classifier(dataset=str(pictures), settings=[*TINY_CLASSIFIER, *settings], **options)

    return configured


def errors(folder):
    return {line["iteration"]: line["error"] for line in lines_of(folder, "evaluation")}


# Presets and options


def test_every_row_of_the_papers_table_is_a_preset_and_the_digits_have_four():
    rows = [row.preset for row in TABLES["classification"].rows]
    digits = [f"digits/ResNet-8 {name}" for name in ("BN", "WC", "DBN", "IterNorm")]
    assert list(CLASSIFIERS) == [*digits, *rows]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_preset_is_what_its_name_says_and_fits_its_data(name):
    config = classifier_preset(name)
    network, source = config.classifier, SOURCES[config.data.name]
    assert (config.preset, classifier_to_name(config)) == (name, name)
    assert f"{config.data.name}/ResNet-{network.depth} {network.normalization}" == name
    assert (network.channels, network.classes, network.where) == (source.channels, source.class_count, "first")


def test_the_papers_rows_are_trained_as_he_et_al_trained_theirs():
    rows = [classifier_preset(row.preset) for row in TABLES["classification"].rows]
    assert {config.train for config in rows} == {ClassifyTrainConfig()}
    assert {config.classifier.width for config in rows} == {16}


@pytest.mark.parametrize(
    ("dataset", "flip", "depth"),
    [
        ("cifar10", True, 32),
        ("stl10", True, 32),
        ("mnist", False, 32),
        ("fashion-mnist", False, 32),
        ("digits", False, 8),
    ],
)
def test_without_a_preset_a_data_set_has_its_protocol(dataset, flip, depth):
    config = configure_classifier(dataset=dataset)
    assert (config.data.name, config.train.flip, config.classifier.depth) == (dataset, flip, depth)


def test_the_deepest_network_warms_up():
    assert configure_classifier(dataset="cifar10", depth=110).train.warm_up == 400
    assert configure_classifier(dataset="cifar10", depth=56).train.warm_up == 0


def test_options_change_a_preset_and_settings_come_last():
    changes = {"dataset": "cifar100", "depth": 20, "norm": "DBN", "where": "all", "strict": True}
    config = configure_classifier("cifar10/ResNet-32 WC", **changes, settings=["classifier.depth=26"])
    network = config.classifier
    assert (network.depth, network.normalization, network.where) == (26, "DBN", "all")
    assert (config.data.name, config.data.strict, config.preset) == ("cifar100", True, "cifar10/ResNet-32 WC")


def test_options_that_make_a_preset_are_that_preset():
    assert configure_classifier(dataset="cifar100", depth=56, norm="WC") == classifier_preset("cifar100/ResNet-56 WC")
    assert configure_classifier(norm="BN") == classifier_preset("digits/ResNet-8 BN")
    assert configure_classifier(dataset="cifar100", depth=56, norm="WC", where="all").preset is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"preset": "cifar10/ResNet-33 WC"}, r"unknown preset 'cifar10/ResNet-33 WC'.* nearest are cifar10/ResNet-32"),
        ({"preset": "digits/cWC"}, r"'digits/cWC' is a GAN's preset: wcgan train \"digits/cWC\""),
        ({"norm": "XX"}, r"normalization is 'XX'; it must be one of BN, "),
        ({"norm": "cWC"}, r"normalization is 'cWC'; it must be one of BN, "),
        ({"depth": 33}, r"depth is 33; it must be 6n \+ 2"),
        ({"where": "last"}, r"where is 'last'; it must be one of first, all"),
        ({"settings": ["generator.noise=3"]}, r"unknown section 'generator'.*; known are data, classifier, train"),
        ({"settings": ["train.drops=[5, 5]"]}, r"train\.drops must be iterations in order, at least 1, got \[5, 5\]"),
    ],
)
def test_what_cannot_be_configured_is_said(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        configure_classifier(**options)


def test_a_classifiers_preset_is_not_a_gans():
    with pytest.raises(ValueError, match=r"is a classifier's preset: wcgan classify \"digits/ResNet-8 WC\""):
        configure("digits/ResNet-8 WC")


# Runs


def test_a_run_has_the_config_that_fits_its_data_and_its_errors(configured, tmp_path):
    outcome = start_classifiers(configured("train.seed=4"), tmp_path / "run")
    assert (outcome.iteration, outcome.stopped_by) == (6, None)
    config = Run(tmp_path / "run").config(ClassifyConfig)
    assert (config.classifier.channels, config.classifier.classes, config.train.seed) == (1, 10, 4)
    assert list(errors(tmp_path / "run")) == [3, 6]


def test_seeds_side_by_side_are_each_seed_alone_bit_for_bit(configured, tmp_path):
    start_classifiers(configured(), tmp_path / "both", seeds=2)
    for seed in (0, 1):
        start_classifiers(configured(f"train.seed={seed}"), tmp_path / f"alone-{seed}")
        together, alone = tmp_path / "both" / f"seed-{seed}", tmp_path / f"alone-{seed}"
        assert different(last_tensors(Run(together)), last_tensors(Run(alone))) == []
        assert errors(together) == errors(alone)
        assert Run(together).config(ClassifyConfig) == Run(alone).config(ClassifyConfig)
    assert different(last_tensors(Run(tmp_path / "alone-0")), last_tensors(Run(tmp_path / "alone-1"))) != []


@pytest.mark.parametrize("seeds", [None, 2])
def test_stopped_and_resumed_every_bit_is_that_of_a_run_that_never_was(seeds, configured, tmp_path):
    start_classifiers(configured(), tmp_path / "whole", seeds)
    assert start_classifiers(configured(), tmp_path / "run", seeds, stop_at=3).iteration == 3
    assert go_on_with_classifiers(tmp_path / "run").iteration == 6
    for whole, run in zip(folder_to_runs(tmp_path / "whole"), folder_to_runs(tmp_path / "run"), strict=True):
        assert different(last_tensors(Run(whole)), last_tensors(Run(run))) == []
        assert errors(run)[6] == errors(whole)[6]


def test_more_seeds_are_added_and_what_is_there_is_left_alone(configured, tmp_path):
    start_classifiers(configured(), tmp_path / "run", seeds=1)
    before = everything(tmp_path / "run")
    assert start_classifiers(configured(), tmp_path / "run", seeds=2, resume=True).iteration == 6
    after = everything(tmp_path / "run")
    assert {path: after[path] for path in before} == before
    assert list(errors(tmp_path / "run" / "seed-1")) == [3, 6]


def test_one_that_was_stopped_goes_on_beside_a_new_one(configured, tmp_path):
    start_classifiers(configured(), tmp_path / "run", seeds=1, stop_at=4)
    start_classifiers(configured(), tmp_path / "run", seeds=2, resume=True)
    started = [line["what"] for line in lines_of(tmp_path / "run" / "seed-0", "event")]
    assert started == ["started", "stopped", "resumed", "finished"]
    assert [line["what"] for line in lines_of(tmp_path / "run" / "seed-1", "event")] == ["started", "finished"]


def test_what_is_there_is_never_written_over(configured, tmp_path):
    start_classifiers(configured(), tmp_path / "one")
    start_classifiers(configured(), tmp_path / "seeds", seeds=2, stop_at=2)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "report.html").write_text("mine")
    before = everything(tmp_path)
    for folder, options, sentence in (
        ("one", {}, "exists already"),
        ("one", {"seeds": 2, "resume": True}, "is the folder of one run"),
        ("seeds", {"seeds": 2}, "exists already"),
        ("seeds", {"seeds": 3}, "exists already"),
        ("other", {"seeds": 2, "resume": True}, "exists already"),
    ):
        with pytest.raises(ValueError, match=sentence):
            start_classifiers(configured(), tmp_path / folder, **options)
    message = r"was begun with another config \(classifier\.normalization is WC, not BN\): .* with another --out$"
    with pytest.raises(ValueError, match=message):  # classifiers have no --from
        start_classifiers(configured(norm="BN"), tmp_path / "seeds", seeds=3, resume=True)
    assert everything(tmp_path) == before


def test_seeds_out_of_range_are_refused(configured, tmp_path):
    with pytest.raises(ValueError, match="--seeds must be at least 1, got 0"):
        start_classifiers(configured(), tmp_path / "run", seeds=0)
    with pytest.raises(ValueError, match=r"train\.seed=3 is not for --seeds"):
        start_classifiers(configured("train.seed=3"), tmp_path / "run", seeds=2)
    assert list(tmp_path.iterdir()) == []


def test_the_seeds_of_a_folder_are_found_in_their_order_and_nothing_else_is(tmp_path):
    for name in ("seed-10", "seed-2", "seed-best", "seed-²", "other"):
        (tmp_path / name).mkdir()
    assert [run.name for run in folder_to_runs(tmp_path)] == ["seed-2", "seed-10"]
    (tmp_path / "config.yaml").touch()
    assert folder_to_runs(tmp_path) == [tmp_path]


def test_runs_that_differ_in_more_than_their_seed_do_not_go_on_together(configured, tmp_path):
    start_classifiers(configured(), tmp_path / "run" / "seed-0", stop_at=2)
    start_classifiers(configured("train.seed=1", norm="BN"), tmp_path / "run" / "seed-1", stop_at=2)
    with pytest.raises(ValueError, match="differ in more than their seed: resume each by itself"):
        go_on_with_classifiers(tmp_path / "run")


def test_images_that_changed_are_not_trained_on(tmp_path):
    def write(seed):
        for number, image in enumerate(random_images(30, 1, 8, seed=seed)):
            save(tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number:02}.png", image)

    write(0)
    config = configure_classifier(dataset=str(tmp_path / "photos"), settings=TINY_CLASSIFIER)
    start_classifiers(config, tmp_path / "run", stop_at=2)
    before = everything(tmp_path / "run")
    write(1)
    with pytest.raises(ValueError, match=r"the images of photos are not those that .*run was trained on"):
        go_on_with_classifiers(tmp_path / "run")
    assert everything(tmp_path / "run") == before


def test_images_without_classes_are_refused_before_anything_is_written(tmp_path):
    for number, image in enumerate(random_images(30, 1, 8)):
        save(tmp_path / "photos" / f"{number}.png", image)
    config = configure_classifier(dataset=str(tmp_path / "photos"), settings=TINY_CLASSIFIER)
    with pytest.raises(ValueError, match="a classifier needs several classes; photos has none"):
        start_classifiers(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_dry_run_without_the_data_set_takes_its_published_size(tmp_path):
    config = configure_classifier(dataset="cifar10", settings=["train.device=cpu"])
    said = dry_run_classifiers(config, tmp_path / "run")
    assert said["data"] == "cifar10: 50,000 images of 3x32x32 to learn from, 10,000 to test with, 10 classes"
    assert said["missing"].startswith("cifar10 is not in ")


def test_a_dry_run_says_what_would_be_trained(configured, pictures, tmp_path):
    said = dry_run_classifiers(configured(), tmp_path / "run", seeds=3)
    assert said["data"] == f"{pictures.name}: 40 images of 1x16x16 to learn from, 20 to test with, 10 classes"
    assert said["classifier"] == "ResNet-8, WC in the first layer, 4,946 parameters"
    assert said["training"] == "6 iterations of 8 images, 1.2 passes over the data"
    assert said["seeds"] == "0, 1, 2"
    assert "WC in all layers" in dry_run_classifiers(configured(where="all"), tmp_path / "run")["classifier"]
