"""From two runs or folders to a study."""

import numpy as np
import pytest
import yaml
from PIL import Image
from tests.end_to_end.cases import training, write_photos
from tests.web.study.cases import make_study, write_side

import wcgan
from wcgan.web.study import Pair, Study, create_study, read_study
from wcgan.web.study.config import picture_file
from wcgan.web.study.create import seed_for


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two iterations on three classes of 8 x 8 colour images."""
    from wcgan.paper.presets import configure
    from wcgan.train.start import start

    folder = tmp_path_factory.mktemp("trained")
    arguments = training(write_photos(folder / "photos"), folder / "run", iterations=2)
    settings = [arguments[i + 1] for i, argument in enumerate(arguments) if argument == "--set"]
    start(configure("digits/cWC", str(folder / "photos"), settings=settings), folder / "run")
    return folder / "run"


def tiles(folder, name, side=8, columns=2, border=2):
    """The images (N, H, W, 3) of a set's picture."""
    with Image.open(picture_file(folder, name)) as opened:
        pixels = np.asarray(opened.convert("RGB"))
    starts = [border + k * (side + border) for k in range(columns)]
    return np.stack([pixels[y : y + side, x : x + side] for y in starts for x in starts])


def test_a_set_holds_different_images_of_its_class_and_side(tmp_path):
    folder = make_study(tmp_path, classes=3)
    for pair in read_study(folder).pairs[:3]:
        for side, name in (("smooth", pair.a), ("rough", pair.b)):
            files = (tmp_path / side / pair.label).glob("*.png")
            there = {np.asarray(Image.open(file).convert("RGB")).tobytes() for file in files}
            drawn = [image.tobytes() for image in tiles(folder, name)]
            assert len(set(drawn)) == 4
            assert set(drawn) <= there


def test_a_run_and_a_folder_are_compared_on_the_classes_they_share(tmp_path, run):
    real = write_photos(tmp_path / "real", count=30)
    (real / "class 2").rename(real / "another")
    study = create_study(run, real, tmp_path / "study", images=4, device="cpu")
    pairs = [pair for pair in study.pairs if not pair.check]
    assert sorted(pair.label for pair in pairs) == ["class 0", "class 1"]
    for pair in pairs:
        label = int(pair.label[-1])
        expected = wcgan.load(run, device="cpu").sample(4, label, seed_for(0, pair.label, 0))
        assert np.array_equal(tiles(tmp_path / "study", pair.a), expected.permute(0, 2, 3, 1).numpy())


def test_the_same_seed_draws_the_same_classes_and_pixels_and_another_seed_others(tmp_path):
    a, b = write_side(tmp_path / "a", classes=30), write_side(tmp_path / "b", classes=30, seed=1)
    drawn = []
    for number, seed in enumerate((5, 5, 6)):
        folder = tmp_path / str(number)
        study = create_study(a, b, folder, classes=8, images=4, seed=seed)
        pictures = [picture_file(folder, name).read_bytes() for pair in study.pairs for name in (pair.a, pair.b)]
        drawn.append(([pair.label for pair in study.pairs], pictures))
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[2][0]


def test_by_default_there_are_50_classes_of_16_images(tmp_path):
    a, b = (write_side(tmp_path / name, classes=53, images=16, side=2) for name in "ab")
    study = create_study(a, b, tmp_path / "study")
    assert study.images == 16
    assert len({pair.label for pair in study.pairs if not pair.check}) == 50
    assert len(study.checks) == 4


def broken_sets(folder, study):
    """How much the pixels of each check's broken set vary within an image, after a look at its intact one."""
    intact = {picture_file(folder, n).read_bytes() for p in study.pairs if not p.check for n in (p.a, p.b)}
    for place in sorted(study.checks):
        pair = study.pairs[place]
        assert picture_file(folder, pair.a).read_bytes() in intact
        assert picture_file(folder, pair.b).read_bytes() not in intact
        yield max(image.reshape(-1, 3).std(0).max() for image in tiles(folder, pair.b))


def test_a_check_shows_an_intact_set_beside_noise_or_one_colour(tmp_path):
    a, b = write_side(tmp_path / "a"), write_side(tmp_path / "b", seed=1)
    study = create_study(a, b, tmp_path / "study", images=4, checks=4)
    varies = list(broken_sets(tmp_path / "study", study))
    assert [value == 0 for value in varies] == [False, False, True, True]


def test_images_of_one_colour_are_broken_by_noise_alone(tmp_path):
    a, b = write_side(tmp_path / "a", smooth=True), write_side(tmp_path / "b", smooth=True, seed=1)
    study = create_study(a, b, tmp_path / "study", images=4, checks=4)
    assert min(broken_sets(tmp_path / "study", study)) > 50


