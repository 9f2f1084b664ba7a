"""The layers under `torch.func` and forward-mode differentiation."""

import copy

import pytest
import torch
from tests.norm.cases import CHANNELS, EXACT, PATHS, WHITENED_PATHS, make_inputs, make_layer, randomize
from torch.autograd import forward_ad
from torch.autograd.functional import jacobian
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vmap

SHAPE = (5, CHANNELS, 2, 2)


def evaluating(name):
    layer = make_layer(name, momentum=0.5)
    layer(*make_inputs(layer, *SHAPE, seed=3))
    return layer.eval()


def training(name):
    """With the statistics of the batch, and none of its own that a transform would have to change."""
    return make_layer(name, track_running_stats=False)


MODES = pytest.mark.parametrize("make", [evaluating, training], ids=lambda make: make.__name__)


def as_function(layer, *shape, seed=4):
    """The layer as a function of the batch alone, and a batch."""
    x, *labels = make_inputs(layer, *shape, seed=seed)
    return lambda x: layer(x, *labels), x


@MODES
@pytest.mark.parametrize("name", PATHS)
def test_the_forward_derivative_is_the_reverse_one_transposed(name, make):
    function, x = as_function(make(name), *SHAPE)
    tangent, cotangent = torch.randn_like(x), torch.randn_like(x)
    out, forward = jvp(function, (x,), (tangent,))
    leaf = x.clone().requires_grad_()
    expected = function(leaf)
    torch.testing.assert_close(out, expected, **EXACT)
    (reverse,) = torch.autograd.grad(expected, leaf, cotangent)
    torch.testing.assert_close((forward * cotangent).sum(), (reverse * tangent).sum(), **EXACT)


@pytest.mark.parametrize("name", [name for name in PATHS if name != "W-only"])
def test_the_forward_derivative_of_the_parameters_is_the_reverse_one_transposed(name):
    layer = training(name)
    inputs = make_inputs(layer, *SHAPE)
    parameters = {key: p.detach() for key, p in layer.named_parameters()}
    tangents = {key: torch.randn_like(p) for key, p in parameters.items()}
    out, forward = jvp(lambda p: functional_call(layer, p, inputs), (parameters,), (tangents,))
    cotangent = torch.randn_like(out)
    gradients = torch.autograd.grad(layer(*inputs), list(layer.parameters()), cotangent)
    reverse = sum((g * t).sum() for g, t in zip(gradients, tangents.values(), strict=True))
    torch.testing.assert_close((forward * cotangent).sum(), reverse, **EXACT)


@pytest.mark.parametrize("name", PATHS)
def test_dual_numbers_move_the_running_statistics_as_plain_ones_do(name):
    layer = make_layer(name, momentum=0.5)
    plain = copy.deepcopy(layer)
    x, *labels = make_inputs(layer, *SHAPE)
    with forward_ad.dual_level():
        out = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, torch.ones_like(x) * x), *labels))
    torch.testing.assert_close(out.primal, plain(x, *labels), **EXACT)
    assert out.tangent is not None
    torch.testing.assert_close(dict(layer.named_buffers()), dict(plain.named_buffers()), **EXACT)


@pytest.mark.parametrize("transform", [jacrev, jacfwd], ids=lambda transform: transform.__name__)
@MODES
@pytest.mark.parametrize("name", PATHS)
def test_jacobians_agree(name, make, transform):
    function, x = as_function(make(name), 3, CHANNELS, 1, 1)
    torch.testing.assert_close(transform(function)(x), jacobian(function, x), **EXACT)


@MODES
@pytest.mark.parametrize("name", PATHS)
def test_a_vectorised_jacobian_agrees_with_one_made_row_by_row(name, make):
    function, x = as_function(make(name), 3, CHANNELS, 1, 1)
    torch.testing.assert_close(jacobian(function, x, vectorize=True), jacobian(function, x), **EXACT)


@pytest.mark.parametrize("name", PATHS)
def test_second_derivatives_agree(name):
    function, x = as_function(training(name), 3, CHANNELS, 1, 1)

    def loss(x):
        return (function(x) ** 3).sum()

    expected = torch.autograd.functional.hessian(loss, x)
    torch.testing.assert_close(hessian(loss)(x), expected, rtol=1e-7, atol=1e-7 * expected.abs().max().item())


@pytest.mark.parametrize("name", ["WzcaC", "DBN"])
def test_zca_has_a_forward_derivative_where_eigenvalues_coincide(name):
    layer = training(name)
    basis = torch.linalg.qr(torch.randn(12, 1 + CHANNELS, dtype=torch.float64))[0][:, 1:]
    x = basis - basis.mean(0)
    x = (x @ torch.linalg.inv(torch.linalg.cholesky(x.T @ x)).T).reshape(12, CHANNELS, 1, 1)  # its covariance is c I
    tangent = torch.randn_like(x)
    step = 1e-6
    numeric = (layer(x + step * tangent) - layer(x - step * tangent)) / (2 * step)
    torch.testing.assert_close(jvp(layer, (x,), (tangent,))[1], numeric, rtol=1e-6, atol=1e-6)


