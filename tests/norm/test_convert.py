"""Swapping batch normalisation for whitening and coloring in a network that is already there."""

import copy

import pytest
import torch
from tests.norm.cases import randomize
from torch import nn

import wcgan

ROUNDING = {"rtol": 1e-12, "atol": 1e-12}


class Tower(nn.Module):
    """Convolutions, sequences and features, each with the batch normalisation that goes with it."""

    def __init__(self):
        super().__init__()
        self.images = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 1))
        self.norm = nn.BatchNorm2d(4, eps=1e-2, momentum=0.3)
        self.sequences = nn.BatchNorm1d(4)
        self.features = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, momentum=None), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x):
        x = self.sequences(self.norm(self.images(x)).flatten(2))
        return self.features(x.mean(2))


def trained_tower():
    torch.manual_seed(0)
    model = Tower().double()
    randomize(model)
    for seed in range(3):
        model(images(seed))
    return model


def images(seed=0):
    return torch.randn(6, 3, 5, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def norms(model):
    return [m for m in model.modules() if isinstance(m, (wcgan.WhiteningColoring1d, wcgan.WhiteningColoring2d))]


# The output stays what it was


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"eps": 1e-5},
        {"eps": 0.0},
        {"eps": 0.3},
        {"whitening": "zca"},
        {"whitening": "standardize"},
        {"coloring": "diagonal"},
        {"groups": 2},
        {"groups": 2, "whitening": "zca", "coloring": "diagonal"},
    ],
    ids=str,
)
def test_evaluation_gives_what_batch_normalisation_gave(options):
    model = trained_tower().eval()
    expected = model(images(7))
    converted = wcgan.convert_batchnorm(model, **options)
    assert converted is model
    assert len(norms(model)) == 4
    torch.testing.assert_close(converted(images(7)), expected, **ROUNDING)


@pytest.mark.parametrize("name", ["BN", "WC-diag", "std-C", "WzcaC", "WC", "DBN"])
def test_a_variant_by_its_name_gives_what_batch_normalisation_gave(name):
    model = trained_tower().eval()
    expected = model(images(7))
    wcgan.convert_batchnorm(model, name)
    torch.testing.assert_close(model(images(7)), expected, **ROUNDING)
    for layer in norms(model):
        like = wcgan.normalization(name, layer.num_features)
        chosen = ("whitening", "coloring", "groups")
        assert [getattr(layer, each) for each in chosen] == [getattr(like, each) for each in chosen]


def test_volumes_give_what_batch_normalisation_gave():
    bn = nn.BatchNorm3d(3, dtype=torch.float64)
    volumes = images()[:, :, None] + images(1)[..., None]
    bn(volumes)
    expected = bn.eval()(volumes)
    layer = wcgan.convert_batchnorm(bn)
    assert type(layer) is wcgan.WhiteningColoring3d
    torch.testing.assert_close(layer(volumes), expected, **ROUNDING)


def test_a_model_converted_in_training_mode_gives_the_same_evaluation():
    model = trained_tower()
    expected = copy.deepcopy(model).eval()(images(7))
    torch.testing.assert_close(wcgan.convert_batchnorm(model).eval()(images(7)), expected, **ROUNDING)


def test_a_channel_that_was_always_dead_survives():
    bn = nn.BatchNorm2d(3, dtype=torch.float64)
    bn.running_var[1] = 0.0
    bn.eval()
    x = images()
    expected = bn(x)
    layer = wcgan.convert_batchnorm(bn)
    torch.testing.assert_close(layer(x), expected, rtol=1e-10, atol=1e-10)
    assert layer.train()(x).isfinite().all()
    assert layer.eval()(x).isfinite().all()


def test_gradients_in_evaluation_are_those_of_batch_normalisation():
    model = trained_tower().eval()
    x = images(7).requires_grad_()
    (expected,) = torch.autograd.grad(model(x).square().sum(), x)
    (found,) = torch.autograd.grad(wcgan.convert_batchnorm(model)(x).square().sum(), x)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_training_whitens_with_the_batch_from_the_first_step():
    bn = nn.BatchNorm2d(3, dtype=torch.float64)
    x = images() + images(1).flip(1)
    torch.testing.assert_close(wcgan.convert_batchnorm(bn)(x), wcgan.functional.whiten(x), rtol=1e-10, atol=1e-10)


# What is kept


def test_momentum_batches_and_means_are_kept():
    model = trained_tower()
    sources = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    wcgan.convert_batchnorm(model)
    for layer, source in zip(norms(model), sources, strict=True):
        assert layer.momentum == source.momentum
        assert torch.equal(layer.num_batches_tracked, source.num_batches_tracked)
        assert torch.equal(layer.running_mean, source.running_mean)


