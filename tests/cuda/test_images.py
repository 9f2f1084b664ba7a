"""The convolutions at an image by kernels, on a GPU: against float64, in compiled networks, and in a CUDA graph."""

import copy

import pytest
import torch
from tests.kernels.image_cases import check_expand, check_outer, check_reduce, make_case

from wcgan.functional import _images
from wcgan.nets import DiscriminatorConfig, GeneratorConfig, build_discriminator, build_generator
from wcgan.nets.blocks import FromImageConv2d, ToImageConv2d

images = pytest.importorskip("wcgan.kernels.images", reason="Triton is not installed")

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # the compiler's own, which differ from release to release
]
DEVICE = "cuda"
HALVES = [torch.bfloat16, torch.float16]
SHAPES = [
    *(((1, 1, 1, 1), 32), ((2, 3, 5, 7), 48), ((3, 4, 33, 31), 272), ((5, 2, 8, 8), 64), ((7, 3, 1, 100), 128)),
    *(((128, 3, 32, 32), 256), ((192, 3, 32, 32), 256), ((64, 1, 28, 28), 512), ((4, 3, 128, 128), 1024)),
]


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("on", [True, False], ids=["bias, ReLU, mask", "none"])
@pytest.mark.parametrize(("shape", "d"), SHAPES, ids=str)
def test_products_equal_those_in_float64(shape, d, on, dtype):
    case = make_case(shape, d, dtype, biased=on, device=DEVICE)
    check_expand(images, case, relu=on, wide=on)
    check_reduce(images, case, masked=on, dtype=torch.float32 if on else dtype)
    check_outer(images, case, masked=on)


def test_images_with_any_strides():
    case = make_case((16, 3, 20, 24), 256, torch.bfloat16, device=DEVICE)
    wide = torch.zeros(16, 3, 22, 27, device=DEVICE, dtype=torch.bfloat16)[:, :, 1:21, 1:25]
    for image in (
        wide.copy_(case.image),
        case.image.to(memory_format=torch.channels_last),
        case.image[:, :1].expand_as(wide),
    ):
        check_expand(images, case._replace(image=image), relu=True)
        check_outer(images, case._replace(image=image), masked=True)


def test_features_of_more_than_2_to_the_31_numbers():
    """Of 2,100 images of 32 x 32 with 1,024 features, the last ones are compared."""
    if torch.cuda.get_device_properties(0).total_memory < 16e9:
        pytest.skip("needs 16 GB")
    image = torch.randn(2100, 3, 32, 32, device=DEVICE, dtype=torch.bfloat16)
    case = make_case((2, 3, 32, 32), 1024, torch.bfloat16, device=DEVICE)
    features = images.expand(image, case.matrix, True)
    assert features.numel() > 2**31
    assert torch.equal(features[-2:], images.expand(image[-2:], case.matrix, True))
    back = images.reduce(features, case.matrix, features, None, 3, torch.float32)
    last = features[-2:].contiguous(memory_format=torch.channels_last)
    assert torch.equal(back[-2:], images.reduce(last, case.matrix, last, None, 3, torch.float32))
    head, tail = images.outer(image[:-2], features[:-2], None, 32), images.outer(image[-2:], last, None, 32)
    whole = images.outer(image, features, None, 32)
    assert (whole - head - tail).norm() <= 1e-4 * whole.norm()


@pytest.mark.parametrize("shape", [(128, 3, 32, 32), (3, 3, 33, 31)], ids=str)
def test_thirty_calls_give_the_same_bits_with_the_cache_emptied_in_between(shape):
    case = make_case(shape, 256, torch.bfloat16, device=DEVICE)
    other = torch.empty(2**28, device=DEVICE)

    def run():
        other.zero_()
        return [
            images.expand(case.image, case.matrix, True),
            images.reduce(case.grad, case.matrix, case.output, None, 3, torch.float32),
            images.outer(case.image, case.grad, case.output, 32),
        ]

    first = run()
    for _ in range(30):
        assert all(torch.equal(one, other) for one, other in zip(run(), first, strict=True))


# Compiled networks


def build(kind):
    """A network with weights as in training and biases that are not 0, and its input."""
    if kind == "generator":
        network = build_generator(GeneratorConfig(widths=(64, 64), normalization="WC"))
        inputs = torch.randn(32, 128, device=DEVICE)
    else:
        network = build_discriminator(DiscriminatorConfig(widths=(64, 64), downsample=1, resolution=16))
        inputs = torch.randn(32, 3, 16, 16, device=DEVICE)
    with torch.no_grad():
        for bias in (parameter for parameter in network.parameters() if parameter.dim() == 1):
            bias.add_(torch.randn_like(bias) / 10)
    return network.to(DEVICE).to(memory_format=torch.channels_last), inputs