@MODES
@pytest.mark.parametrize("name", PATHS)
def test_a_batch_of_batches_is_as_one_after_the_other(name, make):
    layer = make(name)
    batches = [make_inputs(layer, *SHAPE, seed=seed) for seed in range(3)]
    stacked = [torch.stack(column) for column in zip(*batches, strict=True)]
    torch.testing.assert_close(vmap(layer)(*stacked), torch.stack([layer(*b) for b in batches]), **EXACT)


@MODES
@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("order", [(0, 1, 4, 2, 3), (1, 2, 3, 4, 0), (1, 0, 2, 3, 4)], ids=str)
def test_a_batch_of_batches_may_have_any_strides(name, make, order):
    layer = make(name)
    batches = [make_inputs(layer, *SHAPE, seed=seed) for seed in range(3)]
    x, *labels = (torch.stack(column) for column in zip(*batches, strict=True))
    back = [order.index(axis) for axis in range(5)]
    x = x.permute(*order).contiguous().permute(*back)  # such as channels last, as the outputs of convolutions
    torch.testing.assert_close(vmap(layer)(x, *labels), torch.stack([layer(*b) for b in batches]), **EXACT)


@pytest.mark.parametrize("name", [name for name in PATHS if name != "W-only"])
def test_an_ensemble_trains_as_its_members_do(name):
    members = [make_layer(name, momentum=0.5) for _ in range(3)]
    for seed, member in enumerate(members):
        randomize(member, seed)
    parameters, buffers = stack_module_state(members)
    parameters = {key: p.detach() for key, p in parameters.items()}
    base = copy.deepcopy(members[0]).to("meta")
    inputs = make_inputs(members[0], *SHAPE)

    def loss(parameters, buffers):
        return (functional_call(base, (parameters, buffers), inputs) ** 3).sum()

    gradients = vmap(grad(loss))(parameters, buffers)
    for i, member in enumerate(members):
        (member(*inputs) ** 3).sum().backward()
        torch.testing.assert_close(
            {key: g[i] for key, g in gradients.items()}, {key: p.grad for key, p in member.named_parameters()}, **EXACT
        )
        torch.testing.assert_close({key: b[i] for key, b in buffers.items()}, dict(member.named_buffers()), **EXACT)


@pytest.mark.parametrize("name", PATHS)
def test_an_ensemble_evaluates_as_its_members_do(name):
    members = [evaluating(name) for _ in range(3)]
    for seed, member in enumerate(members):
        randomize(member, seed)
        member.train()(*make_inputs(member, *SHAPE, seed=10 + seed))
        member.eval()
    state = stack_module_state(members)
    base = copy.deepcopy(members[0]).to("meta")
    inputs = make_inputs(members[0], *SHAPE)
    out = vmap(lambda *state: functional_call(base, state, inputs))(*state)
    torch.testing.assert_close(out, torch.stack([member(*inputs) for member in members]), **EXACT)


@pytest.mark.parametrize("name", PATHS)
def test_statistics_that_are_handed_over_are_updated(name):
    layer = make_layer(name, momentum=0.5)
    x, *labels = make_inputs(layer, *SHAPE)
    buffers = {key: buffer.clone() for key, buffer in layer.named_buffers()}

    def loss(x, buffers):
        return (functional_call(layer, buffers, (x, *labels)) ** 3).sum(), buffers

    gradient, buffers = grad(loss, has_aux=True)(x, buffers)
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad((layer(leaf, *labels) ** 3).sum(), leaf)
    torch.testing.assert_close(gradient, expected, **EXACT)
    torch.testing.assert_close(buffers, dict(layer.named_buffers()), **EXACT)


@pytest.mark.parametrize("name", WHITENED_PATHS)
def test_statistics_that_are_not_handed_over_are_an_error_that_says_what_to_do(name):
    layer = make_layer(name)
    x, *labels = make_inputs(layer, *SHAPE)
    with pytest.raises(RuntimeError, match=r"can only update running statistics .* eval\(\), .*functional_call"):
        grad(lambda x: layer(x, *labels).sum())(x)


def test_a_compiled_batch_of_batches_may_have_any_strides():
    layer = training("WC")
    x = torch.randn(3, 5, 2, 2, CHANNELS, dtype=torch.float64).permute(0, 1, 4, 2, 3)
    expected = torch.stack([layer(batch) for batch in x])
    torch.testing.assert_close(torch.compile(vmap(layer), backend="aot_eager")(x), expected, **EXACT)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not:UserWarning")  # PyTorch, of itself
@pytest.mark.parametrize("name", ["WC", *(pytest.param(name, marks=pytest.mark.slow) for name in ("WzcaC", "cBN"))])
def test_compiled_derivatives_agree(name):
    function, x = as_function(training(name), *SHAPE)
    tangent = torch.ones_like(x) * x

    def both(x):
        return jvp(function, (x,), (tangent,))[1], grad(lambda x: (function(x) ** 3).sum())(x)

    torch.testing.assert_close(torch.compile(both, backend="aot_eager")(x), both(x), **EXACT)


def test_statistics_shared_between_processes_refuse_a_forward_derivative():
    from wcgan.functional.normalize import whiten_color

    x = torch.randn(5, CHANNELS)
    with pytest.raises(NotImplementedError, match="sync=False"):
        jvp(lambda x: whiten_color(x, process_group="some")[0], (x,), (x,))
