"""Folded models under torch.compile: fewer kernels than as written, the same images, and no trace of it in exports."""

import operator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import pytest
import torch
from tests.norm.cases import CHANNELS, folded_maps, make_batch, make_layer
from tests.norm.test_fold_generators import BLOCKS, inputs, trained_generator
from torch import nn
from torch._inductor.utils import run_and_get_code

import wcgan
from wcgan.nets.blocks import add_upsampled

ROUNDING = {"rtol": 0, "atol": 1e-12}
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
CHANGED = ("wcgan.nets.blocks", "wcgan.nets.gan", "wcgan.norm.fold.maps")


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(params=["as it is", "2.11"])
def release(request, monkeypatch):
    """PyTorch up to 2.11 takes every compiled program for an exported one."""
    if request.param == "2.11":
        monkeypatch.setattr(torch.compiler, "is_exporting", lambda: torch.compiler.is_compiling())


@contextmanager
def as_written():
    """Compiles what eager code computes."""
    with ExitStack() as stack:
        for module in CHANGED:
            stack.enter_context(patch(f"{module}.is_compiled_inference", lambda: False))
        yield


def folded_layer(name="WC", dim=2):
    layer = make_layer(name, dim=dim, momentum=0.5)
    layer(make_batch(9, CHANNELS, *[2] * dim))
    return wcgan.fold(layer)


def folded_generator(name="WC", memory_format=torch.channels_last, **fields):
    return wcgan.fold(trained_generator(name, **fields)).to(memory_format=memory_format)


