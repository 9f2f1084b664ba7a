"""The evaluation of a run while it trains: what is measured, by what, and when it is refused."""

from dataclasses import replace

import pytest
import torch
from tests.data.cases import random_images, save
from tests.evaluate.cases import random_weights
from tests.train.test_start import TINY, evaluations

from wcgan.evaluate.command import EvaluationConfig, evaluate, sampler_to_sample
from wcgan.paper.presets import configure
from wcgan.runs.checkpoint import read_checkpoint, read_newest, write_checkpoint
from wcgan.runs.folder import Run
from wcgan.runs.sampler import load_generator
from wcgan.train.start import evaluator_for, fit_config, go_on, load_data, start

UNCONDITIONAL = ("generator.normalization=WC", "discriminator.head=plain")
FID, IS, ACCURACY = "FID(classifier)", "IS(classifier)", "accuracy(classifier)"


def configured(source, *settings):
    return configure("digits/cWC", str(source), settings=[*TINY, *settings])


@pytest.fixture
def photos(tmp_path):
    """A folder of 8 x 8 colour images of two classes, with a test split."""
    for split, seed in (("train", 0), ("test", 1)):
        for number, image in enumerate(random_images(12, 3, 8, seed=seed)):
            save(tmp_path / "photos" / split / ("cat", "dog")[number % 2] / f"{number}.png", image)
    return tmp_path / "photos"


def test_a_run_is_scored_every_so_often_against_the_test_split(digits_at_hand, tmp_path, capsys):
    start(configured("digits", "train.seed=9", "train.evaluate_every=2"), tmp_path / "run")
    first, last = evaluations(tmp_path / "run")
    assert (first["iteration"], last["iteration"]) == (2, 3)
    assert first[FID] != last[FID]
    assert f"{ACCURACY} {100 * last[ACCURACY]:.1f}%" in capsys.readouterr().err
    protocol = last["protocol"]
    assert protocol["name"] == "paper-10k, 20 generated against 359, 10 sets of 2"
    assert (protocol["seed"], protocol["reference"]["split"], protocol["labels"]) == (9, "test", "uniform")
    assert protocol["classifier"]["trained_on"] == "digits train"


def test_the_last_figures_are_those_of_the_command_for_the_same_seed(photos, tmp_path):
    start(configured(photos, "train.seed=4"), tmp_path / "run")
    (line,) = evaluations(tmp_path / "run")
    settings = EvaluationConfig(features=("classifier",), metrics=("is", "fid"), images=20, seed=4)
    again = evaluate(str(tmp_path / "run"), settings)
    assert again.iteration == 3
    for name in (FID, IS, ACCURACY):
        assert again.scores[name] == pytest.approx(line[name], rel=1e-6)
    ours, theirs = ({**scores["protocol"], "std": None} for scores in (again.scores, line))
    assert ours == theirs


def test_another_split_can_be_the_reference_and_the_figures_say_which(photos, tmp_path):
    start(configured(photos, "data.reference=train"), tmp_path / "run")
    (line,) = evaluations(tmp_path / "run")
    assert line["protocol"]["reference"]["split"] == "train"
    settings = EvaluationConfig(features=("classifier",), metrics=("fid",), images=20)
    again = evaluate(str(tmp_path / "run"), settings)
    assert again.scores["protocol"]["reference"] == line["protocol"]["reference"]


@pytest.mark.parametrize("head", ["plain", "projection"])
def test_a_generator_without_classes_gets_no_labels(head, digits_at_hand, tmp_path):
    start(configured("digits", "generator.normalization=WC", f"discriminator.head={head}"), tmp_path / "run")
    (line,) = evaluations(tmp_path / "run")
    again = evaluate(str(tmp_path / "run"), EvaluationConfig(features=("classifier",), metrics=("fid",), images=20))
    for scores in (line, again.scores):
        assert scores["protocol"]["labels"] is None
        assert ACCURACY not in scores
        assert scores[FID] > 0


def test_a_strict_run_is_scored_on_images_that_can_all_be_read(photos, tmp_path):
    start(configured(photos, "data.strict=true"), tmp_path / "run")
    (photos / "test" / "cat" / "broken.png").write_bytes(b"not an image")
    with pytest.raises(ValueError, match="cannot be read"):
        evaluate(str(tmp_path / "run"), EvaluationConfig(features=("classifier",), metrics=("fid",), images=20))


