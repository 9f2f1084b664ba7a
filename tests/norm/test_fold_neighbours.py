"""Maps that become part of the layers beside them: which do, which do not and why, and that the output stays."""

import pytest
import torch
from tests.norm.cases import CHANNELS, Model, folded_maps, make_batch, make_layer, randomize
from torch import nn
from torch.nn.functional import interpolate
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

import wcgan
from wcgan.norm.fold import AbsorbedMap

D = CHANNELS
ROUNDING = {"rtol": 1e-11, "atol": 1e-11}
IMAGES = (5, 3, 6, 6)


def trained(model, *shape):
    """Random parameters, and statistics that are not those of the beginning."""
    model.double()
    randomize(model)
    for seed in range(2):
        model(make_batch(*shape, seed=seed))
    return model.eval()


def fold_and_compare(model, *shape):
    folded = wcgan.fold(model)
    x = make_batch(*shape, seed=7)
    expected = model(x)
    torch.testing.assert_close(folded(x), expected, **ROUNDING)
    return folded


def white(channels=D, dim=2, name="WC", **options):
    return make_layer(name, channels, dim=dim, momentum=0.5, **options)


class HalfSizeConv2d(nn.Conv2d):
    """A convolution whose weights are made anew at each call."""

    def forward(self, x):
        return torch.conv2d(x, self.weight * 0.5 + self.weight.mean(), self.bias, stride=2)


def checked(model, x):
    if x.dim() != 4 or x.shape[1] != 3:
        raise ValueError(f"images must be (N, 3, H, W), got {tuple(x.shape)}")
    return model.norm(model.conv(x))


