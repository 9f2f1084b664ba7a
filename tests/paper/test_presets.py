"""Presets: the digits, and every row of the paper with its networks and training."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.data.cases import random_images, save
from tests.nets.cases import count

from wcgan.nets import build_discriminator, build_generator
from wcgan.norm import VARIANTS, Variant
from wcgan.norm._base import WhiteningLayer
from wcgan.paper.presets import (
    BY_DATA,
    DEFAULT,
    PRESETS,
    configure,
    default_folder,
    find_config,
    folder,
    preset,
    preset_to_folder,
)
from wcgan.paper.printed import ARCHITECTURES
from wcgan.paper.recipe import BEST
from wcgan.paper.tables import ALIASES, all_names
from wcgan.runs.config import Config, TrainConfig, write_config
from wcgan.runs.folder import new_run, resumed_run
from wcgan.train.gan import learning_rate

HINGE, WGAN = ("hinge", 0.0), ("wasserstein", 10.0)
RESNET, DCGAN = (5, 64, 128), (1, 64, 64)
LINEAR, CONSTANT, DROP = (2e-4, "linear", None), (2e-4, "constant", None), (2e-4, "linear", 30_000)
UNIT_ROWS = {"normalize_assignment": True, "class_bias": False}
CIFAR = ("cifar10", "cifar100")
WC_ABLATION = ("W-only", "WC-diag", "C-only", "std-C", "WzcaC")
CWC_ABLATION = ("cBN", "c-std-C", "c-std-C_sa", "cWC-cls-only", "cWC_sa-cls-only", "cWC-diag")
# From the paper's appendix on implementation details, row by row: iterations,
# (discriminator updates, their batch, the generator's batch), (learning rate, schedule, its drop), (loss, penalty).
TRAINING = {
    **{f"cifar10/{row}GP + ResNet": (100_000, RESNET, LINEAR, WGAN) for row in ("", "WC ")},
    **{f"cifar10/{row}SN + DCGAN": (100_000, DCGAN, LINEAR, HINGE) for row in ("", "WC ")},
    **{f"cifar10/{row}SN + ResNet": (50_000, RESNET, LINEAR, HINGE) for row in ("", "WC ")},
    **{f"stl10/{row}GP + ResNet": (100_000, RESNET, LINEAR, WGAN) for row in ("", "WC ")},
    **{f"stl10/{row}SN + DCGAN": (200_000, DCGAN, LINEAR, HINGE) for row in ("", "WC ")},
    **{f"stl10/{row}SN + ResNet": (100_000, RESNET, LINEAR, HINGE) for row in ("", "WC ")},
    **{f"cifar10/{row}": (50_000, RESNET, LINEAR, HINGE) for row in WC_ABLATION},
    **{f"{d}/{row}GP + ACGAN": (100_000, RESNET, LINEAR, WGAN) for d in CIFAR for row in ("", "cWC ", "cWC_sa ")},
    **{
        f"{d}/{row}SN + Proj. Discr.": (50_000, RESNET, LINEAR, HINGE) for d in CIFAR for row in ("", "cWC ", "cWC_sa ")
    },
    "cifar10/cWC SN + Proj. Discr. drop": (31_000, RESNET, DROP, HINGE),
    **{f"{d}/cWC SN + Proj. Discr. wide": (50_000, RESNET, LINEAR, HINGE) for d in CIFAR},
    **{f"{d}/{row}": (50_000, RESNET, LINEAR, HINGE) for d in CIFAR for row in CWC_ABLATION},
    "cifar10/cWC SN + Proj. Discr.": (50_000, RESNET, DROP, HINGE),
    "tiny-imagenet/cWC SN + Proj. Discr.": (100_000, RESNET, LINEAR, HINGE),
    **{f"tiny-imagenet/{row}": (100_000, RESNET, LINEAR, HINGE) for row in ("cBN", "cWC_sa")},
    "imagenet/SN + Proj. Discr.": (450_000, RESNET, LINEAR, HINGE),
    "imagenet/cWC_sa SN + Proj. Discr.": (450_000, RESNET, (5e-4, "linear", None), HINGE),
    **{f"mnist/{row}": (5_000, RESNET, CONSTANT, HINGE) for row in ("BN", "WC", "cBN", "cWC")},
    **{f"fashion-mnist/{row}": (20_000, RESNET, LINEAR, HINGE) for row in ("BN", "WC", "cBN", "cWC")},
}
WIDE = ("cWC SN + Proj. Discr. wide", "SN + Proj. Discr.", "cWC_sa SN + Proj. Discr.")
DECOMPOSITION = ("cifar10/WzcaC-decomposition", "digits/WzcaC-decomposition")
DIGITS = tuple(f"digits/{name}" for name in VARIANTS)
# Row of results -> the row of architectures that it shares, but for its normalisation.
SHARED = {
    **{f"{d}/SN + {net}": (f"{d}/WC SN + {net}", "BN") for d in ("cifar10", "stl10") for net in ("ResNet", "DCGAN")},
    "cifar10/GP + ResNet": ("cifar10/WC GP + ResNet", "BN"),
    **{f"cifar10/{row}": ("cifar10/WC SN + ResNet", row) for row in WC_ABLATION},
    **{f"{d}/GP + ACGAN": (f"{d}/cWC GP + ACGAN", "cBN") for d in CIFAR},
    **{f"{d}/cWC_sa GP + ACGAN": (f"{d}/cWC GP + ACGAN", "cWC_sa") for d in CIFAR},
    **{f"{d}/cWC_sa SN + Proj. Discr.": (f"{d}/cWC SN + Proj. Discr.", "cWC_sa") for d in CIFAR},
    "cifar10/cWC SN + Proj. Discr. drop": ("cifar10/cWC SN + Proj. Discr.", "cWC"),
    **{f"{d}/{row}": (f"{d}/cWC SN + Proj. Discr.", row) for d in CIFAR for row in CWC_ABLATION},
    **{f"tiny-imagenet/{row}": ("tiny-imagenet/cWC SN + Proj. Discr.", row) for row in ("cBN", "cWC_sa")},
    **{f"{d}/{c}BN": (f"{d}/{c}WC", f"{c}BN") for d in ("mnist", "fashion-mnist") for c in ("", "c")},
}
LAST = {
    "cBN": "BN",
    **dict.fromkeys(("c-std-C", "c-std-C_sa"), "std-C"),
    **dict.fromkeys(("cWC-cls-only", "cWC_sa-cls-only", "cWC-diag", "cWC", "cWC_sa"), "WC"),
    **{name: name for name in ("BN", *WC_ABLATION, "WC", "DBN", "IterNorm")},
}


def parts(layer):
    """The variant that a layer is, whatever its groups and the gradient of ZCA."""
    soft = getattr(layer, "dictionary", None) is not None
    return Variant(layer.whitening.removesuffix("-decomposition"), layer.coloring, getattr(layer, "shared", None), soft)


def options_of(config):
    """The authors' soft assignment: unit rows and no class bias."""
    if config.preset in DECOMPOSITION:
        return {"whitening": "zca-decomposition"}
    return UNIT_ROWS if config.generator.normalization.partition("-cls")[0].endswith("_sa") else {}


