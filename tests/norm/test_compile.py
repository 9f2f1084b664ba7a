"""`torch.compile` without graph breaks and `torch.export`: the same numbers as eager, in training and in evaluation."""

import copy
import itertools

import pytest
import torch
from tests.norm.cases import (
    CHANNELS,
    CONDITIONAL,
    EXACT,
    PATHS,
    assert_unchanged,
    gradients,
    make_inputs,
    make_layer,
    snapshot,
)
from torch import Tensor, nn

import wcgan

# PyTorch 2.6, of its own constants.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node with no underlying:UserWarning"),
    pytest.mark.filterwarnings("ignore:Node .* does not reference an nn.Module:UserWarning"),
]


@pytest.fixture(autouse=True)
def fresh_compiler():
    """No graph of another test counts towards the limit of recompilations."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compare(eager, compiled, layer, seed, **tolerance):
    """One forward and backward pass of both on the same batch: outputs, gradients, parameters and buffers."""
    x, *labels = make_inputs(eager, 5, CHANNELS, 3, 2, seed=seed)
    results = []
    for call, module in ((compiled, layer), (eager, eager)):
        leaf = x.clone().requires_grad_()
        out = call(leaf, *labels)
        results.append((out, gradients(out, leaf, *module.parameters()), snapshot(module)))
    torch.testing.assert_close(*results, **tolerance)


QUICK = ("BN", "WC", "cWC_sa")  # the other paths are compiled in the slow tests


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in PATHS])
def test_a_compiled_layer_trains_and_evaluates_as_the_eager_one(name):
    eager = make_layer(name, momentum=0.3)
    layer = copy.deepcopy(eager)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for seed in range(2):
        compare(eager, compiled, layer, seed, **EXACT)
    eager.eval(), compiled.eval()
    compare(eager, compiled, layer, 7, **EXACT)


@pytest.mark.filterwarnings("ignore:`torch._prims_common.check` is deprecated:FutureWarning")  # PyTorch, of itself
@pytest.mark.parametrize(
    "training", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["training", "evaluation"]
)
@pytest.mark.parametrize("name", [pytest.param("WC", marks=pytest.mark.slow), "cWC"])
def test_inductor_gives_the_same_numbers(name, training):
    eager = make_layer(name, momentum=0.3)
    eager(*make_inputs(eager, 5, CHANNELS, 3, 2))
    layer = copy.deepcopy(eager.train(training))
    compiled = torch.compile(layer, fullgraph=True, backend="inductor")
    compare(eager, compiled, layer, 7, **EXACT)


@pytest.mark.parametrize("name", ["cWC", "cWC_sa"])
def test_a_compiled_layer_has_a_matrix_for_each_class_not_for_each_sample(name):
    layer, shapes = make_layer(name), []

    def keep(graph, _):
        shapes.extend(tuple(v.shape) for n in graph.graph.nodes if isinstance(v := n.meta.get("example_value"), Tensor))
        return graph.forward

    torch.compile(layer, fullgraph=True, backend=keep)(*make_inputs(layer, 7, CHANNELS, 3, 2))
    assert (layer.classes, CHANNELS, CHANNELS) in shapes
    assert (7, CHANNELS, CHANNELS) not in shapes


@pytest.mark.parametrize("name", ["WC", *(pytest.param(name, marks=pytest.mark.slow) for name in ("BN", "cWC_sa"))])
def test_a_compiled_layer_that_alternates_sees_the_latest_statistics(name):
    eager = make_layer(name, momentum=0.5)
    layer = copy.deepcopy(eager)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for seed in range(3):
        eager.train(), compiled.train()
        compare(eager, compiled, layer, seed, **EXACT)
        eager.eval(), compiled.eval()
        compare(eager, compiled, layer, seed + 10, **EXACT)


def test_a_state_loaded_into_a_compiled_layer_in_evaluation_is_used():
    source = make_layer("WC", momentum=0.5)
    source(*make_inputs(source, 5, CHANNELS, 3, 2, seed=3))
    layer = make_layer("WC").eval()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    compiled(*make_inputs(layer, 5, CHANNELS, 3, 2))
    layer.load_state_dict(source.state_dict())
    compare(source.eval(), compiled, layer, 0, **EXACT)


def test_statistics_reset_in_a_compiled_layer_in_evaluation_are_used():
    layer = make_layer("WC", momentum=0.5)
    layer(*make_inputs(layer, 5, CHANNELS, 3, 2, seed=3))
    compiled = torch.compile(layer.eval(), fullgraph=True, backend="aot_eager")
    compiled(*make_inputs(layer, 5, CHANNELS, 3, 2))
    layer.reset_running_stats()
    compare(make_layer("WC").eval(), compiled, layer, 0, **EXACT)


def test_a_layer_cast_to_float64_after_evaluation_is_as_exact_compiled_as_eager():
    layer = make_layer("WC", dtype=torch.float32, momentum=1.0)
    layer(*make_inputs(layer, 5, CHANNELS, 3, 2, seed=3, dtype=torch.float32))
    layer.eval().double()
    eager = copy.deepcopy(layer)
    compare(eager, torch.compile(layer, fullgraph=True, backend="aot_eager"), layer, 0, **EXACT)


def test_batches_of_another_size_are_compiled_too():
    eager = make_layer("cWC", classes=6)
    layer = copy.deepcopy(eager)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for samples in (5, 8, 3):  # more classes than samples, and fewer
        inputs = make_inputs(eager, samples, CHANNELS, 3, 2)
        torch.testing.assert_close(compiled(*inputs), eager(*inputs), **EXACT)


def test_a_label_out_of_range_is_refused_when_compiled_and_nothing_changes():
    layer = make_layer("cWC")
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x, labels = make_inputs(layer, 5, CHANNELS, 3, 2)
    compiled(x, labels)
    before = snapshot(layer)
    labels[2] = 9
    with pytest.raises(ValueError, match="label 9 is out of range"):
        compiled(x, labels)
    assert_unchanged(layer, before)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_batch_that_is_not_finite_is_counted_and_nothing_else_when_compiled(momentum):
    layer = make_layer("WC", momentum=momentum)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    (x,) = make_inputs(layer, 5, CHANNELS, 3, 2)
    for count in (1, 2):  # the first of all batches is one of them
        before = snapshot(layer)
        compiled(torch.full_like(x, torch.nan))
        assert layer.num_nonfinite == count
        layer.num_nonfinite.fill_(count - 1)
        assert_unchanged(layer, before)
        layer.num_nonfinite.fill_(count)
        compiled(x)
    assert layer.num_batches_tracked == 2


def test_a_batch_is_counted_as_retried_once_however_many_of_its_groups_were():
    layer = make_layer("WC", groups=2, eps=0.0)
    eager = copy.deepcopy(layer)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    (x,) = make_inputs(layer, 5, CHANNELS, 3, 2)
    for constant, count in ((1, 1), (2, 2), (0, 2)):  # in so many groups a channel never varies
        batch = x.clone()
        batch[:, [0, CHANNELS - 1][:constant]] = 3.0
        compiled(batch), eager(batch)
        assert layer.num_retried == eager.num_retried == count


@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_a_folded_model_compiles(name):
    layer = make_layer(name, momentum=0.5)
    layer(*make_inputs(layer, 5, CHANNELS, 3, 2))
    folded = wcgan.fold(layer)
    inputs = make_inputs(layer, 5, CHANNELS, 3, 2, seed=4)
    compiled = torch.compile(folded, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*inputs), folded(*inputs), **EXACT)


# Export


def operators(program):
    return {str(node.target) for node in program.graph.nodes if node.op == "call_function"}


@pytest.mark.parametrize("options", [{}, {"strict": False}, {"strict": True}], ids=["default", "traced", "strict"])
@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_an_exported_layer_evaluates_as_the_eager_one(name, options):
    layer = make_layer(name, momentum=0.5)
    layer(*make_inputs(layer, 5, CHANNELS, 3, 2))
    inputs = make_inputs(layer, 5, CHANNELS, 3, 2, seed=4)
    program = torch.export.export(layer.eval(), inputs, **options)
    torch.testing.assert_close(program.module()(*inputs), layer(*inputs), **EXACT)


@pytest.mark.parametrize("name", ["WC", "BN", "DBN", "W-only", "C-only"])
def test_an_exported_unconditional_layer_holds_standard_operators_only(name):
    layer = make_layer(name).eval()
    program = torch.export.export(layer, make_inputs(layer, 5, CHANNELS, 3, 2))
    assert operators(program)
    assert all(name.startswith("aten.") for name in operators(program))


@pytest.mark.parametrize("name", ["WC", "BN", "cWC"])
def test_a_layer_without_running_statistics_can_be_exported(name):
    layer = make_layer(name, track_running_stats=False).eval()
    inputs = make_inputs(layer, 5, CHANNELS, 3, 2)
    program = torch.export.export(layer, inputs)
    torch.testing.assert_close(program.module()(*inputs), layer(*inputs), **EXACT)


@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_an_exported_folded_layer_holds_standard_operators_only(name):
    layer = make_layer(name, momentum=0.5)
    layer(*make_inputs(layer, 5, CHANNELS, 3, 2))
    folded, inputs = wcgan.fold(layer), make_inputs(layer, 5, CHANNELS, 3, 2, seed=4)
    program = torch.export.export(folded, inputs)
    assert all(name.startswith("aten.") for name in operators(program))
    torch.testing.assert_close(program.module()(*inputs), folded(*inputs), **EXACT)


def export_cases():
    """Every path as it runs; strictly, which takes twice as long, those that are compiled in the quick tests."""
    for name, training, strict in itertools.product(PATHS, (False, True), (False, True)):
        identity = f"{name}-{'training' if training else 'evaluation'}-{'strict' if strict else 'as it runs'}"
        marks = () if name in QUICK or not strict else pytest.mark.slow
        yield pytest.param(name, training, strict, id=identity, marks=marks)


@pytest.mark.parametrize(("name", "training", "strict"), [*export_cases()])
def test_an_exported_layer_takes_batches_of_any_size(name, training, strict):
    options = {"classes": 7} if name in CONDITIONAL else {}  # more than samples, or fewer
    layer = make_layer(name, track_running_stats=not training, **options).train(training)
    batch = torch.export.Dim("batch")
    shapes = {"x": {0: batch}, **({"labels": {0: batch}} if options else {})}
    example = [tensor.contiguous() for tensor in make_inputs(layer, 5, CHANNELS, 3, 2)]
    program = torch.export.export(layer, tuple(example), dynamic_shapes=shapes, strict=strict)
    for samples in (2, 5, 31):
        inputs = make_inputs(layer, samples, CHANNELS, 3, 2, seed=samples)
        torch.testing.assert_close(program.module()(*inputs), layer(*inputs), **EXACT)


@pytest.mark.parametrize("name", ["cWC", "cWC_sa"])
def test_an_exported_folded_layer_takes_batches_and_labels_of_any_number(name):
    layer = make_layer(name, classes=7)
    layer(*make_inputs(layer, 5, CHANNELS, 3, 2))
    folded, batch = wcgan.fold(layer), torch.export.Dim("batch")
    example = tuple(tensor.contiguous() for tensor in make_inputs(layer, 5, CHANNELS, 3, 2))
    program = torch.export.export(folded, example, dynamic_shapes={"x": {0: batch}, "labels": {0: batch}})
    for samples in (2, 31):
        inputs = make_inputs(layer, samples, CHANNELS, 3, 2, seed=samples)
        torch.testing.assert_close(program.module()(*inputs), folded(*inputs), **EXACT)


def test_an_exported_network_takes_batches_of_any_size():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, CHANNELS, 1), wcgan.WhiteningColoring2d(CHANNELS), nn.ReLU()).eval()
    shapes = {"input": {0: torch.export.Dim("batch", min=2)}}
    program = torch.export.export(model, (torch.randn(4, 3, 5, 5),), dynamic_shapes=shapes)
    x = torch.randn(7, 3, 5, 5)
    torch.testing.assert_close(program.module()(x), model(x))
