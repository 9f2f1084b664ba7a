"""The public list: exactly these names, each documented, each function and layer with an example."""

import inspect

import pytest

import wcgan
import wcgan.nets

DIMENSIONS = ("1d", "2d", "3d")
PUBLIC = [
    *(f"{kind}WhiteningColoring{d}" for kind in ("", "Conditional") for d in DIMENSIONS),
    *(f"Lazy{kind}WhiteningColoring{d}" for kind in ("", "Conditional") for d in DIMENSIONS),
    "VARIANTS",
    "__version__",
    "convert_batchnorm",
    "fit",
    "fold",
    "freeze_statistics",
    "functional",
    "load",
    "models",
    "normalization",
    "update_statistics",
]
FUNCTIONAL = [
    "Statistics",
    "affine",
    "compose",
    "covariance_to_whitening",
    "moments",
    "plain_passes",
    "whiten",
    "whiten_color",
    "whiten_color_parts",
]
NORM = [
    *(name for name in PUBLIC if name not in ("__version__", "fit", "functional", "load", "models")),
    *("FoldedMap", "Variant", "WhiteningLayer", "sub_batches", "use_batch_statistics"),
]
NETS = [
    *("ClassifierConfig", "DiscriminatorConfig", "GeneratorConfig"),
    *("Discriminator", "Generator", "ResidualClassifier", "Scores"),
    *("build_classifier", "build_discriminator", "build_generator"),
]
LAYERS = [name for name in PUBLIC if "Coloring" in name and not name.startswith("Lazy")]
NOT_CALLED = ("VARIANTS", "__version__", "functional")
NEED_A_RUN = ("fit", "load")  # so that their examples cannot run by themselves
CALLED = [
    *(f"wcgan.{name}" for name in PUBLIC if name not in (*NOT_CALLED, *NEED_A_RUN)),
    *(f"wcgan.functional.{name}" for name in FUNCTIONAL if name != "Statistics"),
    "wcgan.norm.sub_batches",
    "wcgan.norm.use_batch_statistics",
    *(f"wcgan.nets.{name}" for name in NETS if name.endswith("Config") or name.startswith("build")),
]
MODULES = {wcgan: PUBLIC, wcgan.functional: FUNCTIONAL, wcgan.norm: NORM, wcgan.nets: NETS}
EACH_MODULE = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)


def resolve(path):
    value = wcgan
    for part in path.split(".")[1:]:
        value = getattr(value, part)
    return value


@EACH_MODULE
def test_the_public_list_is_exactly_this(module):
    assert sorted(module.__all__) == sorted(MODULES[module])


@EACH_MODULE
def test_every_name_on_a_list_is_there(module):
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert len(set(module.__all__)) == len(module.__all__)


@EACH_MODULE
def test_no_class_or_function_is_in_reach_without_being_on_the_list(module):
    found = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isroutine(value))
    ]
    assert sorted(found) == sorted(n for n in module.__all__ if n not in NOT_CALLED)


def test_the_version_is_a_version():
    assert all(part.isdigit() for part in wcgan.__version__.split("."))


@pytest.mark.parametrize("path", [*CALLED, "wcgan", "wcgan.functional", "wcgan.functional.Statistics"])
def test_it_says_in_its_first_line_what_it_is(path):
    text = inspect.getdoc(resolve(path))
    assert text is not None
    assert text.splitlines()[0].rstrip().endswith((".", ":", "`"))


@pytest.mark.parametrize("path", CALLED)
def test_what_a_user_calls_has_an_example_that_runs(path):
    text = inspect.getdoc(resolve(path))
    assert "Example:" in text
    assert ">>> " in text.split("Example:")[1]


@pytest.mark.parametrize("path", CALLED)
def test_every_argument_of_a_function_is_documented(path):
    value = resolve(path)
    if inspect.isclass(value):
        return
    text = inspect.getdoc(value)
    names = [name for name in inspect.signature(value).parameters if name != "options"]
    assert [name for name in names if f"{name}:" not in text] == []


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_its_equation_shapes_an_example_and_the_reference(name):
    text = inspect.getdoc(getattr(wcgan, name))
    sections = [".. math::", "Shape:", "Example:", "Reference:"]
    assert [text.find(section) for section in sections] == sorted(text.find(section) for section in sections)
    assert all(section in text for section in sections)


@pytest.mark.parametrize("name", ["WhiteningColoring2d", "ConditionalWhiteningColoring2d"])
def test_every_argument_of_a_layer_is_documented(name):
    layer = getattr(wcgan, name)
    text = inspect.getdoc(layer)
    assert [arg for arg in inspect.signature(layer).parameters if f"{arg}:" not in text] == []


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_takes_its_options_by_keyword(name):
    positional = [
        parameter.name
        for parameter in inspect.signature(getattr(wcgan, name)).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    classes = ["classes"] if name.startswith("Conditional") else []
    assert positional == ["num_features", *classes, "eps", "momentum"]