def embedding_of(config):
    return "uniform" if config.discriminator.head == "projection" else "glorot"


@pytest.fixture(scope="module")
def configs():
    return {name: preset(name) for name in PRESETS}


def test_conditional_presets_follow_the_authors_code_where_the_paper_is_silent(configs):
    for name, config in configs.items():
        conditional = config.generator.normalization.startswith("c")
        wanted = "balanced" if name in ("cifar10/best", "cifar10/best cBN") else "real" if conditional else "uniform"
        assert config.train.generated_labels == wanted, name
        assert config.generator.options == options_of(config), name
        assert config.discriminator.embedding_init == embedding_of(config), name


def test_every_preset_is_a_config_with_its_name(configs):
    assert [name for name, config in configs.items() if config.preset != name] == []
    assert [name for name, config in configs.items() if config.data.name != name.partition("/")[0]] == []


def test_no_two_presets_are_the_same_run(configs):
    for name, config in configs.items():
        assert [n for n, other in configs.items() if replace(other, preset=name) == config] == [name]


def test_an_alias_is_its_preset_and_a_preset_is_no_alias(configs):
    assert {alias: preset(alias) for alias in ALIASES} == {alias: configs[name] for alias, name in ALIASES.items()}
    assert set(ALIASES) & set(PRESETS) == set()
    assert configure("cifar10/WC", settings=["train.seed=3"]).preset == "cifar10/WC SN + ResNet"
    assert all_names("cifar10/WC") == all_names("cifar10/WC SN + ResNet") == ("cifar10/WC SN + ResNet", "cifar10/WC")