def test_the_class_follows_the_dimension():
    model = wcgan.convert_batchnorm(trained_tower())
    assert type(model.norm) is wcgan.WhiteningColoring2d
    assert type(model.sequences) is wcgan.WhiteningColoring1d


@pytest.mark.parametrize("training", [True, False])
def test_the_training_flag_of_each_layer_is_kept(training):
    model = trained_tower()
    model.norm.train(training)
    model.sequences.train(not training)
    wcgan.convert_batchnorm(model)
    assert (model.norm.training, model.sequences.training) == (training, not training)
    assert model.training


def test_frozen_parameters_stay_frozen():
    model = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3))
    model[0].weight.requires_grad_(False)
    model[1].bias.requires_grad_(False)
    wcgan.convert_batchnorm(model)
    assert [p.requires_grad for layer in model for p in (layer.weight, layer.bias)] == [False, True, True, False]


def test_the_type_and_the_device_are_kept():
    assert wcgan.convert_batchnorm(nn.BatchNorm2d(3).double()).weight.dtype == torch.float64
    layer = wcgan.convert_batchnorm(nn.BatchNorm2d(3, device="meta"))
    assert all(tensor.is_meta for tensor in (*layer.parameters(), *layer.buffers()))


def test_a_layer_used_in_two_places_stays_one_layer():
    shared = nn.BatchNorm2d(3)
    model = nn.Sequential(shared, nn.ReLU(), shared, nn.Sequential(shared))
    wcgan.convert_batchnorm(model)
    assert isinstance(model[0], wcgan.WhiteningColoring2d)
    assert model[2] is model[0]
    assert model[3][0] is model[0]


def test_a_batch_normalisation_by_itself_becomes_a_layer():
    assert type(wcgan.convert_batchnorm(nn.BatchNorm1d(3))) is wcgan.WhiteningColoring1d


@pytest.mark.parametrize("options", [{}, {"coloring": "full"}], ids=str)
def test_without_scale_and_shift_the_output_stays_too(options):
    bn = nn.BatchNorm2d(3, affine=False, dtype=torch.float64)
    bn(images())
    expected = bn.eval()(images(1))
    layer = wcgan.convert_batchnorm(bn, **options)
    torch.testing.assert_close(layer(images(1)), expected, **ROUNDING)
    assert (layer.weight is None) == (not options)


def test_a_layer_without_running_statistics_gets_none():
    layer = wcgan.convert_batchnorm(nn.BatchNorm2d(3, track_running_stats=False, dtype=torch.float64)).eval()
    assert layer.running_mean is None
    torch.testing.assert_close(layer(images()), wcgan.functional.whiten(images()), rtol=1e-10, atol=1e-10)


def test_sync_batch_normalisation_becomes_a_synchronised_layer():
    source = nn.SyncBatchNorm(3).double()
    layer = wcgan.convert_batchnorm(source)
    assert type(layer) is wcgan.WhiteningColoring2d
    assert layer.sync
    assert not wcgan.convert_batchnorm(nn.BatchNorm2d(3)).sync


def test_the_converted_state_loads_into_a_layer_built_from_nothing():
    layer = wcgan.convert_batchnorm(nn.BatchNorm2d(3))
    wcgan.WhiteningColoring2d(3).load_state_dict(layer.state_dict(), strict=True)


@pytest.mark.parametrize("strict", [False, True])
def test_weights_of_batch_norm_that_come_too_late_are_named_once(strict):
    network = Tower()
    state = copy.deepcopy(network.state_dict())
    with pytest.raises(RuntimeError, match="load them into the network before") as refusal:
        wcgan.convert_batchnorm(network).load_state_dict(state, strict=strict)
    assert str(refusal.value).count("these weights are of batch norm") == 1


# What is left alone, and what is refused


class MyBatchNorm(nn.BatchNorm2d):
    pass


def test_a_subclass_is_left_alone_and_named_in_one_warning():
    model = nn.Sequential(MyBatchNorm(3), nn.BatchNorm2d(3), nn.GroupNorm(1, 3), nn.Sequential(MyBatchNorm(3)))
    with pytest.warns(UserWarning, match=r"left these layers alone: 0 \(MyBatchNorm\), 3\.0 \(MyBatchNorm\)$"):
        wcgan.convert_batchnorm(model)
    kinds = [type(module) for module in model]
    assert kinds == [MyBatchNorm, wcgan.WhiteningColoring2d, nn.GroupNorm, nn.Sequential]


