"""Sampling: a seed is a set of images; classes take turns; what cannot be asked for is said."""

import pytest
import torch
from tests.train.cases import tiny_config, tiny_players

from wcgan.core.images import to_uint8
from wcgan.nets import GeneratorConfig, build_generator
from wcgan.runs.sampler import Sampler


def sampler(normalization="cWC", names=(), **fields):
    torch.manual_seed(0)
    classes = 3 if normalization.startswith("c") else None
    fields = {"widths": (4,), "noise": 6, "channels": 1, "classes": classes, **fields}
    return Sampler(build_generator(GeneratorConfig(normalization=normalization, **fields)), names)


def test_a_seed_gives_the_same_images_and_another_seed_others():
    drawn = sampler()
    assert torch.equal(drawn.sample(6, seed=1), drawn.sample(6, seed=1))
    assert not torch.equal(drawn.sample(6, seed=1), drawn.sample(6, seed=2))


def test_images_are_uint8_of_the_generators_size():
    images = sampler(channels=3).sample(5)
    assert images.shape == (5, 3, 8, 8)
    assert images.dtype == torch.uint8


@pytest.mark.parametrize("normalization", ["WC", "cWC", "cWC_sa", "BN"])
@pytest.mark.parametrize("batch", [1, 3, 7, 50])
def test_the_batch_changes_no_more_than_the_rounding_of_a_pixel(normalization, batch):
    drawn = sampler(normalization, widths=(16, 8))
    difference = drawn.sample(50, batch=batch).int() - drawn.sample(50).int()
    assert difference.abs().max() <= 1
    assert difference.count_nonzero() <= difference.numel() / 1000


def test_images_are_those_of_the_network_at_rest():
    drawn = sampler("WC")
    drawn.network.eval()
    with torch.no_grad():
        expected = to_uint8(drawn.network(drawn.noise(4, 5), None))
    drawn.network.train()
    assert torch.equal(drawn.sample(4, seed=5), expected)


def test_sampling_leaves_the_network_as_it_was():
    players = tiny_players(tiny_config())
    before = {name: value.clone() for name, value in players.generator.state_dict().items()}
    Sampler(players.generator).sample(4)
    assert players.generator.training
    assert all(torch.equal(value, before[name]) for name, value in players.generator.state_dict().items())


@pytest.mark.parametrize(
    ("classes", "expected"), [(None, [0, 1, 2, 0, 1]), (2, [2] * 5), ([2, 0], [2, 0, 2, 0, 2]), ((1,), [1] * 5)]
)
def test_classes_take_turns(classes, expected):
    assert sampler().labels(5, classes).tolist() == expected


def test_a_class_asked_for_is_the_class_drawn():
    drawn = sampler()
    every = drawn.sample(6, seed=1)
    assert torch.equal(drawn.sample(6, classes=1, seed=1)[[1, 4]], every[[1, 4]])
    assert not torch.equal(drawn.sample(6, classes=1, seed=1)[0], every[0])


def test_an_unconditional_generator_has_no_labels():
    assert sampler("WC").labels(3, None) is None


def test_truncation_scales_the_noise():
    drawn = sampler()
    expected = drawn.from_noise(0.5 * drawn.noise(4, 1), drawn.labels(4, None))
    assert torch.equal(drawn.sample(4, seed=1, truncation=0.5), expected)
    still = drawn.sample(4, classes=0, truncation=0.0)
    assert all(torch.equal(image, still[0]) for image in still)
    with pytest.raises(ValueError, match="give a finite truncation"):
        drawn.sample(4, truncation=float("nan"))


def test_weights_of_classes_mix_them():
    drawn = sampler()
    z = drawn.noise(2, 0)
    certain = torch.eye(3)[[2, 1]]
    assert torch.equal(drawn.from_noise(z, certain), drawn.from_noise(z, torch.tensor([2, 1])))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count must be at least 1, got 0"),
        ({"count": 2, "classes": 3}, "class 3 is out of range: this generator has classes 0 to 2"),
        ({"count": 2, "classes": [0, -1]}, "class -1 is out of range"),
        ({"count": 2, "classes": []}, "name at least one class"),
    ],
)
def test_what_cannot_be_drawn_is_said(arguments, message):
    with pytest.raises(ValueError, match=message):
        sampler().sample(**arguments)


def test_a_generator_without_classes_refuses_them():
    with pytest.raises(ValueError, match=r"this generator \(WC\) has no classes: leave them out"):
        sampler("WC").sample(2, classes=1)


def test_a_grid_has_one_class_a_row_and_one_noise_a_column():
    drawn = sampler()
    rows = drawn.rows(columns=4, seed=2)
    assert rows.shape == (12, 1, 8, 8)
    z = drawn.noise(4, 2)
    for label in range(3):
        row = drawn.from_noise(z, torch.full((4,), label))
        assert torch.equal(rows[4 * label : 4 * label + 4], row)