def run(network, x, dtype=torch.bfloat16, parameters=True):
    """Output and gradients, under autocast if the type is not float32."""
    x = x.clone().requires_grad_()
    with torch.autocast(DEVICE, dtype=dtype, enabled=dtype != torch.float32):
        out = network(x)
    out = getattr(out, "realness", out)
    leaves = [x, *(p for p in network.parameters() if p.requires_grad)] if parameters else [x]
    # The graph of an output that is kept holds on to the stream it was computed on, and capture fails on another.
    return [out.detach(), *torch.autograd.grad(out.float().square().sum(), leaves)]


@pytest.fixture
def counted(monkeypatch):
    """How often each kernel is called."""
    calls = dict.fromkeys(("expand", "reduce", "outer"), 0)

    def count(name):
        original = getattr(images, name)

        def call(*args):
            calls[name] += 1
            return original(*args)

        monkeypatch.setattr(images, name, call)

    for name in calls:
        count(name)
    return calls


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", ["generator", "discriminator"])
def test_compiled_players_are_as_exact_as_with_the_librarys_convolutions(kind, dtype, counted, monkeypatch):
    torch._dynamo.reset()
    network, inputs = build(kind)
    for bias in getattr(network, "redundant_biases", list)():
        bias.requires_grad_(False)  # its gradient is all rounding
    twin, reference = copy.deepcopy(network), copy.deepcopy(network)
    exact = run(reference, inputs, torch.float32)
    with monkeypatch.context() as patch:
        patch.setattr(_images, "_has_kernels", lambda device: False)
        twin.compile(dynamic=False)
        plain = run(twin, inputs, dtype)
    assert not any(counted.values())
    torch._dynamo.reset()
    network.compile(dynamic=False)
    ours = run(network, inputs, dtype)
    assert counted == {"expand": 1, "reduce": 1, "outer": 1}
    for one, other, wanted in zip(ours, plain, exact, strict=True):
        assert one.dtype == other.dtype
        assert (one - wanted).norm() <= 3 * (other - wanted).norm() + 2e-3 * wanted.norm()


@pytest.mark.parametrize("kind", ["generator", "discriminator"])
def test_evaluation_float32_and_eager_code_use_the_library(kind, counted):
    torch._dynamo.reset()
    network, inputs = build(kind)
    run(network, inputs)
    network.compile(dynamic=False)
    run(network, inputs, torch.float32)
    network.eval()
    run(network, inputs)
    assert not any(counted.values())


def test_a_frozen_discriminator_computes_no_gradient_of_its_weights(counted):
    torch._dynamo.reset()
    network, inputs = build("discriminator")
    network.requires_grad_(False)
    network.compile(dynamic=False)
    run(network, inputs, parameters=False)
    assert counted == {"expand": 1, "reduce": 1, "outer": 0}


class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.start, self.end = FromImageConv2d(3, 64), ToImageConv2d(64, 3)

    def forward(self, x):
        return self.end(self.start(x))


def test_a_captured_graph_replays_the_same_bits():
    torch._dynamo.reset()
    network = Both().to(DEVICE).to(memory_format=torch.channels_last)
    network.compile(dynamic=False)
    inputs = torch.randn(8, 3, 17, 19, device=DEVICE)
    expected = [t.clone() for t in run(network, inputs)]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run(network, inputs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(network, inputs)
    for _ in range(3):
        graph.replay()
        assert all(torch.equal(one, other) for one, other in zip(captured, expected, strict=True))
    before = inputs.clone()
    inputs.normal_()
    graph.replay()
    assert not torch.equal(captured[0], expected[0])
    inputs.copy_(before)
    graph.replay()
    assert torch.equal(captured[0], expected[0])


def test_the_operators_keep_pytorchs_rules_with_kernels():
    case = make_case((2, 3, 5, 7), 64, torch.float16, device=DEVICE)
    fakes = ("test_schema", "test_autograd_registration", "test_faketensor")
    leaves = [t.requires_grad_() for t in (case.image, case.matrix.detach())]
    torch.library.opcheck(torch.ops.wcgan.image_to_features.default, (*leaves, True), test_utils=fakes)
    arguments = (case.grad, leaves[1].detach(), case.output, None, 3, torch.float32)
    torch.library.opcheck(torch.ops.wcgan.features_to_image.default, arguments, test_utils=fakes)
    arguments = (case.image.detach(), case.grad, case.output)
    torch.library.opcheck(torch.ops.wcgan.image_and_features.default, arguments, test_utils=fakes)


def test_this_device_has_the_kernels():
    assert _images._has_kernels(torch.device(DEVICE)) == (torch.cuda.get_device_capability() >= (8, 0))
