"""PyTorch's own expectations of a module: entries as in its test suite, and the checks made there."""

import copy
import itertools
import pickle
from functools import partial

import pytest
import torch
from tests.norm.cases import CONDITIONAL, GROUPED, PATHS
from torch import Tensor
from torch.testing import make_tensor

import wcgan

pytest.importorskip("expecttest", reason="PyTorch's test tools need expecttest: pip install expecttest")
from torch.testing._internal.common_modules import FunctionInput, ModuleInfo, ModuleInput
from torch.testing._internal.common_utils import gradcheck, gradgradcheck

torch.backends.__allow_nonbracketed_mutation_flag = True  # which PyTorch's test tools switch off for the whole process

CLASSES = 3


def options_of(name, **options):
    """The arguments of the layer's class that `wcgan.normalization` would use."""
    variant = wcgan.VARIANTS[name]
    options |= {"whitening": variant.whitening, "coloring": variant.coloring}
    if name in GROUPED:
        options["groups"] = 2
    if name in CONDITIONAL:
        options |= {"shared": variant.shared, "dictionary": "auto" if variant.soft else None}
    return options


def module_inputs(module_info, device, dtype, requires_grad, training, names, shape, **kwargs):
    """One `ModuleInput` for each variant, and some with the options that PyTorch tries batch normalisation with."""
    make_input = partial(make_tensor, device=device, dtype=dtype, requires_grad=requires_grad)
    inputs = []
    for name in names:
        cases = {"": {}, "simple_average": {"momentum": None}, "not_tracking_stats": {"track_running_stats": False}}
        for desc, options in cases.items() if name in ("WC", "cWC_sa") else [("", {})]:
            labels = [torch.arange(shape[0], device=device) % CLASSES] if name in CONDITIONAL else []
            classes = [CLASSES] if name in CONDITIONAL else []
            inputs.append(
                ModuleInput(
                    constructor_input=FunctionInput(shape[1], *classes, **options_of(name, **options)),
                    forward_input=FunctionInput(make_input(shape), *labels),
                    desc=f"{name}_{desc}".strip("_"),
                )
            )
    return inputs


def entry(module_cls, names, shape):
    return ModuleInfo(
        module_cls,
        train_and_eval_differ=True,
        module_inputs_func=partial(module_inputs, names=names, shape=shape),
        dtypes=(torch.float64,),
    )


PLAIN = [name for name in PATHS if name not in CONDITIONAL]
LABELLED = [name for name in PATHS if name in CONDITIONAL]
MODULES = [
    entry(wcgan.WhiteningColoring1d, PLAIN, (5, 4)),
    entry(wcgan.WhiteningColoring2d, PLAIN, (3, 4, 2, 2)),
    entry(wcgan.ConditionalWhiteningColoring1d, LABELLED, (5, 4, 2)),
    entry(wcgan.ConditionalWhiteningColoring2d, LABELLED, (3, 4, 2, 2)),
]


def cases(requires_grad=False, training=True):
    """Every entry's module class with each of its inputs."""
    arguments = ("cpu", torch.float64, requires_grad, training)
    return [(info, case) for info in MODULES for case in info.module_inputs_func(info, *arguments)]


ALL = pytest.mark.parametrize(
    ("info", "number"),
    [
        pytest.param(info, number, id=f"{info.module_cls.__name__}-{case.desc}")
        for info in MODULES
        for number, case in enumerate(info.module_inputs_func(info, "cpu", torch.float64, False, True))
    ],
)
BOTH_MODES = pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
QUICK = ("WC", "cWC_sa")  # whose gradients are checked in evaluation and in either class in the quick tests too


def gradient_cases():
    """Every entry in both modes; quick are all that train on images, and the paper's in any other way."""
    for parameters, training in itertools.product(ALL.args[1], (True, False)):
        info, number = parameters.values
        names = [case.desc for case in info.module_inputs_func(info, "cpu", torch.float64, False, True)]
        quick = (training and "2d" in info.module_cls.__name__) or names[number] in QUICK
        identity = f"{parameters.id}-{'training' if training else 'evaluation'}"
        yield pytest.param(info, number, training, id=identity, marks=() if quick else pytest.mark.slow)