def last(x):
    """The channels of a position lie side by side."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def compiled_nodes(model, *args):
    """The nodes of the graph that a compiler is given, and what the graph returns."""
    nodes = []

    def keep(graph, _):
        nodes.extend(graph.graph.nodes)
        return graph.forward

    out = torch.compile(model, backend=keep, fullgraph=True)(*args)
    return nodes, out


def count(nodes, target):
    return sum(node.target == target for node in nodes)


# A map that stays, and its ReLU


@pytest.mark.parametrize("name", ["WC", "DBN", "BN"])
@pytest.mark.parametrize("shape", [(5, CHANNELS), (5, CHANNELS, 3), (5, CHANNELS, 3, 2), (0, CHANNELS, 3, 2)], ids=str)
@torch.no_grad()
def test_a_compiled_rectified_map_is_the_map_and_a_relu(name, shape):
    folded = folded_layer(name, dim=2 if len(shape) == 4 else 1)
    compiled = torch.compile(folded, backend="aot_eager", fullgraph=True)
    for x in (make_batch(*shape), last(make_batch(*shape))):
        for labels in (None, True):
            found = compiled(x, labels, relu=True)
            torch.testing.assert_close(found, folded(x).relu(), **ROUNDING)
            assert found.stride() == folded(x).stride()


@torch.no_grad()
def test_a_compiled_rectified_map_is_one_product(release):
    folded, x = folded_layer(), last(make_batch(5, CHANNELS, 3, 2))
    nodes, out = compiled_nodes(folded, x, None, True)
    assert count(nodes, torch._addmm_activation) == 1
    assert count(nodes, "relu") == 0
    torch.testing.assert_close(out, folded(x).relu(), **ROUNDING)


def test_a_compiled_rectified_map_passes_gradients_to_its_input():
    folded, x = folded_layer(), last(make_batch(5, CHANNELS, 3, 2)).requires_grad_()
    compiled = torch.compile(folded, backend="aot_eager", fullgraph=True)
    outputs = compiled(x, relu=True), folded(x).relu()
    found, expected = (torch.autograd.grad(out.square().sum(), x) for out in outputs)
    torch.testing.assert_close(found, expected, **ROUNDING)


@torch.no_grad()
def test_a_compiled_rectified_map_is_not_rounded_by_autocast():
    folded, x = folded_layer().float(), last(make_batch(5, CHANNELS, 3, 2)).float()
    compiled = torch.compile(folded, backend="aot_eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        found = compiled(x, relu=True)
    torch.testing.assert_close(found, folded(x).relu(), rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_a_compiled_rectified_map_runs_under_vmap():
    folded, x = folded_layer(), torch.stack([last(make_batch(5, CHANNELS, 3, 2, seed=seed)) for seed in range(2)])
    compiled = torch.compile(torch.vmap(lambda sample: folded(sample, relu=True)), backend="aot_eager")
    torch.testing.assert_close(compiled(x), torch.stack([folded(sample).relu() for sample in x]), **ROUNDING)


@torch.no_grad()
def test_a_compiled_rectified_map_takes_batches_of_any_size():
    folded = folded_layer()
    compiled = torch.compile(folded, backend="aot_eager", fullgraph=True, dynamic=True)
    for samples in (5, 2, 31):
        x = last(make_batch(samples, CHANNELS, 3, 2))
        torch.testing.assert_close(compiled(x, relu=True), folded(x).relu(), **ROUNDING)


@torch.no_grad()
def test_another_number_of_channels_is_refused_when_compiled():
    compiled = torch.compile(folded_layer(), backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="matrix must be"):
        compiled(last(make_batch(5, CHANNELS + 1, 2, 2)), relu=True)


# Generators


@torch.no_grad()
def test_every_map_of_a_compiled_generator_is_one_product_with_its_relu(release):
    folded = folded_generator()
    nodes, _ = compiled_nodes(folded, *inputs(folded))
    assert count(nodes, torch._addmm_activation) == len(folded_maps(folded)) == 2
    assert count(nodes, "relu") == 3  # of the maps that are in a convolution


@pytest.mark.parametrize("name", ["BN", "WC"])
@torch.no_grad()
def test_sums_of_a_compiled_generator_are_images(name, release):
    """The compiler would write one of six dimensions in their order, not in channels-last."""
    folded = folded_generator(name)
    nodes, _ = compiled_nodes(folded, *inputs(folded))
    sums = [node.meta["example_value"] for node in nodes if node.target is operator.add]
    assert len(sums) == len(folded.blocks)
    assert {value.dim() for value in sums} == {4}
    assert all(value.is_contiguous(memory_format=torch.channels_last) for value in sums)


@pytest.mark.slow
@torch.no_grad()
def test_a_compiled_sum_with_a_shortcut_is_written_once_in_channels_last(release):
    """In its own order first, it would be one more buffer, for the copy that the convolution reads."""
    conv = nn.Conv2d(16, 16, 3, padding=1).to(memory_format=torch.channels_last)
    fine, coarse = (torch.randn(2, 16, s, s).to(memory_format=torch.channels_last) for s in (8, 4))

    def block(fine, coarse):
        x = add_upsampled(fine, coarse)
        return conv(x), conv(x.relu())

    _, (code,) = run_and_get_code(torch.compile(block), fine, coarse)
    assert code.count("= empty_strided_cpu((") == 2  # x and its rectified copy; convolutions allocate their own


def compiled_cases():
    """Quick are two residual networks as they are served: in bfloat16 and channels-last."""
    for block in BLOCKS:
        for dtype in (torch.float32, torch.bfloat16):
            for form in FORMATS:
                quick = dtype == torch.bfloat16 and form == "channels_last" and block in ("up", "attention")
                yield pytest.param(
                    *(block, dtype, form), id=f"{block}-{dtype}-{form}", marks=() if quick else pytest.mark.slow
                )


@pytest.mark.parametrize(("block", "dtype", "form"), [*compiled_cases()])
@torch.no_grad()
def test_compiling_rounds_no_more_than_eager_code_does(block, dtype, form):
    generator = trained_generator("WC", **BLOCKS[block])
    exact = generator(*inputs(generator))
    folded = wcgan.fold(generator).to(dtype).to(memory_format=FORMATS[form])
    compiled = torch.compile(folded, backend="aot_eager", fullgraph=True)
    images = [model(*inputs(generator, dtype)) for model in (folded, compiled)]
    errors = [(found - exact).norm() for found in images]
    assert errors[1] < 1.5 * errors[0]
    assert images[1].stride() == images[0].stride()


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("block", BLOCKS)
@torch.no_grad()
def test_inductor_makes_the_same_images(block, form):
    generator = trained_generator("WC", **BLOCKS[block])
    compiled = torch.compile(wcgan.fold(generator).to(memory_format=FORMATS[form]), fullgraph=True)
    torch.testing.assert_close(compiled(*inputs(generator)), generator(*inputs(generator)), **ROUNDING)


# Export


def operators(program):
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("strict", [False, True], ids=["traced", "strict"])
@torch.no_grad()
def test_exported_generators_are_as_written(strict):
    folded = folded_generator()
    found = torch.export.export(folded, inputs(folded), strict=strict)
    with as_written():
        expected = torch.export.export(folded, inputs(folded), strict=strict)
    assert operators(found) == operators(expected)
    assert "aten.relu.default" in operators(found)
    assert not any("activation" in name for name in operators(found))
