"""`evaluate`: runs, checkpoints, folders and named sets, and one sentence for each thing that cannot be measured."""

import shutil

import numpy as np
import pytest
import torch
from tests.data.cases import random_images, save
from tests.evaluate.cases import pictures, write_pictures
from tests.train.test_start import TINY

from wcgan.core.images import to_uint8
from wcgan.evaluate.command import (
    EvaluationConfig,
    doubts,
    evaluate,
    path_to_checkpoint,
    sampler_to_sample,
    target_to_run,
)
from wcgan.evaluate.image_sets import load_image_set, name_to_parts
from wcgan.evaluate.small_classifier import Classifier, ClassifierFacts, ClassifierNetwork
from wcgan.norm import use_batch_statistics
from wcgan.paper.presets import configure
from wcgan.runs.pretrained import shipped
from wcgan.runs.sampler import load_generator
from wcgan.train.start import start

CLASSIFIER = {"features": ("classifier",)}
FID, IS = "FID(classifier)", "IS(classifier)"


pytestmark = pytest.mark.usefixtures("digits_at_hand")


@pytest.fixture(scope="module")
def run(tmp_path_factory, digits_cache):
    folder = tmp_path_factory.mktemp("evaluated") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WCGAN_CACHE", str(digits_cache))
        patch.delenv("WCGAN_INCEPTION_WEIGHTS", raising=False)
        start(configure("digits/cWC", settings=[*TINY, "train.evaluate_every=2"]), folder)
    return folder


@pytest.fixture
def folders(tmp_path):
    """Two folders of pictures."""
    return (
        write_pictures(tmp_path / "generated", pictures(6)),
        write_pictures(tmp_path / "real", pictures(5, seed=1, brightness=30)),
    )


def scores_of(target, reference=None, **options):
    return evaluate(str(target), EvaluationConfig(reference=None if reference is None else str(reference), **options))


def test_two_folders_are_scored_with_no_dataset(folders, weights_file):
    found = scores_of(*folders, inception_weights=weights_file, device="cpu")
    assert list(found.scores)[:4] == ["FID", "IS", "precision", "recall"]
    assert found.scores["protocol"]["neighbours"] == 3
    assert found.scores["protocol"]["name"] == "all, 6 generated against 5, 3 sets of 2"
    assert target_to_run(str(folders[0])).folder == folders[0]
    assert found.notes == ("KID is left out: it draws subsets of 1,000 images; see --kid-subset-size",)
    assert found.scores["FID"] > 0


@pytest.mark.parametrize(("accuracy", "classes", "doubted"), [(0.5, 2, True), (0.65, 2, False), (0.3, 10, True)])
def test_a_classifier_at_chance_is_doubted(accuracy, classes, doubted):
    facts = ClassifierFacts("p train", 9, (3, 8, 8), tuple("abcdefghij"[:classes]), "p held out", accuracy, "", None)
    notes = doubts(Classifier(ClassifierNetwork(3, 8, classes, 4), facts, torch.device("cpu")))
    chance = f"{1 / classes:.0%}"
    wanted = f"the classifier is right for {accuracy:.0%} of p held out, and chance for {chance}: its scores say little"
    assert [note.startswith(wanted) for note in notes] == [True] * doubted


def test_file_names_and_their_order_change_nothing(tmp_path):
    images = load_image_set("digits:train", "test").images[:12]
    one, other = (
        scores_of(
            write_pictures(tmp_path / folder, images, names),
            "digits:test",
            **CLASSIFIER,
            metrics=("is", "fid", "kid"),
            kid_subset_size=5,
            images=10,
        ).scores
        for folder, names in (("one", None), ("renamed", [f"{99 - i:02}" for i in range(12)]))
    )
    for name in (FID, IS, "KID(classifier)"):
        assert one[name] == pytest.approx(other[name], rel=1e-5, abs=1e-9)


def test_a_run_and_each_of_its_checkpoints_can_be_scored(run):
    options = {**CLASSIFIER, "images": 30}
    by_number, by_file, last = (
        scores_of(target, **options, checkpoint=checkpoint)
        for target, checkpoint in ((run, "2"), (run / "checkpoints" / "0000002.safetensors", "last"), (run, "last"))
    )
    assert (by_number.iteration, by_file.iteration, last.iteration) == (2, 2, 3)
    assert by_number.scores[FID] == by_file.scores[FID] != last.scores[FID]
    assert target_to_run(str(run / "checkpoints" / "0000002.safetensors")).folder == run
    assert path_to_checkpoint(run, "best")[1].facts["iteration"] in (2, 3)