def test_a_run_begun_under_either_name_goes_on_under_the_other(tmp_path):
    config = preset("cifar10/WC")
    begun = replace(config, preset="cifar10/WC")  # as such a run was recorded before the two names were one
    new_run(tmp_path / "run", begun)
    assert resumed_run(tmp_path / "run", config)[1] == begun
    with pytest.raises(ValueError, match=r"was begun with another config .*seed"):
        resumed_run(tmp_path / "run", replace(config, train=replace(config.train, seed=1)))


@pytest.mark.parametrize("data", CIFAR)
def test_wide_is_cwc_with_the_published_frameworks_ratio_of_filters(data):
    wide, published, ours = (preset(f"{data}/{row}") for row in WIDE)
    assert (wide.generator.widths, wide.discriminator.widths) == ((256,) * 3, (128,) * 4)
    assert replace(wide.generator, normalization="cBN") == published.generator
    assert wide.discriminator == published.discriminator
    assert (wide.generator.normalization, wide.train) == ("cWC", ours.train)


def test_there_is_a_protocol_for_every_row():
    assert set(PRESETS) - set(BY_DATA) == set(TRAINING) | set(DIGITS) | set(DECOMPOSITION) | set(BEST)


@pytest.mark.parametrize("name", DECOMPOSITION)
def test_zca_through_its_decomposition_differs_in_nothing_but_the_gradient(name):
    other = preset(name.removesuffix("-decomposition"))
    config = preset(name)
    assert config.generator.options == {"whitening": "zca-decomposition"}
    assert replace(config, generator=replace(config.generator, options={}), preset=other.preset) == other


def test_a_row_is_trained_as_the_paper_says(configs):
    for name, expected in TRAINING.items():
        train = configs[name].train
        updates = (train.critic_steps, train.batch, train.generator_batch)
        rate = (train.learning_rate, train.schedule, train.drop_at)
        assert (train.iterations, updates, rate, (train.loss, train.gradient_penalty)) == expected, name


def test_every_row_has_the_papers_adam_class_weights_and_no_average(configs):
    for name in TRAINING:
        train = configs[name].train
        assert (train.beta1, train.beta2) == (0.0, 0.9), name
        assert (train.class_weight_discriminator, train.class_weight_generator) == (1.0, 0.1), name
        assert train.ema == 0, name


def test_no_row_of_the_paper_has_anything_of_the_recipe(configs):
    plain = TrainConfig()
    names = ("augment", "consistency", "lecam", "coloring_decay", "label_smoothing", "learning_rate_discriminator")
    names += ("class_rate", "equal_classes", "ema_half_life", "ema_ramp", "ema_start", "ema_statistics")
    for name in (*TRAINING, *DIGITS):
        config = configs[name]
        assert [n for n in names if getattr(config.train, n) != getattr(plain, n)] == [], name
        networks = (
            config.data.flip,
            config.generator.depth,
            config.generator.attention,
            config.discriminator.attention,
        )
        assert networks == (False, 1, 0, 0), name


def test_a_row_has_the_networks_of_its_table_or_of_the_row_it_shares_them_with(configs):
    rows = {name: (name, generator.normalization) for name, (generator, _) in ARCHITECTURES.items()}
    for name, (architecture, normalization) in (rows | SHARED).items():
        config, (generator, discriminator) = configs[name], ARCHITECTURES[architecture]
        assert config.generator == replace(generator, normalization=normalization, options=options_of(config)), name
        assert config.discriminator == replace(discriminator, embedding_init=embedding_of(config)), name


@pytest.mark.parametrize("dataset", CIFAR)
def test_the_published_projection_discriminator_has_the_opposite_ratio_of_filters_and_cbn(dataset):
    published, ours = preset(f"{dataset}/SN + Proj. Discr."), preset(f"{dataset}/cBN")
    assert published.generator == replace(ours.generator, widths=(256, 256, 256))
    assert published.discriminator == replace(ours.discriminator, widths=(128, 128, 128, 128))
    assert published.train == ours.train


@pytest.mark.parametrize(("row", "normalization"), [("WC GP + ResNet", "WC"), ("GP + ResNet", "BN")])
def test_stl10_has_the_networks_of_cifar10_on_a_larger_grid(row, normalization):
    config, (generator, discriminator) = preset(f"stl10/{row}"), ARCHITECTURES["cifar10/WC GP + ResNet"]
    assert config.generator == replace(generator, base=6, normalization=normalization)
    assert config.discriminator == replace(discriminator, resolution=48)