FEATURES = (7, 5)
ABSORBED = {
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, D, 3), white()), IMAGES),
    "no bias": (lambda: nn.Sequential(nn.Conv2d(3, D, 3, bias=False), white()), IMAGES),
    "padding": (lambda: nn.Sequential(nn.Conv2d(3, D, 3, padding=1, padding_mode="reflect"), white()), IMAGES),
    "strided": (lambda: nn.Sequential(nn.Conv2d(3, D, 3, stride=2, dilation=2), white()), IMAGES),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(3, D, 4, stride=2, padding=1), white()), IMAGES),
    "sequence": (lambda: nn.Sequential(nn.Conv1d(3, D, 2), white(dim=1)), (5, 3, 6)),
    "transposed sequence": (lambda: nn.Sequential(nn.ConvTranspose1d(3, D, 2), white(dim=1)), (5, 3, 6)),
    "grouped, diagonal": (lambda: nn.Sequential(nn.Conv2d(4, D, 3, groups=2), white(name="BN")), (5, 4, 6, 6)),
    "dense": (lambda: nn.Sequential(nn.Linear(5, D), nn.Dropout(), white(dim=1)), FEATURES),
    "dense to a grid": (
        lambda: Model(lambda m, x: m.norm(m.dense(x).view(-1, D, 2, 3)), dense=nn.Linear(5, 6 * D), norm=white()),
        FEATURES,
    ),
    "dense to a grid, by its size": (
        lambda: Model(
            lambda m, x: m.norm(m.dense(x).reshape((x.size(0), D, 2, 3))), dense=nn.Linear(5, 6 * D), norm=white()
        ),
        FEATURES,
    ),
    "dense to a grid, unflattened": (
        lambda: Model(
            lambda m, x: m.norm(m.dense(x).unflatten(1, (D, 2, 3))), dense=nn.Linear(5, 6 * D), norm=white()
        ),
        FEATURES,
    ),
    "upsampling": (lambda: nn.Sequential(nn.Conv2d(3, D, 1), nn.Upsample(scale_factor=2), white()), IMAGES),
    "upsampling by a function": (
        lambda: Model(lambda m, x: m.norm(interpolate(m.conv(x), None, 2)), conv=nn.Conv2d(3, D, 3), norm=white()),
        IMAGES,
    ),
    "bilinear": (lambda: nn.Sequential(nn.Conv2d(3, D, 1), nn.UpsamplingBilinear2d(scale_factor=2), white()), IMAGES),
    "average": (lambda: nn.Sequential(nn.Conv2d(3, D, 1), nn.AvgPool2d(2), white()), IMAGES),
    "a part of the grid": (
        lambda: Model(lambda m, x: m.norm(m.conv(x)[:, :, 1:]), conv=nn.Conv2d(3, D, 3), norm=white()), IMAGES
    ),
    "a sequence of places": (
        lambda: Model(lambda m, x: m.norm(m.conv(x).flatten(2)), conv=nn.Conv2d(3, D, 3), norm=white(dim=1)),
        IMAGES,
    ),
    "sum": (
        lambda: Model(lambda m, x: m.norm(m.a(x) + m.b(x)), a=nn.Conv2d(3, D, 1), b=nn.Conv2d(3, D, 1), norm=white()),
        IMAGES,
    ),
    "sum of three, one upsampled": (
        lambda: Model(
            lambda m, x: m.norm(m.a(x) + interpolate(m.b(x), scale_factor=3) + m.a2(x)),
            a=nn.Conv2d(3, D, 1), a2=nn.Conv2d(3, D, 3, padding=1), b=nn.Conv2d(3, D, 3, stride=3), norm=white(),
        ),
        IMAGES,
    ),
    "difference": (
        lambda: Model(lambda m, x: m.norm(m.a(x) - m.b(x)), a=nn.Conv2d(3, D, 1), b=nn.Conv2d(3, D, 1), norm=white()),
        IMAGES,
    ),
    "scaled": (lambda: Model(lambda m, x: m.norm(m.a(x) * -0.5 / 3), a=nn.Conv2d(3, D, 1), norm=white()), IMAGES),
    "weighted sum": (
        lambda: Model(
            lambda m, x: m.norm((0.3 * m.a(x) - m.b(x).mul(2)) / 2**0.5),
            a=nn.Conv2d(3, D, 1), b=nn.Conv2d(3, D, 1), norm=white(),
        ),
        IMAGES,
    ),
    "spectral norm": (lambda: nn.Sequential(parametrizations.spectral_norm(nn.Conv2d(3, D, 3)), white()), IMAGES),
    "spectral norm, as it was": (lambda: nn.Sequential(spectral_norm(nn.Conv2d(3, D, 3)), white()), IMAGES),
    "weight norm": (lambda: nn.Sequential(parametrizations.weight_norm(nn.Conv2d(3, D, 3)), white()), IMAGES),
    "weight norm, as it was": (lambda: nn.Sequential(weight_norm(nn.Conv2d(3, D, 3)), white()), IMAGES),
    "a subclass": (lambda: nn.Sequential(HalfSizeConv2d(3, D, 2), white()), IMAGES),
    "behind a check": (lambda: Model(checked, conv=nn.Conv2d(3, D, 3), norm=white()), IMAGES),
    "before a convolution": (lambda: nn.Sequential(nn.ReLU(), white(3), nn.Conv2d(3, 2, 3)), IMAGES),
    "before a dense layer": (lambda: nn.Sequential(nn.ReLU(), white(5, dim=1), nn.Linear(5, 2, bias=False)), FEATURES),
    "in groups": (lambda: nn.Sequential(nn.Conv2d(3, D, 3), white(name="DBN")), IMAGES),
    "coloring alone": (lambda: nn.Sequential(nn.Conv2d(3, D, 3), white(name="C-only")), IMAGES),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("name", ABSORBED)
def test_the_map_becomes_part_of_the_layer_and_the_output_stays(name):
    make, shape = ABSORBED[name]
    torch.manual_seed(0)
    folded = fold_and_compare(trained(make(), *shape), *shape)
    assert folded_maps(folded) == {}
    assert len(folded_maps(folded, AbsorbedMap)) == 1


