"""One class of a conditional model: called without labels, with its maps in the layers beside them."""

import pytest
import torch
from tests.norm.cases import CHANNELS, CLASSES, Model, folded_maps, make_batch, make_labels, make_layer, randomize
from torch import nn
from torch.nn.functional import relu

import wcgan

D = CHANNELS
ROUNDING = {"rtol": 1e-11, "atol": 1e-11}
IMAGES = (5, 3, 6, 6)


class Conditional(nn.Module):
    """Labels are the first argument, and read by more than the layer."""

    def __init__(self, name="cWC"):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, D, 3), make_layer(name, momentum=0.5)
        self.embedding = nn.Embedding(CLASSES, D)

    def forward(self, labels, x):
        return relu(self.norm(self.conv(x), labels)) + self.embedding(labels)[:, :, None, None]


def trained_conditional(name="cWC"):
    model = Conditional(name).double()
    randomize(model)
    model(make_labels(5), make_batch(*IMAGES))
    return model.eval()


@pytest.mark.parametrize("label", range(CLASSES))
@pytest.mark.parametrize("name", ["cBN", "cWC", "cWC_sa"])
def test_one_class_is_called_without_labels_and_becomes_part_of_the_convolution(name, label):
    model, x = trained_conditional(name), make_batch(*IMAGES, seed=7)
    folded = wcgan.fold(model, label=label)
    torch.testing.assert_close(folded(x), model(torch.full((5,), label), x), **ROUNDING)
    assert folded_maps(folded) == {}


def test_one_class_saves_the_matrices_of_all():
    model = trained_conditional()
    all_classes, one = (
        sum(t.numel() for t in m.state_dict().values()) for m in (wcgan.fold(model), wcgan.fold(model, 1))
    )
    assert all_classes - one == (CLASSES + 1) * (D * D + D)


def test_a_conditional_layer_by_itself_can_be_of_one_class():
    layer = make_layer("cWC").eval()
    x = make_batch(5, D, 2, 2)
    torch.testing.assert_close(wcgan.fold(layer, label=2)(x), layer(x, torch.full((5,), 2)), **ROUNDING)


class FromNoise(nn.Module):
    """Asks for the batch size with `len`, which torch.fx does not record by itself."""

    def __init__(self):
        super().__init__()
        self.dense, self.norm = nn.Linear(6, 4 * D), make_layer("cWC", momentum=0.5)

    def forward(self, z, labels):
        return relu(self.norm(self.dense(z).view(len(z), D, 2, 2), labels))


def test_one_class_of_a_model_that_uses_len_becomes_part_of_the_dense_layer():
    model = FromNoise().double()
    z = torch.randn(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model(z, make_labels(5))
    folded = wcgan.fold(model.eval(), label=2)
    torch.testing.assert_close(folded(z), model(z, torch.full((5,), 2)), **ROUNDING)
    assert folded_maps(folded) == {}
    assert "len" not in globals()


@pytest.mark.parametrize("label", [CLASSES, -1])
def test_a_class_that_is_not_there_is_refused(label):
    with pytest.raises(ValueError, match=rf"label {label} is out of range.*0 to {CLASSES - 1}"):
        wcgan.fold(Conditional(), label=label)


def test_a_class_that_one_of_the_layers_lacks_is_refused():
    layers = (wcgan.normalization("cWC", D, classes=classes) for classes in (CLASSES, CLASSES + 1))
    with pytest.raises(ValueError, match=rf"label {CLASSES} is out of range.*0 to {CLASSES - 1}"):
        wcgan.fold(nn.Sequential(*layers), label=CLASSES)


def test_a_label_for_a_model_without_classes_is_refused():
    with pytest.raises(ValueError, match="label=1 was given, but the model has no conditional layer"):
        wcgan.fold(nn.Sequential(make_layer("WC")), label=1)


def test_labels_made_inside_a_model_are_refused():
    model = Model(lambda m, x: m.norm(x, x.argmax(1)), norm=make_layer("cWC"))
    with pytest.raises(ValueError, match="label=1 cannot be fixed: the labels of the layers are not an argument"):
        wcgan.fold(model, label=1)


def test_labels_in_a_model_that_cannot_be_followed_are_refused():
    model = Model(lambda m, x: m.norm(x, x[0]) if x.sum() > 0 else x, norm=make_layer("cWC"))
    with pytest.raises(ValueError, match=r"label=1 cannot be fixed, because torch\.fx cannot trace the model"):
        wcgan.fold(model, label=1)