def test_imagenets_baseline_has_a_generator_of_its_own_and_the_same_discriminator():
    baseline, ours = preset("imagenet/SN + Proj. Discr."), preset("imagenet/cWC_sa SN + Proj. Discr.")
    assert baseline.discriminator == ours.discriminator
    assert baseline.generator == replace(
        ours.generator, widths=(1024, 512, 256, 128, 64), normalization="cBN", options={}
    )
    with torch.device("meta"):
        generator = build_generator(baseline.generator)
    assert count(generator) == 41_996_931


def test_networks_have_the_normalisation_of_their_row_and_its_partner_at_the_end(configs):
    for name, config in configs.items():
        with torch.device("meta"):
            generator = build_generator(config.generator)
        variants = [parts(layer) for layer in generator.modules() if isinstance(layer, WhiteningLayer)]
        inner, last = (
            replace(VARIANTS[variant], group_size=None)
            for variant in (config.generator.normalization, LAST[config.generator.normalization])
        )
        per_block = 2 if config.generator.kind == "resnet" else 1
        assert variants == [inner] * per_block * len(config.generator.widths) + [last], name


def test_every_discriminator_can_be_built_and_sees_images_of_the_generators_size(configs):
    for name in {**dict.fromkeys(ARCHITECTURES), "imagenet/SN + Proj. Discr.": None, DEFAULT: None}:
        config = configs[name]
        assert config.generator.resolution == config.discriminator.resolution, name
        with torch.device("meta"):  # spectral normalisation, which has no parameters, takes long to set up there
            assert count(build_discriminator(replace(config.discriminator, spectral_norm=False))) > 0, name


def test_spectral_norm_goes_with_hinge_and_a_penalty_with_wasserstein(configs):
    for name, config in configs.items():
        assert config.discriminator.spectral_norm == (config.train.loss == "hinge"), name
        assert (config.train.gradient_penalty > 0) == (config.train.loss == "wasserstein"), name


def test_the_state_of_the_art_row_differs_in_nothing_but_its_schedule():
    config, other = preset("cifar10/cWC SN + Proj. Discr. drop"), preset("cifar10/cWC SN + Proj. Discr.")
    rates = [learning_rate(each.train, i) for each in (config, other) for i in (0, 29_999, 30_000, 30_999)]
    assert rates == pytest.approx([2e-4, 8.0004e-5, 8e-6, 7.6004e-6] * 2)
    assert learning_rate(other.train, 49_999) == pytest.approx(4e-10)
    same = replace(config.train, iterations=50_000, schedule_end=None)
    assert replace(config, train=same, preset=other.preset) == other


def test_presets_of_the_digits_differ_in_nothing_but_the_normalisation_and_what_it_needs_of_classes(configs):
    for variant in VARIANTS:
        config, other = configs[f"digits/{variant}"], configs["digits/cWC"]
        head, classes = ("projection", 10) if VARIANTS[variant].conditional else ("plain", None)
        assert config.generator.normalization == variant
        assert (config.discriminator.head, config.discriminator.classes) == (head, classes), variant
        assert config.generator.classes == classes, variant
        generator = replace(config.generator, normalization="cWC", classes=10, options={})
        discriminator = replace(config.discriminator, head="projection", classes=10, embedding_init="uniform")
        train = replace(config.train, generated_labels="real")
        assert Config(config.data, generator, discriminator, train, other.preset) == other, variant


def test_networks_of_the_digits_are_small_enough_for_a_laptop(configs):
    for name in DIGITS:
        config = configs[name]
        networks = build_generator(config.generator), build_discriminator(config.discriminator)
        assert sum(map(count, networks)) < 300_000, name
        assert config.generator.resolution == 16, name


def test_the_default_is_a_preset():
    assert DEFAULT == "digits/cWC"
    assert DEFAULT in PRESETS


def test_an_unknown_preset_is_said_with_the_nearest():
    with pytest.raises(
        ValueError, match=r"unknown preset 'digits/cWCa'; `wcgan presets` lists them; the nearest are digits/cWC.*"
    ):
        preset("digits/cWCa")


def test_a_file_in_place_of_a_preset_is_said_to_be_one(tmp_path):
    (tmp_path / "config.yaml").write_text("train: {}\n")
    with pytest.raises(ValueError, match=r"config\.yaml is no preset but a file: give it with --config"):
        preset(str(tmp_path / "config.yaml"))