def twice(model, x):
    y = model.conv(x)
    return model.norm(y) + y


def reads_the_weight(model, x):
    return model.norm(model.conv(x)) * model.conv.weight.mean()


def on_the_last_dimension(model, x):
    return model.norm(model.dense(x))


KEPT = {
    "read twice": (lambda: Model(twice, conv=nn.Conv2d(3, D, 3), norm=white()), IMAGES, "add also reads its input"),
    "non-linear": (lambda: nn.Sequential(nn.Conv2d(3, D, 3), nn.Tanh(), white()), IMAGES, r"1 \(Tanh\) comes before"),
    "unknown operator": (
        lambda: Model(lambda m, x: m.norm(torch.cumsum(m.conv(x), 1)), conv=nn.Conv2d(3, D, 3), norm=white()),
        IMAGES,
        "cumsum comes before it",
    ),
    "grouped": (lambda: nn.Sequential(nn.Conv2d(4, D, 3, groups=2), white()), (5, 4, 6, 6), "0 cannot absorb it"),
    "padded average": (
        lambda: nn.Sequential(nn.Conv2d(3, D, 1), nn.AvgPool2d(2, padding=1), white()),
        IMAGES,
        r"1 \(AvgPool2d\) comes before",
    ),
    "average by another divisor": (
        lambda: nn.Sequential(nn.Conv2d(3, D, 1), nn.AvgPool2d(2, divisor_override=3), white()),
        IMAGES,
        r"1 \(AvgPool2d\) comes before",
    ),
    "grouped and transposed": (
        lambda: nn.Sequential(nn.ConvTranspose2d(4, D, 3, groups=2), white(name="BN")),
        (5, 4, 6, 6),
        "0 cannot absorb it",
    ),
    "channels in another order": (
        lambda: Model(lambda m, x: m.norm(m.conv(x)[:, [1, 0, *range(2, D)]]), conv=nn.Conv2d(3, D, 3), norm=white()),
        IMAGES,
        "getitem comes before it",
    ),
    "rounded": (
        lambda: Model(
            lambda m, x: m.norm(torch.div(m.a(x), 0.1, rounding_mode="floor")), a=nn.Conv2d(3, D, 1), norm=white()
        ),
        IMAGES,
        "div comes before it",
    ),
    "doubled": (
        lambda: Model(lambda m, x: m.norm((y := m.conv(x)) + y), conv=nn.Conv2d(3, D, 3), norm=white()),
        IMAGES,
        "add comes before it",
    ),
    "times 0": (lambda: Model(lambda m, x: m.norm(m.a(x) * 0), a=nn.Conv2d(3, D, 1), norm=white()), IMAGES, "mul"),
    "shifted": (lambda: Model(lambda m, x: m.norm(m.a(x) + 1), a=nn.Conv2d(3, D, 1), norm=white()), IMAGES, "add"),
    "a layer called twice": (
        lambda: Model(lambda m, x: m.norm(m.conv(x)) + m.conv(x), conv=nn.Conv2d(3, D, 3), norm=white()),
        IMAGES,
        "conv is also used elsewhere",
    ),
    "a weight read elsewhere": (
        lambda: Model(reads_the_weight, conv=nn.Conv2d(3, D, 3), norm=white()), IMAGES, "conv is also used elsewhere"
    ),
    "a map called twice": (
        lambda: Model(lambda m, x: m.norm(m.a(x)) + m.norm(x), a=nn.Conv2d(3, 3, 1), norm=white(3)),
        IMAGES,
        "calls it 2 times",
    ),
    "the input": (lambda: nn.Sequential(white(3), nn.ReLU()), IMAGES, "the input .* comes before it"),
    "before padding": (
        lambda: nn.Sequential(nn.ReLU(), white(3), nn.Conv2d(3, 2, 3, padding=1)), IMAGES, r"0 \(ReLU\) comes before"
    ),
    "before a transposed convolution": (
        lambda: nn.Sequential(nn.ReLU(), white(3), nn.ConvTranspose2d(3, 3, 2)), IMAGES, r"0 \(ReLU\) comes before"
    ),
    "before a grouped convolution": (
        lambda: nn.Sequential(nn.ReLU(), white(4), nn.Conv2d(4, 2, 3, groups=2)),
        (5, 4, 6, 6),
        r"0 \(ReLU\) comes before",
    ),
    "before a dense layer along another dimension": (
        lambda: nn.Sequential(nn.ReLU(), white(6), nn.Linear(6, 2)), (5, 6, 2, 6), r"0 \(ReLU\) comes before"
    ),
    "dense along another dimension": (
        lambda: Model(on_the_last_dimension, dense=nn.Linear(6, D), norm=white(3)), IMAGES, "acts on another dimension"
    ),
    "a sequence made of features": (
        lambda: Model(lambda m, x: m.norm(m.dense(x).flatten(2)), dense=nn.Linear(5, D), norm=white(dim=1)),
        (6, D, 5),
        "acts on another dimension",
    ),
    "control flow": (
        lambda: Model(lambda m, x: m.norm(m.conv(x)) if x.sum() > -1e9 else x, conv=nn.Conv2d(3, D, 3), norm=white()),
        IMAGES,
        "torch.fx cannot trace the model: it branches on its input",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_a_map_that_has_to_stay_says_why_and_the_output_stays(name):
    make, shape, reason = KEPT[name]
    torch.manual_seed(0)
    folded = fold_and_compare(trained(make(), *shape), *shape)
    (kept,) = folded_maps(folded).values()
    assert folded_maps(folded, AbsorbedMap) == {}
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(kept.kept)


@pytest.mark.parametrize("hooked", [0, 1])
@pytest.mark.parametrize("kind", [nn.Conv2d, HalfSizeConv2d])
def test_a_hook_on_a_layer_keeps_the_map_out_of_it(kind, hooked):
    model = trained(nn.Sequential(kind(3, D, 3), nn.Upsample(scale_factor=2), white()), *IMAGES)
    model[hooked].register_forward_hook(lambda module, args, output: output.abs())
    assert len(folded_maps(fold_and_compare(model, *IMAGES))) == 1


def test_parts_that_can_be_followed_are_folded_in_a_model_that_cannot():
    block = nn.Sequential(nn.Conv2d(3, D, 3), white(), nn.ReLU())
    model = trained(Model(lambda m, x: m.block(x) if x.shape[0] > 2 else x, block=block), *IMAGES)
    assert list(folded_maps(fold_and_compare(model, *IMAGES), AbsorbedMap)) == ["block.1"]


def test_a_layer_of_two_parts_is_not_changed_for_one_of_them():
    conv = nn.Conv2d(3, D, 3)
    parts = {"a": nn.Sequential(conv, white()), "b": nn.Sequential(conv, nn.ReLU())}
    model = trained(Model(lambda m, x: m.a(x) + m.b(x) if x.shape[0] > 2 else m.a(x), **parts), *IMAGES)
    assert list(folded_maps(fold_and_compare(model, *IMAGES))) == ["a.1"]


class Optional(nn.Module):
    """What is added to the input of the normalisation may be left out."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, D, 3), white()

    def forward(self, x, extra=None):
        y = self.conv(x)
        return self.norm(y if extra is None else y * extra)


def test_a_map_stays_if_one_of_the_ways_of_calling_a_model_needs_it():
    model = trained(Optional(), *IMAGES)
    folded, x = fold_and_compare(model, *IMAGES), make_batch(*IMAGES, seed=8)
    torch.testing.assert_close(folded(x, torch.tensor(2.0)), model(x, torch.tensor(2.0)), **ROUNDING)
    assert list(folded_maps(folded)) == ["norm"]


def test_checks_of_the_input_are_still_made_after_folding():
    folded = wcgan.fold(trained(Model(checked, conv=nn.Conv2d(3, D, 3), norm=white()), *IMAGES))
    with pytest.raises(ValueError, match=r"images must be \(N, 3, H, W\), got \(2, 4, 6, 6\)"):
        folded(torch.zeros(2, 4, 6, 6, dtype=torch.float64))


def test_features_folded_as_rows_are_refused_as_sequences():
    folded = wcgan.fold(trained(nn.Sequential(nn.Linear(D, D), white(dim=1)), 7, D))
    with pytest.raises(ValueError, match=r"folded into 0 for inputs of 2 dimensions.*neighbours=False"):
        folded(torch.zeros(2, D, D, dtype=torch.float64))


def test_the_rectifier_of_a_layer_stays():
    model = trained(Model(lambda m, x: m.norm(m.conv(x), relu=True), conv=nn.Conv2d(3, D, 3), norm=white()), *IMAGES)
    assert fold_and_compare(model, *IMAGES)(make_batch(*IMAGES)).min() == 0


@pytest.mark.parametrize("neighbours", [True, False])
def test_the_rectifier_may_be_asked_for_by_position(neighbours):
    model = trained(Model(lambda m, x: m.norm(m.conv(x), True), conv=nn.Conv2d(3, D, 3), norm=white()), *IMAGES)
    x = make_batch(*IMAGES)
    torch.testing.assert_close(wcgan.fold(model, neighbours=neighbours)(x), model(x), **ROUNDING)


def test_a_map_rectified_by_position_does_not_go_into_the_layer_after_it():
    model = trained(Model(lambda m, x: m.conv(m.norm(x, True)), norm=white(3), conv=nn.Conv2d(3, D, 3)), *IMAGES)
    assert list(folded_maps(fold_and_compare(model, *IMAGES))) == ["norm"]


@pytest.mark.parametrize("name", ["add", "size", "clone", "view", "flatten"])
def test_a_layer_with_the_name_of_an_operation_is_not_taken_for_it(name):
    layers = {"conv": nn.Conv2d(3, D, 3), "norm": white(), name: nn.Tanh()}
    between = trained(Model(lambda m, x: m.norm(getattr(m, name)(m.conv(x))), **layers), *IMAGES)
    beside = trained(Model(lambda m, x: m.norm(y := m.conv(x)) + getattr(m, name)(y), **layers), *IMAGES)
    for model in (between, beside):
        assert list(folded_maps(fold_and_compare(model, *IMAGES))) == ["norm"]


def test_a_rectified_map_does_not_go_into_the_layer_after_it():
    model = trained(Model(lambda m, x: m.conv(m.norm(x, relu=True)), norm=white(3), conv=nn.Conv2d(3, D, 3)), *IMAGES)
    assert list(folded_maps(fold_and_compare(model, *IMAGES))) == ["norm"]


def test_two_maps_around_one_convolution_both_become_part_of_it():
    model = trained(nn.Sequential(nn.ReLU(), white(3), nn.Conv2d(3, D, 3), white()), *IMAGES)
    assert folded_maps(fold_and_compare(model, *IMAGES)) == {}


def test_maps_by_themselves_give_the_same():
    model = trained(nn.Sequential(nn.Conv2d(3, D, 3), white()), *IMAGES)
    alone, x = wcgan.fold(model, neighbours=False), make_batch(*IMAGES)
    assert list(folded_maps(alone)) == ["1"]
    torch.testing.assert_close(wcgan.fold(model)(x), alone(x), **ROUNDING)


def test_frozen_weights_stay_frozen_and_others_do_not():
    model = trained(nn.Sequential(nn.Conv2d(3, D, 3), white()), *IMAGES)
    assert wcgan.fold(model)[0].weight.requires_grad
    model[0].requires_grad_(False)
    assert not wcgan.fold(model)[0].weight.requires_grad
