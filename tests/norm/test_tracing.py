"""torch.fx and TorchScript: a layer is one node of a graph; what cannot be done is said in one sentence."""

import pytest
import torch
from tests.norm.cases import CHANNELS, CONDITIONAL, EXACT, PATHS, make_labels, make_layer
from torch import fx, nn

import wcgan

TORCHSCRIPT = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


class Network(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 1, dtype=torch.float64)
        self.norm = make_layer(name, momentum=0.5)
        self.conditional = name in CONDITIONAL

    def forward(self, x, labels):
        x = self.conv(x)
        return (self.norm(x, labels) if self.conditional else self.norm(x)).relu()


def plain(network):
    return network


def folded(network):
    return wcgan.fold(network)


def folded_by_themselves(network):
    return wcgan.fold(network, neighbours=False)


KINDS = pytest.mark.parametrize("kind", [plain, folded, folded_by_themselves], ids=lambda kind: kind.__name__)


def make_network(name, kind):
    torch.manual_seed(0)
    x, labels = torch.randn(5, 3, 3, 2, dtype=torch.float64), make_labels(5)
    network = Network(name)
    network(x, labels)
    return kind(network.eval()), (x, labels)


@KINDS
@pytest.mark.parametrize("name", PATHS)
def test_a_layer_is_one_node_for_torch_fx(name, kind):
    network, inputs = make_network(name, kind)
    graph = fx.symbolic_trace(network)
    called = [node.target for node in graph.graph.nodes if node.op == "call_module"]
    assert called == ["conv", "norm"] or kind is folded
    torch.testing.assert_close(graph(*inputs), network(*inputs), **EXACT)


@pytest.mark.parametrize("name", PATHS)
def test_a_traced_network_trains_as_the_network_does(name):
    network, inputs = make_network(name, plain)
    graph = fx.symbolic_trace(network.train())
    graph(*inputs)
    assert graph.norm is network.norm
    torch.testing.assert_close(graph(*inputs), network(*inputs), **EXACT)


@pytest.mark.parametrize("name", ["WC", "cWC"])
@pytest.mark.parametrize("kind", [plain, wcgan.fold], ids=["layer", "map"])
def test_a_layer_by_itself_is_refused_by_torch_fx(name, kind):
    with pytest.raises(TypeError, match="by itself: trace a network"):
        fx.symbolic_trace(kind(make_layer(name)))


@TORCHSCRIPT
@pytest.mark.parametrize("kind", [plain, folded_by_themselves], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_torchscript_is_refused_with_what_to_do_instead(name, kind):
    network, _ = make_network(name, kind)
    with pytest.raises(NotImplementedError, match=r"TorchScript cannot compile .*: use torch.export"):
        torch.jit.script(network)


@TORCHSCRIPT
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # shapes are constants of the trace
@KINDS
@pytest.mark.parametrize("name", PATHS)
def test_a_network_in_evaluation_can_be_traced_by_torchscript(name, kind):
    network, inputs = make_network(name, kind)
    torch.testing.assert_close(torch.jit.trace(network, inputs)(*inputs), network(*inputs), **EXACT)
