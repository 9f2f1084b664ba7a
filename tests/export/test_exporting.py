"""A run's generator in every format: written whole, read back, and the same images; or a sentence and nothing."""

import json
import os
import sys
from importlib import import_module

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.attack.tally import require_sentence
from torch import Tensor

import wcgan
from wcgan.export import export_run, facts_to_lines, sampler_to_servable, write_program
from wcgan.nets import GeneratorConfig, build_generator
from wcgan.runs.sampler import Sampler, load_generator


def inputs(run, count=7, seed=5):
    sampler = load_generator(run.folder)
    labels = sampler.labels(count, None)
    return (sampler.noise(count, seed),) if labels is None else (sampler.noise(count, seed), labels)


def images(run, *given):
    with torch.no_grad():
        return load_generator(run.folder).network(*given)


def onnx_runner(path):
    pytest.importorskip("onnxruntime")
    from wcgan.export.programs import onnx_runner

    return onnx_runner(path, threads=1)


@pytest.fixture(scope="module")
def onnx_folder(conditional_run, tmp_path_factory):
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("onnx") / "out"
    return folder, export_run(conditional_run.folder, "onnx", folder)


def test_an_onnx_file_makes_the_same_images_in_batches_of_any_size(conditional_run, onnx_folder):
    run = onnx_runner(onnx_folder[0] / "generator.onnx")
    for count in (1, 2, 33):
        given = inputs(conditional_run, count)
        torch.testing.assert_close(run(*given), images(conditional_run, *given), rtol=0, atol=1e-5)


