"""A model made ready to be served, and what cannot be."""

import copy

import pytest
import torch
from tests.norm.cases import make_layer
from torch import nn

import wcgan
from wcgan.export import make_servable, write_onnx, write_program
from wcgan.export.programs import check_exact
from wcgan.norm import FoldedMap


def no_progress(what, done, total):
    pass


def draw(count, seed):
    return (torch.randn(count, 4, 3, 3, generator=torch.Generator().manual_seed(seed)),)


def trained(model):
    for seed in range(2):
        model(*draw(6, seed))
    return model.eval()


def white():
    return make_layer("WC", dtype=torch.float32, momentum=0.5)


def test_a_model_in_training_mode_is_refused():
    with pytest.raises(ValueError, match="the model is in training mode"):
        make_servable(trained(nn.Sequential(white())).train(), ("x",), draw)


def test_a_layer_that_has_seen_no_batch_is_refused_by_its_path():
    with pytest.raises(ValueError, match=r"^1 has no statistics yet"):
        make_servable(nn.Sequential(trained(white()), white()).eval(), ("x",), draw)


def test_a_converted_layer_whose_batches_were_never_counted_is_served():
    bn = nn.BatchNorm2d(4).eval()
    bn.running_mean.fill_(0.5)
    assert bn.num_batches_tracked == 0
    assert isinstance(make_servable(wcgan.convert_batchnorm(bn), ("x",), draw).model, nn.Module)


def test_the_model_is_not_changed():
    model = trained(nn.Sequential(nn.Conv2d(4, 4, 1), white()))
    before = copy.deepcopy(model.state_dict())
    make_servable(model, ("x",), draw)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model[0].weight.requires_grad


def test_maps_of_feature_maps_become_convolutions_and_others_do_not():
    model = nn.Sequential(nn.ReLU(), white(), nn.ReLU(), nn.Flatten(2), make_layer("WC", dim=1, dtype=torch.float32))
    served = make_servable(trained(model), ("x",), draw).model
    assert not isinstance(served[1], FoldedMap)
    assert isinstance(served[4], FoldedMap)


def test_the_check_lets_rounding_pass_and_counts_inputs():
    servable = make_servable(trained(nn.Sequential(nn.ReLU(), white())), ("x",), draw)
    seen = []
    largest = check_exact(servable, lambda x: servable.model(x), lambda what, done, total: seen.append((done, total)))
    assert 0 < largest < 1e-4
    assert seen[-1] == (1000, 1000)


@pytest.mark.parametrize("wrong", [lambda y: y * 1.0001, lambda y: y + torch.nan], ids=["scaled", "nan"])
def test_the_check_refuses_what_rounding_does_not_explain(wrong):
    servable = make_servable(trained(nn.Sequential(nn.ReLU(), white())), ("x",), draw)
    with pytest.raises(ValueError, match=r"differs by .* from the one that was trained, on 70 random inputs"):
        check_exact(servable, lambda x: wrong(servable.model(x)), no_progress, count=70)


class Odd(nn.Module):
    """An operation that neither format has."""

    def __init__(self):
        super().__init__()
        self.norm = white()

    def forward(self, x):
        return torch.special.airy_ai(self.norm(x))


class Looking(Odd):
    """Python that looks at values."""

    def forward(self, x):
        return self.norm(x) if float(x.sum()) > 0 else x


def test_an_operator_that_onnx_does_not_have_is_refused(tmp_path):
    pytest.importorskip("onnxruntime")
    servable = make_servable(trained(Odd()), ("x",), draw)
    with pytest.raises(ValueError, match=r"cannot be written as ONNX: .*airy_ai"):
        write_onnx(servable, tmp_path / "x.onnx", no_progress)


def test_a_model_that_looks_at_values_is_refused(tmp_path):
    servable = make_servable(trained(Looking()), ("x",), draw)
    with pytest.raises(ValueError, match=r"torch\.export cannot follow the model"):
        write_program(servable, tmp_path / "x.pt2", no_progress)