def test_with_inceptions_weights_both_networks_look_at_the_images(photos, tmp_path, monkeypatch):
    weights = {key: value for key, value in random_weights().items() if not key.startswith("fc.")}
    torch.save(weights, tmp_path / "weights.pth")
    monkeypatch.setenv("WCGAN_INCEPTION_WEIGHTS", "nowhere.pth")  # the argument comes before it
    start(configured(photos, "train.evaluate_images=10"), tmp_path / "run", inception_weights=tmp_path / "weights.pth")
    (line,) = evaluations(tmp_path / "run")
    assert [name for name in ("FID", "IS", FID, IS, ACCURACY) if name in line] == ["FID", FID, IS, ACCURACY]
    assert list(line)[2] == "FID"  # the best state is the best by Inception
    assert line["FID"] > 0


def test_the_classifier_can_be_asked_for_where_there_are_weights(photos, monkeypatch):
    monkeypatch.setenv("WCGAN_INCEPTION_WEIGHTS", "nowhere.pth")
    config = configured(photos, "train.evaluate_with=classifier")
    assert evaluator_for(fit_config(config, load_data(config)), load_data(config)) is not None
    config = configured(photos)
    with pytest.raises(ValueError, match=r"no Inception weights in nowhere\.pth"):
        evaluator_for(fit_config(config, load_data(config)), load_data(config))


def test_a_run_without_scores_can_be_scored_later(digits_at_hand, tmp_path, monkeypatch):
    monkeypatch.setenv("WCGAN_INCEPTION_WEIGHTS", "nowhere.pth")
    start(configured("digits", "train.evaluate_with=none"), tmp_path / "run")
    assert evaluations(tmp_path / "run") == []
    later = evaluate(str(tmp_path / "run"), EvaluationConfig(features=("classifier",), metrics=("fid",), images=20))
    assert later.iteration == 3
    assert later.scores[FID] > 0
    with pytest.raises(ValueError, match=r"none gives no scores, but train\.evaluate_every=2 asks for some"):
        configured("digits", "train.evaluate_with=none", "train.evaluate_every=2")


def test_data_without_a_test_split_is_not_scored(photos, tmp_path):
    start(configured(photos / "train"), tmp_path / "run")
    assert evaluations(tmp_path / "run") == []


@pytest.fixture
def flat(tmp_path):
    """A folder of 24 images of two classes without a test split, one of which is broken."""
    for number, image in enumerate(random_images(24, 3, 8)):
        save(tmp_path / "flat" / ("cat", "dog")[number % 2] / f"{number:02}.png", image)
    (tmp_path / "flat" / "cat" / "99.png").write_bytes(b"no image")
    return tmp_path / "flat"


def test_without_a_test_split_a_tenth_is_kept_out_for_the_scores_and_that_is_said(flat, tmp_path, capsys):
    start(configured(flat, "train.evaluate_every=2"), tmp_path / "run")
    assert "every tenth image of flat is kept out of training, to score against\n" in capsys.readouterr().err
    first, last = evaluations(tmp_path / "run")
    protocol = last["protocol"]
    assert protocol["name"] == first["protocol"]["name"] == "all, 20 generated against 2, 10 sets of 2"
    assert protocol["reference"]["split"] == "train, every tenth"
    assert (protocol["classifier"]["images"], protocol["classifier"]["tested_on"]) == (22, "flat train, every tenth")
    config = Run(tmp_path / "run").config()
    assert config.data.held_out
    whole, learnt = load_data(replace(config, data=replace(config.data, held_out=False))), load_data(config)
    assert len(whole) == 24
    assert torch.equal(learnt.images, whole.images[torch.arange(24) % 10 != 9])


def test_a_run_is_scored_later_with_the_images_that_it_kept_out(flat, tmp_path):
    start(configured(flat, "train.evaluate_every=3"), tmp_path / "run")
    (line,) = evaluations(tmp_path / "run")
    again = evaluate(str(tmp_path / "run"), EvaluationConfig(features=("classifier",), metrics=("is", "fid")))
    assert again.scores[FID] == pytest.approx(line[FID], rel=1e-6)
    ours, theirs = ({**scores["protocol"], "std": None} for scores in (again.scores, line))
    assert ours == theirs


