"""`wcgan.fit`: what it refuses, in the words of a caller, and with nothing written."""

import pytest
import torch
from tests.train.test_fit import SETTINGS, fit, tensors
from tests.train.test_start import photos  # noqa: F401
from torch.nn.functional import softplus

import wcgan
from wcgan.train import Callback


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, r"exists already: name another folder \(out\), or resume the run \(resume=True\)$"),
        (
            {"resume": True, "settings": {"train.batch": 2}},
            r'for the rest, begin a new run with another out \(origin=".*/run" starts it with these weights\)$',
        ),
        ({"stop_at": 0}, "^stop_at must be an iteration, at least 1, got 0$"),
        ({"settings": {"train": 1}}, "^a setting is section.field=value, such as train.iterations=1000; got 'train=1'"),
        ({"settings": {"training.batch": 1}}, "^unknown section 'training' in training.batch=1; known are data"),
    ],
    ids=["there", "another config", "stop_at", "section", "unknown section"],
)
def test_errors_name_arguments_and_not_options_of_the_command_line(tmp_path, options, said):
    fit(tmp_path / "run", stop_at=1)
    with pytest.raises(ValueError, match=said):
        fit(tmp_path / "run", **options)


def test_moved_images_are_asked_for_by_arguments(photos, tmp_path):  # noqa: F811
    fit(tmp_path / "run", photos, stop_at=1)
    photos.rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"resume=True, data=FOLDER says where they are now$"):
        wcgan.fit(out=tmp_path / "run", resume=True)


def test_images_that_were_in_memory_are_asked_for_again(tmp_path):
    fit(tmp_path / "run", stop_at=1)
    with pytest.raises(ValueError, match=r"run were in memory: give them to wcgan\.fit again, as data$"):
        wcgan.fit(out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("settings", [{}, {"train.iterations": 1}], ids=["alone", "with a length"])
def test_a_run_to_resume_that_is_not_there_is_not_begun_with_other_images(tmp_path, settings):
    with pytest.raises(ValueError, match="typo is not there; name the folder of a run"):
        wcgan.fit(out=tmp_path / "typo", resume=True, settings=settings)
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_a_callback_keeps_its_words(tmp_path):
    class Fails(Callback):
        def on_end(self):
            raise ValueError("my program lacks --out")

    with pytest.raises(ValueError, match="my program lacks --out"):
        fit(tmp_path / "run", callbacks=[Fails()])


def test_inception_weights_that_are_not_there_are_named(tmp_path):
    settings = SETTINGS | {"train.evaluate_with": "inception"}
    with pytest.raises(ValueError, match=r"there are no Inception weights in .*none.pth: name a file of th") as caught:
        wcgan.fit("digits/cWC", out=tmp_path / "run", settings=settings, inception_weights=tmp_path / "none.pth")
    assert "--" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"settings": {"train.batch": torch.tensor(2)}}, r"^train\.batch must be a number, .* got tensor\(2\)$"),
        ({"callbacks": Callback()}, r"^callbacks must be a list of wcgan\.train\.Callback objects, got <"),
        ({"callbacks": [Callback]}, r"^callbacks must be a list of wcgan\.train\.Callback objects, got \[<class"),
        ({"loss": softplus}, "^loss must be two functions, the discriminator's and the generator's, got <"),
        ({"loss": (softplus, None)}, r"^loss must be two functions, .* got \(<"),
        ({"generator": torch.nn.Linear}, r"^generator must be a torch\.nn\.Module, got the class Linear$"),
        ({"discriminator": "DCGAN"}, r"^discriminator must be a torch\.nn\.Module, got str$"),
        ({"origin": 3}, "^origin must be a path, got 3$"),
        ({"stop_at": "3"}, "^stop_at must be an iteration, got '3'$"),
    ],
    ids=["setting", "callback", "class", "function", "none", "no network", "a name", "no path", "no number"],
)
def test_what_cannot_be_called_or_written_is_named_before_anything_is_written(tmp_path, options, said):
    with pytest.raises(TypeError, match=said):
        fit(tmp_path / "run", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", [3, {"train": {}}], ids=str)
def test_what_is_no_config_is_refused_with_what_is_one(given):
    with pytest.raises(TypeError, match=r"^config must be the name of a preset, the path of a config.yaml or a wcgan"):
        wcgan.fit(given)


def test_settings_that_are_no_mapping_are_refused_with_an_example(tmp_path):
    with pytest.raises(TypeError, match=r'^settings must be a mapping, such as \{"train.iterations": 1000\}, got 3$'):
        wcgan.fit("digits/BN", out=tmp_path / "run", settings=3)


@pytest.mark.parametrize("resolution", [16, 32])
def test_images_in_memory_are_not_resized_in_silence(tmp_path, resolution):
    with pytest.raises(ValueError, match=f"the images are 8x8 and data.resolution={resolution} resizes only those in"):
        fit(tmp_path / "run", settings={"data.resolution": resolution})
    assert list(tmp_path.iterdir()) == []


def test_other_tensors_cannot_go_on_with_a_run(tmp_path):
    fit(tmp_path / "run", stop_at=2)
    with pytest.raises(ValueError, match=r"are not those that .* was trained on"):
        fit(tmp_path / "run", tensors(count=14), resume=True)


def test_a_plain_tensor_is_refused_with_the_way_to_pass_it(tmp_path):
    images = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
    with pytest.raises(TypeError, match=r"got Tensor: wcgan\.data\.from_tensors\(images, labels, classes\)"):
        wcgan.fit("folder", images, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unknown_setting_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"unknown field train\.length"):
        fit(tmp_path / "run", settings={"train.length": 3})
    assert not (tmp_path / "run").exists()
