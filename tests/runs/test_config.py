"""Configs: written and read without loss, changed field by field, checked with a sentence."""

import dataclasses
import re

import pytest
import yaml
from tests.train.cases import tiny_config

from wcgan.core.config import config_from_dict, config_to_dict, override
from wcgan.nets import GeneratorConfig
from wcgan.paper.presets import PRESETS, preset
from wcgan.runs.config import Config, DataConfig, TrainConfig, read_config, write_config


@pytest.mark.parametrize("name", PRESETS)
def test_yaml_gives_back_the_config_of_every_preset(name, tmp_path):
    config = preset(name)
    write_config(config, tmp_path / "config.yaml")
    assert read_config(tmp_path / "config.yaml") == config


def test_yaml_gives_back_fields_that_no_preset_sets(tmp_path):
    config = Config(
        DataConfig("/some/folder: of images", "~/data", 64, strict=True),
        dataclasses.replace(preset("digits/cWC").generator, options={"eps": 1e-5, "groups": 2}),
        preset("digits/cWC").discriminator,
        TrainConfig(
            learning_rate=1e-6,
            drop_at=7,
            schedule_end=9,
            generated_labels="real",
            compile="yes",
            channels_last="no",
            seed=2**40,
        ),
        preset=None,
    )
    write_config(config, tmp_path / "config.yaml")
    again = read_config(tmp_path / "config.yaml")
    assert again == config
    assert isinstance(again.generator.widths, tuple)


def test_what_is_written_is_plain_yaml(tmp_path):
    write_config(preset("digits/cBN"), tmp_path / "config.yaml")
    text = (tmp_path / "config.yaml").read_text()
    assert "!!" not in text
    assert yaml.safe_load(text)["generator"]["normalization"] == "cBN"
    assert list(yaml.safe_load(text)) == ["data", "generator", "discriminator", "train", "preset", "origin"]


@pytest.mark.parametrize(
    "part", [Config(), DataConfig(), TrainConfig(), GeneratorConfig()], ids=lambda p: type(p).__name__
)
def test_a_config_cannot_be_changed(part):
    name = dataclasses.fields(part)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(part, name, getattr(part, name))


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("train.iterations=60", 60),
        ("train.learning_rate=0.5", 0.5),
        ("train.learning_rate=1", 1.0),
        ("train.learning_rate=1e-4", 1e-4),
        ("train.learning_rate=2E-4", 2e-4),
        ("train.loss=wasserstein", "wasserstein"),
        ("train.compile=yes", "yes"),
        ("train.compile=no", "no"),
        ("train.device=cuda:1", "cuda:1"),
        ("train.drop_at=null", None),
        ("data.strict=true", True),
        ("data.name=a=b", "a=b"),
        ("data.folder=/data", "/data"),
        ("generator.options={eps: 0.01, groups: 2}", {"eps": 0.01, "groups": 2}),
        ("generator.last_normalization=cWC", "cWC"),
        ("discriminator.widths=[8, 16, 32]", (8, 16, 32)),
        (" train.seed =3", 3),
    ],
)
def test_a_setting_changes_its_field_and_nothing_else(setting, expected):
    before = preset("digits/cWC")
    after = override(before, [setting])
    section, name = setting.partition("=")[0].strip().split(".")
    value = getattr(getattr(after, section), name)
    assert value == expected
    assert type(value) is type(expected)
    rest = dataclasses.replace(getattr(after, section), **{name: getattr(getattr(before, section), name)})
    assert dataclasses.replace(after, **{section: rest}) == before


def test_several_settings_are_checked_together():
    after = override(preset("digits/cWC"), ["generator.widths=[8]", "discriminator.resolution=8"])
    assert after.generator.resolution == after.discriminator.resolution == 8