def test_a_copy_of_a_checkpoint_is_scored_itself_and_not_the_one_of_a_similar_name(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    for old, new in (("0000002", "copy.of-2"), ("0000003", "copy")):
        for suffix in (".safetensors", ".json"):
            shutil.copy(checkpoints / f"{old}{suffix}", checkpoints / f"{new}{suffix}")
    assert scores_of(checkpoints / "copy.of-2.safetensors", **CLASSIFIER, images=30).iteration == 2


def test_the_generator_itself_can_be_scored_in_place_of_its_average(run, tmp_path):
    options = {**CLASSIFIER, "images": 30, "metrics": ("fid",)}
    averaged, itself = (scores_of(run, **options, average=average).scores for average in (True, False))
    assert averaged[FID] != itself[FID]
    assert itself["protocol"] == averaged["protocol"] | {"generator": "not averaged"}
    start(configure("digits/cWC", settings=[*TINY, "train.ema=0"]), tmp_path / "plain")
    assert scores_of(tmp_path / "plain", **options).scores[FID] == itself[FID]  # an average changes no training
    with pytest.raises(ValueError, match="plain has no moving average of its generator: leave out --no-average"):
        scores_of(tmp_path / "plain", **options, average=False)


@pytest.fixture(scope="module")
def by_statistics(run, digits_cache):
    """The scores of a run with running statistics, and with those of batches of 16 and of 64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WCGAN_CACHE", str(digits_cache))
        options = {**CLASSIFIER, "images": 30, "metrics": ("fid",)}
        return {size: scores_of(run, **options, batch_statistics=size).scores for size in (None, 16, 64)}


def test_the_statistics_that_normalise_generated_images_change_their_score(by_statistics):
    assert len({scores[FID] for scores in by_statistics.values()}) == 3


def test_a_protocol_records_the_statistics_only_where_they_are_those_of_batches(by_statistics):
    usual = by_statistics[None]["protocol"]
    assert "statistics" not in usual
    for size in (16, 64):
        assert by_statistics[size]["protocol"] == usual | {"statistics": f"of batches of {size}"}


def test_with_batch_statistics_each_batch_of_generated_images_is_one_of_training(run):
    sampler, training = (load_generator(run, device="cpu") for _ in range(2))
    labels = torch.arange(256) % 10
    use_batch_statistics(sampler.network)
    drawn = sampler_to_sample(sampler, 64)(256, labels, 7)
    training.network.train()
    for z, y, images in zip(sampler.noise(256, 7).split(64), labels.split(64), drawn.split(64), strict=True):
        assert torch.equal(to_uint8(training.network(z, y)), images)


@pytest.mark.parametrize("size", [2, 4, 8, 16, 32, 64, 128, 256])
def test_batches_for_statistics_may_have_any_size_that_divides_a_chunk(size):
    assert EvaluationConfig(batch_statistics=size).batch_statistics == size


@pytest.mark.parametrize("named", [False, True], ids=["folder", "named set"])
def test_a_set_of_images_has_no_batch_statistics(folders, named):
    target = "digits:train" if named else folders[0]
    with pytest.raises(ValueError, match=f"--batch-statistics is for generators, and .*{target} is a set of images"):
        scores_of(target, folders[1], batch_statistics=64)


def test_a_generator_of_the_package_is_scored_by_its_name_and_nothing_is_written_into_the_package():
    folder = shipped("digits-cWC_sa")
    found, by_path = (scores_of(target, **CLASSIFIER, images=30) for target in ("digits-cWC_sa", folder))
    assert found.scores[FID] == by_path.scores[FID]
    assert found.iteration == by_path.iteration > 0
    assert target_to_run("digits-cWC_sa") is None
    assert not (folder / "metrics.jsonl").exists()


def test_what_lies_in_the_folder_comes_before_the_generator_of_that_name(monkeypatch, tmp_path, run):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run, "digits-cWC_sa")
    assert scores_of("digits-cWC_sa", **CLASSIFIER, images=30).iteration == 3


def test_a_folder_is_scored_by_the_classifier_of_the_reference_set(tmp_path):
    generated = write_pictures(tmp_path / "digits-like", load_image_set("digits:train", "test").images[:40])
    found = scores_of(generated, "digits:test", **CLASSIFIER, images=40)
    assert found.scores["protocol"]["classifier"]["trained_on"] == "digits train"
    assert 0 < found.scores[FID] < 10
    assert found.scores[IS] > 2


def test_a_named_set_can_be_scored_too():
    found = scores_of("digits:train", "digits:test", **CLASSIFIER, protocol="all")
    assert found.scores["protocol"]["name"] == "all, 1,438 generated against 359, 10 sets of 143"
    assert target_to_run("digits:train") is None
    assert found.scores[FID] < 1


def test_a_resolution_and_channels_bring_both_sets_together(tmp_path, weights_file):
    small = write_pictures(tmp_path / "small", pictures(5, size=8))
    large = write_pictures(tmp_path / "large", pictures(4, size=16)[:, :1].repeat(1, 3, 1, 1))
    with pytest.raises(ValueError, match=r"8x8 RGB and those of large 16x16 RGB.*--resolution and --channels"):
        scores_of(small, large, inception_weights=weights_file)
    found = scores_of(small, large, inception_weights=weights_file, resolution=8, channels=1, metrics=("is",))
    assert found.scores["IS"] >= 1


def test_the_reference_of_tiny_imagenet_is_its_test_set_or_its_validation_set(monkeypatch):
    asked = []
    monkeypatch.setattr("wcgan.data.load", lambda name, split, *rest, **options: asked.append((name, split)))
    for reference in (None, "test"):
        config = configure("tiny-imagenet/cWC_sa", settings=[f"data.reference={reference or 'null'}"])
        load_image_set(config.data.reference_name, "test")
    load_image_set("tiny-imagenet", "train")
    assert [split for _, split in asked] == ["unlabeled", "test", "train"]


def test_the_reference_of_stl10_is_its_unlabeled_split(monkeypatch):
    asked = []
    monkeypatch.setattr("wcgan.data.load", lambda name, split, *rest, **options: asked.append((name, split)))
    for name in ("stl10", "stl10:test", "cifar10"):
        load_image_set(name, "test")
    assert asked == [("stl10", "unlabeled"), ("stl10", "test"), ("cifar10", "test")]


def test_a_folder_may_be_called_with_a_colon(tmp_path):
    (tmp_path / "odd:test").mkdir()
    assert name_to_parts(str(tmp_path / "odd:test")) == (str(tmp_path / "odd:test"), None)
    assert name_to_parts("digits:test") == ("digits", "test")


def test_a_broken_image_is_skipped_as_in_training_and_an_error_if_strict(folders, weights_file):
    (folders[0] / "broken.png").write_bytes(b"not an image")
    assert len(load_image_set(str(folders[0]), "test")) == 6
    with pytest.raises(ValueError, match=r"cannot be read: broken\.png; mend or remove"):
        scores_of(*folders, inception_weights=weights_file, strict=True)


def test_a_run_is_scored_by_a_protocol_that_fits_its_number_of_images(run):
    found = scores_of(run, **CLASSIFIER, metrics=("is", "fid"))
    assert found.scores["protocol"]["name"] == "paper-10k, 20 generated against 359, 10 sets of 2"  # as in training


def test_a_run_whose_images_are_gone_says_so(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    text = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(text.replace("name: digits", f"name: {tmp_path}/gone"))
    with pytest.raises(ValueError, match=r"the images of .*copy are no longer in .*gone: --data FOLDER"):
        scores_of(copy, **CLASSIFIER)


def test_other_images_under_the_name_in_a_config_are_refused(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    others = write_pictures(tmp_path / "others" / "cat", pictures(12, size=16)).parent
    text = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(text.replace("name: digits", f"name: {others}"))
    with pytest.raises(ValueError, match=r"others, which config\.yaml names, are not those that 0000003\."):
        scores_of(copy, **CLASSIFIER)


def test_images_of_several_sizes_need_a_resolution(folders, weights_file):
    save(folders[0] / "larger.png", np.asarray(random_images(1, 3, 12)[0]))
    with pytest.raises(ValueError, match=r"have several sizes.*give a resolution"):
        scores_of(*folders, inception_weights=weights_file)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"metrics": ("fid", "psnr")},
            "is, fid, kid, pr, got psnr; pr is precision and recall",
        ),
        ({"features": ()}, "--features takes some of inception, classifier, got none"),
        ({"batch": 0}, "--batch must be at least 1, got 0"),
        ({"kid_subset_size": 1}, "--kid-subset-size must be at least 2, got 1"),
        *(
            ({"batch_statistics": size}, f"--batch-statistics must be a power of 2 up to 256, got {size}$")
            for size in (-64, 0, 1, 48, 512)
        ),
        ({"protocol": "20k"}, "unknown protocol '20k'; choose one of"),
        ({"protocol": "paper-5k"}, "needs 10,000 real images and there are 359.*--images N"),
        ({"resolution": 8}, "--resolution and --channels are for folders of images"),
        ({"checkpoint": "9"}, "0000009.* is missing"),
        ({"images": 30, "metrics": ("kid",)}, "KID draws subsets of 1,000 images, and 30 are scored against 359"),
        ({"device": "cuda:99"}, "there is no GPU cuda:99"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_be_measured_is_said_and_nothing_is_written(run, options, message):
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match=message):
        scores_of(run, **{**CLASSIFIER, **options})
    assert (run / "metrics.jsonl").read_bytes() == before


def test_targets_that_are_nothing_to_score_are_refused(tmp_path, run, weights_file):
    with pytest.raises(ValueError, match="nowhere is neither a run, nor a checkpoint, nor a folder"):
        scores_of("nowhere", "digits:test", **CLASSIFIER)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty holds no images"):
        scores_of(tmp_path / "empty", "digits:test", inception_weights=weights_file)
    with pytest.raises(ValueError, match=r"what should .* be compared with"):
        scores_of(tmp_path / "empty", inception_weights=weights_file)
    shutil.copy(run / "checkpoints" / "0000003.safetensors", tmp_path / "alone.safetensors")
    with pytest.raises(ValueError, match=r"alone\.safetensors is not a checkpoint of a run"):
        scores_of(tmp_path / "alone.safetensors", **CLASSIFIER)


def test_a_reference_without_labels_has_no_classifier(folders):
    with pytest.raises(ValueError, match="has no labels, so no classifier can learn from it"):
        scores_of(*folders, **CLASSIFIER)