def graph(model):
    return torch.export.export(model, (torch.randn(2, 3, 4, 4),)).module()


@pytest.mark.filterwarnings("ignore:.torch.jit.* is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("compiled", "place"),
    [
        (torch.jit.script, r"1 \(TorchScript BatchNorm2d"),
        (lambda model: torch.jit.trace(model, torch.randn(2, 3, 4, 4)), r"1 \(TorchScript BatchNorm2d"),
        (graph, r"the model \(a graph that calls batch_norm"),
    ],
    ids=["script", "trace", "export"],
)
def test_a_network_that_cannot_be_changed_is_left_alone_and_says_why(compiled, place):
    model = compiled(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval())
    with pytest.warns(UserWarning, match=place + r": convert the network that it was made from\)$"):
        wcgan.convert_batchnorm(model)


def test_a_graph_of_modules_is_converted_without_a_warning():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.batch_norm = nn.BatchNorm2d(3)

        def forward(self, x):
            return self.batch_norm(x)

    model = wcgan.convert_batchnorm(torch.fx.symbolic_trace(Network()))
    assert isinstance(model.batch_norm, wcgan.WhiteningColoring2d)


def test_hooks_that_are_dropped_are_named():
    model = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3))
    model[1].register_forward_pre_hook(lambda *_: None)
    with pytest.warns(UserWarning, match=r"dropped the hooks of these layers: 1$"):
        wcgan.convert_batchnorm(model)


@pytest.mark.parametrize("name", ["cWC", "cBN"])
def test_a_variant_that_depends_on_the_class_is_refused(name):
    with pytest.raises(ValueError, match=rf"^{name} depends on the class, .* choose one of BN, W-only"):
        wcgan.convert_batchnorm(nn.BatchNorm2d(3), name)


def test_an_unknown_variant_is_refused():
    with pytest.raises(ValueError, match="unknown normalization 'wc'; choose one of BN"):
        wcgan.convert_batchnorm(nn.BatchNorm2d(3), "wc")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("IterNorm", "whitening='newton' is approximate"),
        ("W-only", "coloring='none' drops scales and shifts"),
        ("C-only", "whitening='none' drops the normalisation"),
    ],
)
def test_a_variant_that_changes_the_output_says_so_once(name, reason):
    with pytest.warns(UserWarning, match=f"changes the output in evaluation: {reason}$") as said:
        wcgan.convert_batchnorm(trained_tower(), name)
    assert len(said) == 1


@pytest.mark.parametrize("lazy", [nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d])
def test_a_lazy_layer_is_refused_by_its_path_and_the_model_left_alone(lazy):
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Sequential(lazy()))
    with pytest.raises(ValueError, match=r"^1\.0 is a lazy batch normalisation"):
        wcgan.convert_batchnorm(model)
    assert type(model[0]) is nn.BatchNorm2d


def test_a_lazy_layer_that_has_seen_a_batch_is_converted():
    model = nn.Sequential(nn.LazyBatchNorm2d())
    model(torch.randn(4, 3, 2, 2))
    assert type(wcgan.convert_batchnorm(model)[0]) is wcgan.WhiteningColoring2d


def test_groups_that_do_not_divide_are_refused_by_the_layers_path_and_the_model_left_alone():
    model = nn.Sequential(nn.BatchNorm2d(4), nn.BatchNorm2d(3))
    with pytest.raises(ValueError, match=r"^1 cannot be converted: .*divisor of the 3 channels, got 2"):
        wcgan.convert_batchnorm(model, groups=2)
    assert [type(module) for module in model] == [nn.BatchNorm2d, nn.BatchNorm2d]


def test_a_model_without_batch_normalisation_is_returned_with_a_warning():
    model = nn.Sequential(nn.Conv2d(3, 4, 1))
    with pytest.warns(UserWarning, match="found no batch normalisation"):
        assert wcgan.convert_batchnorm(model) is model


# And it trains


def test_a_converted_network_learns():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2),
    )  # fmt: skip
    wcgan.convert_batchnorm(model)
    x = torch.randn(64, 1, 8, 8)
    y = (x.diff(dim=3).abs().mean((1, 2, 3)) > x.diff(dim=2).abs().mean((1, 2, 3))).long()  # which way is it rougher?
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(40):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 3
    assert all(layer.num_nonfinite == 0 for layer in norms(model))
    accuracy = (model.eval()(x).argmax(1) == y).float().mean()
    assert accuracy > 0.8
