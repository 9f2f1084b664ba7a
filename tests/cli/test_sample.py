"""`wcgan sample` and `interpolate`: pictures, where they go, and what cannot be drawn."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.cli.cases import assert_refused, everything, images_of
from tests.end_to_end.cases import training, write_photos

import wcgan


def test_training_on_a_folder_of_images_leaves_a_run_to_sample_from(command, place):
    photos = write_photos(place.parent / "photos", side=16)
    sizes = ("--set", "generator.widths=[6, 6]", "--set", "discriminator.resolution=16")
    code, out, err = command(*training(photos, place / "run", iterations=4, sample_every=2), *sizes)
    assert (code, "Traceback" in err) == (0, False)
    assert f"finished at iteration 4: {place}/run" in out
    names = {path.name for path in (place / "run").iterdir() if "tfevents" not in path.name}
    assert names == {"config.yaml", "metrics.jsonl", "samples", "checkpoints", "report.html"}
    assert [path for path in (place / "run").iterdir() if "tfevents" in path.name]

    code, out, _ = command("sample", place / "run", "-n", 6, "--classes", "2,0", "--seed", 5, "--out", "drawn")
    assert (code, out.strip()) == (0, "6 images: drawn")
    files = sorted((place / "drawn").iterdir())
    expected = wcgan.load(place / "run").sample(6, classes=[2, 0], seed=5)
    drawn = [np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1) for path in files]
    assert np.array_equal(np.stack(drawn), expected.numpy())


def test_a_grid_has_a_class_a_row(command, trained):
    code, out, _ = command("sample", trained, "--grid", "class-rows", "--classes", "2,0", "--seed", 9)
    assert (code, out.strip()) == (0, f"class-rows: {trained}/class-rows-9.png")
    with Image.open(trained / "class-rows-9.png") as picture:
        assert picture.size == (8 * (10 * 10 + 2), 8 * (2 * 10 + 2))
    assert "row 1: class 2" in (trained / "class-rows-9.png.txt").read_text()


def test_a_sample_is_one_picture_beside_the_run_unless_said_otherwise(command, trained):
    code, out, _ = command("sample", trained, "-n", 4, "--seed", 9)
    assert (code, out.strip()) == (0, f"4 images: {trained}/sample-9.png")
    with Image.open(trained / "sample-9.png") as picture:
        assert picture.size == (2 * 10 + 2, 2 * 10 + 2)
    assert command("sample", trained, "-n", 1, "--out", "one.png")[1] == "1 image: one.png\n"


@pytest.mark.parametrize(("kind", "options"), [("sample", ["-n", 4]), ("fixed-z", ["--grid", "fixed-z"])])
def test_a_picture_that_nobody_named_is_written_over_none(command, trained, kind, options):
    said = []
    for truncation in (1.0, 0.5, 0.0):
        before = everything(trained)
        code, out, _ = command("sample", trained, *options, "--seed", 7, "--truncation", truncation)
        assert code == 0
        said.append(out.strip().partition(": ")[2])
        assert {path: everything(trained)[path] for path in before} == before
    assert said == [f"{trained}/{kind}-7{more}.png" for more in ("", "-2", "-3")]
    assert len({Path(name).read_bytes() for name in said}) == 3


@pytest.mark.parametrize("options", [["-n", 4], ["--grid", "fixed-z"]], ids=["sample", "grid"])
def test_a_picture_under_a_name_that_was_asked_for_is_replaced(command, trained, place, options):
    pictures = set()
    for truncation in (1.0, 0.5):
        code, out, _ = command("sample", trained, *options, "--truncation", truncation, "--out", "mine.png")
        assert (code, out.strip().partition(": ")[2]) == (0, "mine.png")
        pictures.add((place / "mine.png").read_bytes())
    assert len(pictures) == 2
    assert {path.name for path in place.iterdir()} <= {"mine.png", "mine.png.txt"}


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--classes", "three"], ["there is no class 'three'; this generator has "]),
        (["--classes", ""], ["name at least one class of 0 to 2"]),
        (["--classes", "0,3"], ["class 3 is out of range: this generator has classes 0 to 2"]),
        (["-n", "10000000000000"], ["not enough memory: ask for fewer images"]),
        (["-n", "0"], ["count must be at least 1, got 0"]),
        (["--checkpoint", "7"], ["has no checkpoint 7", "it has 0000003"]),
        (["--grid", "fixed-z", "--checkpoint", "7"], ["has no checkpoint 7", "it has 0000003"]),
        (["--grid", "columns"], ["--grid takes fixed-z or class-rows, got 'columns'"]),
        (["--grid", "fixed-z", "-n", "0"], ["--grid has ten images per row: leave out -n 0"]),
        (["--grid", "fixed-z", "--out", "drawn"], ["a grid is one picture: name a .png file, not drawn"]),
        (["--device", "cuda:99"], ["there is no GPU cuda:99"]),
        (["--out", "."], ["exists already: name another folder"]),
        (["--out", "drawn.jpg"], ["drawn.jpg is neither a .png file, for a grid, nor a folder"]),
        (["--out", "drawn.txt"], ["drawn.txt is neither a .png file, for a grid, nor a folder", "without .txt"]),
        (["--out", "drawn.txt", "-n", "10000000000000"], ["drawn.txt is neither"]),  # said before anything is drawn
        (["--out", "file/drawn.png"], ["file", "cannot be used"]),
    ],
    ids=lambda value: value[0] if value[0].startswith("-") else "",
)
def test_samples_that_cannot_be_drawn(command, trained, place, arguments, parts):
    (place / "file").write_text("mine")
    before = everything(trained)
    assert_refused(command("sample", trained, *arguments), *parts)
    assert everything(trained) == before
    assert everything(place) == {place / "file": b"mine"}


def test_classes_of_a_generator_without_any(command, place):
    photos = images_of(place.parent / "photos", *[(8, 8)] * 4, classes=0)
    plain = ("--set", "generator.normalization=WC", "--set", "discriminator.head=plain")
    assert command(*training(photos, "run", iterations=2), *plain)[0] == 0
    assert_refused(command("sample", "run", "--classes", "1"), "this generator (WC) has no classes")
    assert_refused(command("sample", "run", "--grid", "fixed-z"), "run has no classes (its generator has WC)")


@pytest.mark.parametrize(
    ("options", "file", "ends"),
    [
        (["--classes", "NAME0,2", "--seed", "3"], "film.gif", ((3, 3), (0, 2))),
        (["--classes", "1", "--seed", "3"], "film.webp", ((3, 4), 1)),
        (["--last-seed", "7", "--truncation", "0.5"], None, ((0, 7), None)),
    ],
)
def test_an_interpolation_is_an_animation_there_and_back(command, trained, place, options, file, ends):
    generator = wcgan.load(trained)
    options = [option.replace("NAME0", generator.class_names[0]) for option in options]
    target = place / file if file else trained / "interpolate-0.gif"
    arguments = ("interpolate", trained, *options, "-n", 2, "--frames", 3, *(("--out", file) if file else ()))
    assert command(*arguments) == (0, f"3 frames: {file or target}\n", "")
    with Image.open(target) as film:
        assert (film.format.lower(), film.n_frames, film.info["loop"]) == (target.suffix[1:], 4, 0)
        film.seek(2)
        picture = film.convert("RGB")
    last = generator.interpolate(3, 2, *ends, truncation=0.5 if ends[1] is None else 1.0)[-1]
    side = 2 * 2 + 2 * 8 + 2
    assert picture.width % side == 0
    found = np.asarray(picture.resize((side, 8 + 4), Image.Resampling.NEAREST))
    exact = 0 if target.suffix == ".webp" else 40  # a GIF has 256 colours
    assert np.abs(found[2:10, 2:10].astype(int) - last[0].permute(1, 2, 0).numpy()).max() <= exact
    target.unlink()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "film.mp4"], "an animation is a .gif or a .webp file, not film.mp4"),
        (["--classes", "0,1,2"], "an interpolation takes one or two classes, got 3"),
        (["--frames", "1"], "frames must be at least 2, got 1"),
    ],
)
def test_an_animation_that_cannot_be_made(command, trained, place, arguments, said):
    before = everything(trained)
    assert_refused(command("interpolate", trained, "-n", "1", "--frames", "2", *arguments), said)
    assert (everything(trained), everything(place)) == (before, {})