def test_a_grid_of_many_classes_shows_the_first():
    assert len(sampler(classes=30).rows(columns=4)) == 4 * 10


def test_a_grid_without_classes_is_square():
    assert len(sampler("WC").rows(columns=4)) == 16


NAMES = ("cat", "Dog", "10")


@pytest.mark.parametrize(
    ("classes", "expected"),
    [("cat", [0, 0, 0]), ("dog", [1, 1, 1]), (["Dog", 0], [1, 0, 1]), ("10", [2, 2, 2]), ("1", [1, 1, 1])],
)
def test_a_class_is_named_or_numbered(classes, expected):
    assert sampler(names=NAMES).labels(3, classes).tolist() == expected


@pytest.mark.parametrize(
    ("names", "wanted", "said"),
    [
        (NAMES, "cow", "there is no class 'cow'; this generator has cat, Dog, 10, numbered 0 to 2"),
        (NAMES, "7", "class 7 is out of range: this generator has classes 0 to 2"),
        (("crane", "b", "crane"), "crane", "several classes are called 'crane': choose one of the numbers 0, 2"),
        (("0", "1", "2"), "cow", "there is no class 'cow'; this generator has the numbers 0 to 2"),
        ((), "cow", "there is no class 'cow'; this generator has the numbers 0 to 2"),
    ],
)
def test_a_class_that_is_not_there_is_said_with_those_that_are(names, wanted, said):
    with pytest.raises(ValueError) as refusal:
        sampler(names=names).sample(2, wanted)
    assert str(refusal.value) == said


def test_it_says_what_it_is():
    assert repr(sampler()) == ("Sampler(normalization='cWC', classes=3, image=(1, 8, 8), noise=6, device='cpu')")
    assert repr(sampler("WC")) == "Sampler(normalization='WC', image=(1, 8, 8), noise=6, device='cpu')"


def close(one, other):
    return one.shape == other.shape and (one.int() - other.int()).abs().max() <= 1


def test_an_interpolation_begins_and_ends_with_plain_samples():
    drawn = sampler(names=NAMES)
    film = drawn.interpolate(4, 5, seeds=(3, 4), classes=("cat", "10"), truncation=0.5)
    assert film.shape == (4, 5, 1, 8, 8)
    assert close(film[0], drawn.sample(5, "cat", 3, 0.5))
    assert close(film[-1], drawn.sample(5, 2, 4, 0.5))
    assert close(film[1], drawn.between(1 / 3, 5, (3, 4), (0, 2), 0.5))


def test_what_is_given_once_stays_on_the_whole_way():
    drawn = sampler()
    assert close(drawn.between(1.0, 5, seeds=4, classes=(0, 2)), drawn.sample(5, 2, 4))
    assert close(drawn.between(1.0, 5, seeds=(3, 4), classes=1), drawn.sample(5, 1, 4))
    assert close(drawn.between(1.0, 5, seeds=(3, 4)), drawn.sample(5, None, 4))
    plain = sampler("WC")
    assert torch.equal(plain.between(1.0, 5, (3, 4)), plain.sample(5, seed=4))


@pytest.mark.parametrize(
    ("normalization", "options", "said"),
    [
        ("cWC", {"frames": 1}, "frames must be at least 2, got 1"),
        ("cWC", {"count": 0}, "count must be at least 1, got 0"),
        ("cWC", {"seeds": (1, 2, 3)}, "an interpolation takes one or two seeds, got 3"),
        ("cWC", {"classes": []}, "an interpolation takes one or two classes, got 0"),
        ("cWC", {"classes": (0, 3)}, "class 3 is out of range"),
        ("WC", {"classes": (0, 1)}, r"this generator \(WC\) has no classes"),
    ],
)
def test_an_interpolation_that_cannot_be_is_refused(normalization, options, said):
    with pytest.raises(ValueError, match=said):
        sampler(normalization).interpolate(**{"frames": 2, "count": 2, **options})
    with pytest.raises(ValueError, match=r"the position must be from 0 to 1, got 1\.5"):
        sampler(normalization).between(1.5)


@pytest.mark.parametrize("frames", ["24", 2.5, None])
def test_frames_that_are_no_whole_number_are_refused(frames):
    with pytest.raises(TypeError, match=f"^frames must be a whole number, got {frames!r}$"):
        sampler().interpolate(frames)


@pytest.mark.parametrize("count", ["3", 2.5])
def test_a_count_that_is_no_whole_number_is_named(count):
    with pytest.raises(TypeError, match=f"^count must be a whole number, got {count!r}$"):
        sampler("WC").sample(count)