def build(info, number, training, requires_grad=False, **factory):
    """A module, with statistics that are not those of the start, and its input."""
    torch.manual_seed(0)
    case = info.module_inputs_func(info, "cpu", torch.float64, requires_grad, training)[number]
    made = case.constructor_input
    module = info.module_cls(*made.args, **made.kwargs, **(factory or {"dtype": torch.float64}))
    if not factory:
        with torch.no_grad():
            module(*case.forward_input.args)
    return module.train(training), case.forward_input.args


@ALL
def test_device_and_type_are_those_asked_for(info, number):
    for factory in ({"device": "cpu", "dtype": torch.float32}, {"device": "meta", "dtype": torch.float64}):
        module, _ = build(info, number, True, **factory)
        tensors = [*module.parameters(), *module.buffers()]
        assert {tensor.device.type for tensor in tensors} <= {factory["device"]}
        assert {tensor.dtype for tensor in tensors if tensor.is_floating_point()} <= {factory["dtype"]}


@BOTH_MODES
@ALL
def test_a_pickled_module_computes_the_same(info, number, training):
    module, args = build(info, number, training)
    twin = pickle.loads(pickle.dumps(module))
    assert torch.equal(twin(*args), module(*args))
    assert repr(twin) == repr(module)


@BOTH_MODES
@ALL
def test_input_that_is_not_contiguous_gives_the_same(info, number, training):
    module, (x, *labels) = build(info, number, training)
    results = []
    for batch in (x, torch.stack([x, x], -1)[..., 0], x.transpose(0, -1).contiguous().transpose(0, -1)):
        leaf, twin = batch.detach(), copy.deepcopy(module)
        leaf.requires_grad_()
        out = twin(leaf, *labels)
        gradients = torch.autograd.grad(out.square().sum(), [leaf, *twin.parameters()])
        results.append([out, *gradients])
    torch.testing.assert_close(results[1], results[0], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(results[2], results[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("info", "number", "training"), [*gradient_cases()])
def test_gradients_and_their_gradients_pass_pytorchs_check(info, number, training):
    module, (x, *labels) = build(info, number, training, requires_grad=True)
    module.momentum = 0.0  # so that a repeated call is the same call

    names, parameters = zip(*module.named_parameters(), strict=True) if list(module.parameters()) else ((), ())

    def call(x: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (x, *labels))

    assert gradcheck(call, (x, *parameters), fast_mode=True, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(call, (x, *parameters), fast_mode=True, check_fwd_over_rev=True)


@ALL
def test_training_and_evaluation_differ_where_there_are_statistics(info, number):
    module, args = build(info, number, True)
    other = [torch.flip(args[0], [1]) * 2, *args[1:]]  # of which the statistics know nothing
    trained, evaluated = copy.deepcopy(module)(*other), module.eval()(*other)
    assert torch.allclose(trained, evaluated) == (not module.track_running_stats)


@BOTH_MODES
@ALL
def test_moving_to_another_type_and_back_changes_nothing(info, number, training):
    module, args = build(info, number, training)
    state = copy.deepcopy(module.state_dict())
    module.float().double()
    torch.testing.assert_close(dict(module.state_dict()), dict(state), rtol=1e-6, atol=1e-6)
    module.load_state_dict(state)
    fresh, _ = build(info, number, training)
    fresh.load_state_dict(state)
    assert torch.equal(module(*args), fresh(*args))


@BOTH_MODES
@ALL
def test_the_memory_format_of_the_input_is_kept(info, number, training):
    module, (x, *labels) = build(info, number, training)
    if x.dim() < 4:
        assert module(x, *labels).is_contiguous()
        return
    last = x.to(memory_format=torch.channels_last)
    out = copy.deepcopy(module)(last, *labels)
    assert out.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(out, module(x, *labels), rtol=1e-10, atol=1e-10)