def test_the_last_of_two_settings_of_a_field_counts():
    assert override(Config(), ["train.seed=1", "train.seed=2"]).train.seed == 2


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("train.iterations", ["section.field=value", "'train.iterations'"]),
        ("iterations=3", ["section.field=value", "'iterations=3'"]),
        ("trian.iterations=3", ["unknown section 'trian'", "data, generator, discriminator, train"]),
        ("preset.name=3", ["unknown section 'preset'"]),
        ("train.iteration=3", ["unknown field train.iteration: did you mean train.iterations?"]),
        ("generator.options.groups=4", ["generator.options is set as a whole: 'generator.options={groups: 4}'"]),
        ("train.lr=3", ["unknown field train.lr; known are", "train.iterations", "train.critic_steps"]),
        ("train.iterations=many", ["train.iterations must be a whole number", "'many'"]),
        ("train.iterations=2.5", ["train.iterations must be a whole number", "2.5"]),
        ("train.iterations=true", ["train.iterations must be a whole number", "True"]),
        ("train.iterations=", ["train.iterations must be a whole number", "None"]),
        ("train.learning_rate=fast", ["train.learning_rate must be a number", "'fast'"]),
        ("train.learning_rate=.nan", ["train.learning_rate must be", "nan"]),
        ("train.learning_rate=inf", ["train.learning_rate must be", "inf"]),
        ("train.loss=hinges", ["train.loss must be one of hinge, wasserstein", "'hinges'"]),
        ("train.precision=half", ["train.precision must be one of auto, float32, bfloat16", "'half'"]),
        ("data.strict=maybe", ["data.strict must be true or false", "'maybe'"]),
        ("generator.widths=8", ["generator.widths must be a list in brackets", "8"]),
        ("generator.widths=[8, wide]", ["generator.widths must be a whole number", "'wide'"]),
        ("generator.normalization=CW", ["generator.normalization is 'CW'", "cWC_sa"]),
        ("train.seed=[1", ["train.seed=[1", "not YAML"]),
    ],
)
def test_a_setting_that_cannot_be_is_named_with_what_can(setting, parts):
    with pytest.raises(ValueError, match=re.escape(parts[0])) as failure:
        override(preset("digits/cWC"), [setting])
    assert [part for part in parts if part not in str(failure.value)] == []
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("iterations", 0, "at least 1"),
        ("critic_steps", 0, "at least 1"),
        ("log_every", 0, "at least 1"),
        ("checkpoint_every", 0, "at least 1"),
        ("keep_checkpoints", 0, "at least 1"),
        ("batch", 1, "at least 2"),
        ("generator_batch", 1, "at least 2"),
        ("evaluate_images", 9, "at least 10"),
        ("gradient_penalty", -1.0, "at least 0"),
        ("learning_rate", -1e-4, "at least 0"),
        ("sample_every", -1, "at least 0"),
        ("evaluate_every", -1, "at least 0"),
        ("conditioning_every", -1, "at least 0"),
        ("seed", -1, "at least 0"),
        ("class_weight_discriminator", -1.0, "at least 0"),
        ("class_weight_generator", -1.0, "at least 0"),
        ("beta1", 1.0, "in [0, 1)"),
        ("beta2", -0.1, "in [0, 1)"),
        ("ema", 1.0, "in [0, 1)"),
        ("drop_at", 0, "at least 1"),
        ("schedule_end", 0, "at least 1"),
        ("schedule_start", -1, "at least 0"),
        ("learning_rate_discriminator", -1e-4, "at least 0"),
        ("consistency", -1.0, "at least 0"),
        ("lecam", -0.1, "at least 0"),
        ("coloring_decay", -0.1, "at least 0"),
        ("class_rate", -0.5, "at least 0"),
        ("equal_classes", -0.1, "at least 0"),
        ("ema_half_life", -1, "at least 0"),
        ("ema_ramp", -0.1, "at least 0"),
        ("ema_start", -1, "at least 0"),
        ("augment_ramp", -1, "at least 0"),
        ("label_smoothing", 1.0, "in [0, 1)"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_field_and_what_is_allowed(field, value, allowed):
    with pytest.raises(ValueError, match=f"train.{field} ") as failure:
        tiny_config(**{field: value})
    assert [part for part in (str(value), allowed) if part not in str(failure.value)] == []


def test_a_constant_rate_has_no_end():
    with pytest.raises(ValueError, match=r"train\.schedule_end needs train\.schedule=linear"):
        tiny_config(schedule="constant", schedule_end=9)
    with pytest.raises(ValueError, match=r"train\.schedule_start needs train\.schedule=linear"):
        tiny_config(schedule="constant", schedule_start=9)


@pytest.mark.parametrize(("field", "end"), [("iterations", 10), ("schedule_end", 8), ("schedule_end", 12)])
def test_decay_begins_before_it_ends(field, end):
    settings = {"iterations": 10, field: end}
    assert tiny_config(**settings, schedule_start=end - 1).train.schedule_start == end - 1
    with pytest.raises(ValueError, match=f"train.schedule_start must be less than train.{field}={end}, got {end}"):
        tiny_config(**settings, schedule_start=end)


@pytest.mark.parametrize(
    ("section", "fields", "message"),
    [
        ("discriminator", {"resolution": 16}, "8x8 images, discriminator.resolution is 16"),
        ("discriminator", {"channels": 3}, "generator.channels is 1, discriminator.channels 3"),
        ("discriminator", {"classes": 4}, "generator.classes is 3, discriminator.classes 4"),
    ],
)
def test_networks_that_do_not_fit_each_other_are_refused(section, fields, message):
    config = tiny_config()
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **fields)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the config must be a mapping of fields, got None"),
        ("- 1\n", "the config must be a mapping"),
        ("train: 3\n", "train must be a mapping"),
        ("train: {iterations: [}\n", "is not YAML"),
        ("trian: {}\n", r"unknown field trian: did you mean train\?"),
        (f"{'x' * 1000}: 3\n", r"unknown field x{40}\.\.\.; known are"),
        ("epochs: 3\n", "unknown field epochs; known are data, generator, discriminator, train, preset"),
    ],
)
def test_a_file_that_is_no_config_is_said_to_be_none(text, message, tmp_path):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=message) as failure:
        read_config(tmp_path / "config.yaml")
    assert "\n" not in str(failure.value)


def test_a_file_that_is_missing_is_said_to_be(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.yaml does not exist"):
        read_config(tmp_path / "nowhere.yaml")


def test_plain_values_share_nothing_with_the_config():
    config = override(preset("digits/cWC"), ["generator.options={eps: 0.01}"])
    config_to_dict(config)["generator"]["options"]["eps"] = 5
    assert config.generator.options == {"eps": 0.01}
    assert config_from_dict(config_to_dict(config), Config) == config