def test_images_of_several_sizes_are_refused_or_brought_to_one(tmp_path):
    a, b = write_side(tmp_path / "a"), write_side(tmp_path / "b", side=16)
    with pytest.raises(ValueError, match=r"16x16 .* and 8x8 .*--resolution"):
        create_study(a, b, tmp_path / "study", images=4)
    assert not (tmp_path / "study").exists()
    study = create_study(a, b, tmp_path / "study", images=4, resolution=12)
    shapes = {tiles(tmp_path / "study", name, 12).shape for pair in study.pairs for name in (pair.a, pair.b)}
    assert shapes == {(4, 12, 12, 3)}


def test_a_set_too_large_for_a_browser_is_refused(tmp_path):
    a, b = (write_side(tmp_path / name, classes=1, images=2, side=1700, smooth=True) for name in "ab")
    with pytest.raises(
        ValueError, match=r"2 images of 1700x1700 make a picture of 17 MiB; the limit is 16 MiB: .*--re"
    ):
        create_study(a, b, tmp_path / "study", images=2)
    create_study(a, b, tmp_path / "study", images=2, resolution=16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 7}, "7 classes with 4 images .* there are 6"),
        ({"classes": 0}, "classes .--pairs. must be a whole number from 1 to 1000, got 0"),
        ({"images": 6}, "there are 0 .6 in common.: lower --pairs or --images"),
        ({"images": 65}, "images must be a whole number from 1 to 64, got 65"),
        ({"checks": 1}, "checks must be a whole number from 2 to 50, got 1"),
        ({"resolution": 5000}, "resolution must be a whole number from 1 to 1024"),
        ({"most_participants": 0}, "most_participants must be a whole number from 1 to 100000, got 0"),
        ({"consent": " "}, "consent must be a text of 1 to"),
    ],
)
def test_what_is_out_of_range_is_named_and_nothing_is_written(tmp_path, options, message):
    a, b = write_side(tmp_path / "a"), write_side(tmp_path / "b", seed=1)
    with pytest.raises(ValueError, match=message):
        create_study(a, b, tmp_path / "study", **{"images": 4} | options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_sides_that_cannot_be_compared_are_refused(tmp_path):
    a, b = write_side(tmp_path / "a"), write_side(tmp_path / "b")
    for folder in b.iterdir():
        folder.rename(b / f"other {folder.name}")
    flat = write_side(tmp_path / "flat", classes=1) / "class 0"
    for other, message in (
        (b, "no class in common: .*a has class 0, .*b has other"),
        (a, "both sides are"),
        (flat, "has images but no classes"),
        (tmp_path / "nothing", "does not exist"),
    ):
        with pytest.raises(ValueError, match=message):
            create_study(a, other, tmp_path / "study", images=4)


def test_a_broken_image_and_a_folder_that_is_taken_leave_all_as_it_was(tmp_path):
    a, b = write_side(tmp_path / "a"), write_side(tmp_path / "b")
    for file in b.rglob("*.png"):
        file.write_bytes(b"no image")
    with pytest.raises(ValueError, match="cannot be read: not an image"):
        create_study(a, b, tmp_path / "study", images=4)
    with pytest.raises(ValueError, match="exists already"):
        create_study(a, write_side(tmp_path / "c"), a, images=4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_a_study_is_read_as_it_was_written(tmp_path):
    folder = make_study(tmp_path, consent="Was geschieht?\n\nNichts: 100% <b>", seed=3)
    study = read_study(folder)
    assert study.consent == "Was geschieht?\n\nNichts: 100% <b>"
    assert (study.a, study.b, study.seed) == ("smooth", "rough", 3)
    assert (folder.stat().st_mode & 0o077) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: values | {"pairs": []}, "at least one pair"),
        (lambda values: values | {"colour": 1}, "unknown field colour"),
        (lambda values: {k: v for k, v in values.items() if k != "seed"}, "the field seed is missing"),
        (lambda values: values | {"pairs": [{"label": "x", "a": "../../etc", "b": "y"}]}, "32 hexadecimal digits"),
        (lambda values: values | {"pairs": [{"label": "x", "a": "a" * 32, "b": "b" * 32}]}, "lacks the picture aaaa"),
        (lambda values: values | {"most_participants": "many"}, "most_participants must be"),
        (lambda values: [], "must be a mapping of fields"),
    ],
)
def test_a_study_that_was_spoilt_is_named(tmp_path, change, message):
    folder = make_study(tmp_path)
    values = yaml.safe_load((folder / "study.yaml").read_text())
    (folder / "study.yaml").write_text(yaml.safe_dump(change(values)))
    with pytest.raises(ValueError, match=message):
        read_study(folder)


def test_a_study_needs_a_pair_that_is_no_check():
    pair = Pair("x", "a" * 32, "b" * 32, check=True)
    with pytest.raises(ValueError, match="at least one pair"):
        Study(key="k" * 32, join="j" * 22, seed=0, a="a", b="b", images=4, pairs=(pair,))