def test_an_onnx_file_names_its_inputs_and_has_standard_operators_only(onnx_folder):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(onnx_folder[0] / "generator.onnx")
    shapes = {i.name: [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    assert shapes == {"noise": ["batch", 6], "labels": ["batch"]}
    assert {node.domain for node in model.graph.node} == {""}
    assert {prop.key: json.loads(prop.value) for prop in model.metadata_props}["class_names"] == ["a", "b", "c"]
    assert model.opset_import[0].version == onnx_folder[1]["opset"] == 20
    assert {node.op_type for node in model.graph.node} == set(onnx_folder[1]["operators"])


def test_facts_stand_in_the_folder_and_say_the_difference_and_the_size(onnx_folder):
    folder, facts = onnx_folder
    assert json.loads((folder / "export.json").read_text()) == facts
    assert facts["bytes"] == {"generator.onnx": (folder / "generator.onnx").stat().st_size}
    assert 0 < facts["largest difference"] < 1e-5
    assert set(facts["versions"]) == {"wcgan", "torch", "onnx", "onnxruntime", "onnxscript"}
    lines = facts_to_lines(facts)
    assert lines[0].startswith("generator.onnx: ")
    assert any(line.startswith("opset 20: ") and "ConvTranspose 1" in line for line in lines)


def test_one_class_takes_noise_alone_and_is_smaller(conditional_run, onnx_folder, tmp_path):
    onnx = pytest.importorskip("onnx")
    facts = export_run(conditional_run.folder, "onnx", tmp_path / "one", label="c")
    (names,) = onnx.load(tmp_path / "one" / "generator.onnx").metadata_props
    assert (facts["label"], json.loads(names.value)) == (2, ["c"])
    noise, _ = inputs(conditional_run)
    found = onnx_runner(tmp_path / "one" / "generator.onnx")(noise)
    torch.testing.assert_close(found, images(conditional_run, noise, torch.full((7,), 2)), rtol=0, atol=1e-5)
    assert facts["inputs"] == ["noise"]
    assert facts["bytes"]["generator.onnx"] < onnx_folder[1]["bytes"]["generator.onnx"]


def test_maps_that_stay_are_convolutions_in_onnx(plain_run, tmp_path):
    facts = export_run(plain_run.folder, "onnx", tmp_path / "out")
    assert facts["operators"]["Conv"] == 4  # the shortcut, the second convolution, the last one, and one map
    assert not {"MatMul", "Expand", "Gather"} & set(facts["operators"])


def test_a_program_of_torch_export_makes_the_same_images(conditional_run, tmp_path):
    facts = export_run(conditional_run.folder, "torch-export", tmp_path / "out")
    module = torch.export.load(tmp_path / "out" / "generator.pt2").module()
    for count in (1, 5):
        given = inputs(conditional_run, count)
        torch.testing.assert_close(module(*given), images(conditional_run, *given), rtol=0, atol=1e-5)
    assert "conv_transpose2d" in facts["operators"]
    assert not [name for name in facts["operators"] if "cholesky" in name or "linalg" in name]


def test_a_dictionary_of_matrices_is_mixed_in_the_program(tmp_path):
    torch.manual_seed(0)
    config = GeneratorConfig(widths=(4,), noise=6, normalization="cWC_sa", classes=9)
    sampler = Sampler(build_generator(config))
    sampler.network(sampler.noise(20, 0), sampler.labels(20, None))
    sampler.network.eval()
    facts = write_program(sampler_to_servable(sampler), tmp_path / "soft.pt2", lambda what, done, total: None)
    assert 0 < facts["largest difference"] < 1e-5
    shapes = {tuple(tensor.shape) for tensor in torch.export.load(tmp_path / "soft.pt2").state_dict.values()}
    assert (3, 1, 4, 4) in shapes
    assert (9, 1, 4, 4) not in shapes


@pytest.mark.parametrize("form", [pytest.param("onnx", marks=pytest.mark.slow), "torch-export", "safetensors", "hub"])
def test_files_are_as_readable_as_the_umask_allows(conditional_run, tmp_path, form):
    pytest.importorskip("onnxruntime")
    before = os.umask(0o027)
    try:
        export_run(conditional_run.folder, form, tmp_path / "out")
    finally:
        os.umask(before)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (tmp_path / "out").iterdir()}
    assert modes == dict.fromkeys(modes, oct(0o640))


@pytest.mark.slow
def test_a_compiled_package_makes_the_same_images(plain_run, tmp_path):
    export_run(plain_run.folder, "aoti", tmp_path / "out")
    module = torch._inductor.aoti_load_package(str(tmp_path / "out" / "generator.aoti.pt2"))
    (noise,) = inputs(plain_run)
    torch.testing.assert_close(module(noise), images(plain_run, noise), rtol=0, atol=1e-5)


def test_weights_in_safetensors_give_the_same_generator(conditional_run, tmp_path):
    facts = export_run(conditional_run.folder, "safetensors", tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["config.json", "export.json", "model.safetensors"]
    assert facts["largest difference"] == 0
    assert facts["versions"] == {"wcgan": wcgan.__version__, "torch": torch.__version__}
    network = load_generator(tmp_path / "out", device="cpu").network
    assert not network.training
    assert torch.equal(network(*inputs(conditional_run)), images(conditional_run, *inputs(conditional_run)))


def test_an_iteration_can_be_chosen(conditional_run, tmp_path):
    facts = export_run(conditional_run.folder, "safetensors", tmp_path / "out", checkpoint="4")
    assert facts["iteration"] == 4
    expected = load_generator(conditional_run.folder, "4").network.state_dict()
    assert all(
        torch.equal(value, expected[k])
        for k, value in load_generator(tmp_path / "out", device="cpu").network.state_dict().items()
    )


# What is refused, and nothing is left behind


def test_an_unknown_format_is_refused(conditional_run, tmp_path):
    with pytest.raises(ValueError, match="unknown format 'tflite'; choose one of onnx, torch-export"):
        export_run(conditional_run.folder, "tflite", tmp_path / "out")


def test_a_folder_that_holds_something_is_refused_and_stays(conditional_run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="out exists already"):
        export_run(conditional_run.folder, "safetensors", tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_an_empty_folder_is_filled(conditional_run, tmp_path):
    (tmp_path / "out").mkdir()
    export_run(conditional_run.folder, "safetensors", tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"]


def test_a_label_is_refused_where_the_generator_is_kept_as_trained(conditional_run, tmp_path):
    with pytest.raises(ValueError, match=r"safetensors keeps the generator as it was trained.*leave out the class 1"):
        export_run(conditional_run.folder, "safetensors", tmp_path / "out", label=1)


def test_a_label_is_refused_for_a_generator_without_classes(plain_run, tmp_path):
    for label in (1, "cat"):
        with pytest.raises(ValueError, match=r"this generator \(WC\) has no classes: leave them out"):
            export_run(plain_run.folder, "onnx", tmp_path / "out", label=label)
    assert os.listdir(tmp_path) == []


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"is not the folder of a run: it has no config\.yaml"):
        export_run(tmp_path, "onnx", tmp_path / "out")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_folder_without_one_of_its_files_is_refused(plain_run, tmp_path, name):
    export_run(plain_run.folder, "safetensors", tmp_path / "out")
    (tmp_path / "out" / name).unlink()
    with pytest.raises(ValueError, match=f"has no generator to load: there is no {name}"):
        load_generator(tmp_path / "out")


@pytest.mark.parametrize("change", [None, Tensor.bool, Tensor.flatten, lambda weight: weight + 1j])
def test_weights_that_do_not_fit_their_config_are_refused(plain_run, tmp_path, change):
    export_run(plain_run.folder, "safetensors", tmp_path / "out")
    file = tmp_path / "out" / "model.safetensors"
    tensors = load_file(file)
    weight = tensors.pop("conv.weight")
    if change is not None:
        tensors["conv.weight"] = change(weight)
    save_file(tensors, file)
    with pytest.raises(ValueError, match=r"model\.safetensors does not fit config\.json"):
        load_generator(tmp_path / "out")


@pytest.mark.parametrize("kept", [0, 7, -1])
def test_weights_that_are_cut_short_are_called_damaged(plain_run, tmp_path, kept):
    export_run(plain_run.folder, "safetensors", tmp_path / "out")
    file = tmp_path / "out" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged: export or download it again") as refusal:
        load_generator(tmp_path / "out")
    require_sentence(refusal.value)


HOSTILE_CONFIGS = {
    "no mapping": lambda values: [["noise", 6]],
    "a field of two lines": lambda values: values | {"a\nb": 1},
    "a long field": lambda values: values | {"a" * 5000: 1},
    "a list for a text": lambda values: values | {"kind": ["resnet"]},
    "a list for an option": lambda values: values | {"options": {"whitening": []}},
    "names that are none": lambda values: values | {"class_names": [3]},
    "a name too few": lambda values: values | {"normalization": "cWC", "classes": 3, "class_names": ["a", "b"]},
}


@pytest.mark.parametrize("kind", HOSTILE_CONFIGS)
def test_a_config_that_describes_no_generator_is_refused_in_one_sentence(plain_run, tmp_path, kind):
    export_run(plain_run.folder, "safetensors", tmp_path / "out")
    file = tmp_path / "out" / "config.json"
    file.write_text(json.dumps(HOSTILE_CONFIGS[kind](json.loads(file.read_text()))))
    with pytest.raises(ValueError, match=r"config\.json describes no generator: ") as refusal:
        load_generator(tmp_path / "out")
    require_sentence(refusal.value)


@pytest.mark.parametrize(
    ("form", "package"), [("onnx", "onnxruntime"), ("onnx", "onnxscript"), ("hub", "huggingface_hub")]
)
def test_a_missing_package_is_named_with_how_to_get_it(plain_run, tmp_path, monkeypatch, form, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "wcgan.export.hub", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'wcgan\[export\]'"):
        export_run(plain_run.folder, form, tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_the_other_formats_need_no_packages_of_the_hub(plain_run, tmp_path, monkeypatch):
    for name in ("huggingface_hub", "onnx", "onnxruntime", "onnxscript"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in sys.modules if f"{name}.".startswith("wcgan.export.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(wcgan, "export", None)  # for its modules to be imported anew, and put back at the end
    import_module("wcgan.export").export_run(plain_run.folder, "safetensors", tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").is_file()