def test_a_run_that_kept_nothing_out_is_scored_with_its_training_images_and_that_is_said(flat, tmp_path, capsys):
    start(configured(flat), tmp_path / "run")
    go_on(tmp_path / "run", settings=["train.evaluate_every=2", "train.iterations=4"])
    assert (
        "no image of flat was kept out of training: scores compare with the training images" in capsys.readouterr().err
    )
    (line,) = evaluations(tmp_path / "run")
    assert line["protocol"]["reference"] == {**line["protocol"]["reference"], "split": "train", "images": 24}
    assert not Run(tmp_path / "run").config().data.held_out


def test_too_few_images_to_keep_a_tenth_out_leave_no_folder(photos, tmp_path):
    with pytest.raises(ValueError, match=r"train has 12 images and no test split, .* every tenth is kept out: 20"):
        start(configured(photos / "train", "train.evaluate_every=2"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("below", ["", "only"], ids=["no classes", "one class"])
def test_images_without_classes_are_trained_on_without_scores_and_that_is_said(below, tmp_path, capsys):
    for number, image in enumerate(random_images(24, 3, 8)):
        save(tmp_path / "plain" / below / f"{number:02}.png", image)
    config = configured(tmp_path / "plain", "train.evaluate_every=2", *UNCONDITIONAL)
    start(config, tmp_path / "run")
    assert Run(tmp_path / "run").lines()[-1]["what"] == "finished"
    said = capsys.readouterr().err
    assert "training without scores: plain has fewer than two classes, so scores need Inception's weights" in said
    assert "; every tenth image is kept out of training, for a later `wcgan evaluate`\n" in said
    assert evaluations(tmp_path / "run") == []


def test_the_best_state_is_the_best_among_comparable_scores(flat, tmp_path, monkeypatch):
    start(configured(flat, "train.evaluate_every=3"), tmp_path / "run")
    run = Run(tmp_path / "run")
    other = {"protocol": {"name": "all, 99 generated against 2"}, FID: 0.0}
    run.record("evaluation", 3, **other)
    go_on(tmp_path / "run", settings=["train.iterations=6", "train.evaluate_images=30"])
    assert read_checkpoint(run.checkpoints / "best").facts["iteration"] == 6


@pytest.mark.parametrize(("network", "what"), [("classifier", "a test split"), ("inception", "a test split")])
def test_a_network_asked_for_that_cannot_be_had_leaves_no_folder(photos, tmp_path, network, what):
    with pytest.raises(ValueError, match=f"evaluate_with={network} needs {what} and train has none: use auto"):
        start(configured(photos / "train", f"train.evaluate_with={network}"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_test_split_with_other_classes_is_refused_before_the_training(photos, tmp_path):
    (photos / "test" / "dog").rename(photos / "test" / "wolf")
    with pytest.raises(ValueError, match=r"the classes of 'photos' \(test\) differ from those of 'photos' \(train\)"):
        start(configured(photos), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_images_are_drawn_from_the_seed_alone(photos, tmp_path):
    start(configured(photos), tmp_path / "run")
    sample = sampler_to_sample(load_generator(tmp_path / "run"))
    labels = torch.zeros(5, dtype=torch.int64)
    one, same, other = (sample(5, labels, seed) for seed in (7, 7, 8))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert one.shape == (5, 3, 8, 8)


def test_a_generator_that_gives_nan_is_refused(photos, tmp_path):
    start(configured(photos), tmp_path / "run")
    run = Run(tmp_path / "run")
    found = read_newest(run.checkpoints)
    broken = {key: value * float("nan") if value.is_floating_point() else value for key, value in found.tensors.items()}
    write_checkpoint(run.checkpoints, "broken", broken, found.facts)
    with pytest.raises(ValueError, match="256 of 256 images from this generator hold NaN or Inf"):
        evaluate(str(tmp_path / "run"), EvaluationConfig(features=("classifier",), images=20, checkpoint="broken"))