def test_a_preset_has_a_folder_name_of_its_own():
    assert preset_to_folder("cifar10/cWC SN + Proj. Discr.") == "cifar10-cWCSN+Proj.Discr."
    assert len({preset_to_folder(name) for name in PRESETS}) == len(PRESETS)


def test_configuring_sets_data_strictness_and_fields():
    config = configure("digits/cBN", "photos", strict=True, settings=["train.seed=4"])
    assert (config.data.name, config.data.strict, config.train.seed) == ("photos", True, 4)
    assert configure("digits/cBN") == preset("digits/cBN")


def test_a_setting_of_the_data_is_kept_where_no_option_is_given():
    assert configure("digits/cBN", settings=["data.strict=true", "data.name=photos"]).data.name == "photos"


# Anyone's pictures


def write_photos(place, *classes, sides=((32, 32),)):
    for number in range(6 * max(1, len(classes))):
        name = classes[number % len(classes)] if classes else ""
        height, width = sides[number % len(sides)]
        save(place / name / f"{number}.png", random_images(1, 3, 128)[0][:, :height, :width])
    return str(place)


@pytest.mark.parametrize("resolution", [16, 28, 32, 48, 64, 96, 128])
@pytest.mark.parametrize("classes", [None, 2, 500])
def test_the_preset_for_pictures_has_a_real_network_at_each_resolution(resolution, classes):
    config = folder(resolution, classes)
    assert config.generator.resolution == config.discriminator.resolution == resolution
    assert config.generator.normalization == {None: "WC", 2: "cWC", 500: "cWC_sa"}[classes]
    assert config.discriminator.head == ("plain" if classes is None else "projection")
    with torch.device("meta"):
        generator = build_generator(config.generator)
        critic = build_discriminator(replace(config.discriminator, spectral_norm=False))
    assert 0.9e6 < count(generator) < 12e6
    assert 0.5e6 < count(critic) < 6e6


def test_networks_for_larger_pictures_are_deeper_and_narrow_towards_the_image():
    small, large = folder(32), folder(128)
    assert small.generator.widths == (128, 128, 128)
    assert large.generator.widths == (128, 128, 128, 64, 32)
    assert len(large.discriminator.widths) == len(small.discriminator.widths) + 2


def test_the_preset_looks_at_the_pictures_for_size_and_classes(tmp_path, capsys):
    config = configure("folder", write_photos(tmp_path / "pets", "cat", "dog"), settings=["train.seed=4"])
    assert (config.generator.resolution, config.classes, config.train.seed) == (32, 2, 4)
    assert config.preset == "folder"
    assert capsys.readouterr().err == ""


def test_pictures_of_several_sizes_are_brought_to_one_and_that_is_said(tmp_path, capsys):
    config = configure("folder", write_photos(tmp_path / "mixed", sides=((90, 70), (64, 64), (80, 100))))
    assert (config.data.resolution, config.generator.resolution, config.conditional) == (64, 64, False)
    assert "training at 64x64: each picture is cropped to a square and resized" in capsys.readouterr().err
    config = configure("folder", str(tmp_path / "mixed"), settings=["data.resolution=128"])
    assert config.generator.resolution == 128


def test_without_a_preset_pictures_get_theirs_and_nothing_gets_the_digits(tmp_path):
    assert find_config(data=write_photos(tmp_path / "pets", "cat", "dog")).preset == "folder"
    assert find_config().preset == find_config(data="digits").preset == DEFAULT
    with pytest.raises(ValueError, match="the preset folder is for your own pictures: name their folder with --data"):
        find_config("folder")


def test_a_config_file_is_a_start_like_a_preset(tmp_path):
    write_config(preset("digits/cBN"), tmp_path / "config.yaml")
    config = find_config(file=tmp_path / "config.yaml", data="photos", settings=["train.batch=8"])
    assert config == configure("digits/cBN", "photos", settings=["train.batch=8"])
    with pytest.raises(ValueError, match=r"either the preset digits/cBN or --config .*config\.yaml"):
        find_config("digits/cBN", tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        (None, None, "digits-cWC"),
        ("digits/cBN", None, "digits-cBN"),
        (None, "photos/pets/", "pets"),
        ("folder", "photos/pets", "pets"),
        ("digits/cBN", "photos/pets", "pets-digits-cBN"),
    ],
)
def test_a_run_is_named_after_its_data_or_its_preset(name, data, expected):
    assert default_folder(name, preset(name or DEFAULT), data) == Path("runs") / expected
