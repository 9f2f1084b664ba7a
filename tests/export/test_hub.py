"""A model hub's folder: weights, config, samples and a card, which loads with no network."""

import json
import subprocess
import sys

import pytest
import torch
from PIL import Image
from tests.train.cases import tiny_config

from wcgan.export import export_run
from wcgan.runs.config import write_config
from wcgan.runs.folder import Run
from wcgan.runs.sampler import load_generator

huggingface_hub = pytest.importorskip("huggingface_hub")
from wcgan.export.hub import PretrainedGenerator  # noqa: E402


@pytest.fixture(scope="module")
def folder(conditional_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub") / "out"
    export_run(conditional_run.folder, "hub", folder)
    return folder


@pytest.fixture
def inputs():
    noise = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    return noise, torch.tensor([0, 1, 2, 0])


def test_it_holds_weights_config_samples_and_a_card(folder):
    names = ["README.md", "config.json", "export.json", "model.safetensors", "samples.png"]
    assert sorted(p.name for p in folder.iterdir()) == names


def test_it_loads_from_the_folder_and_makes_the_same_images(conditional_run, folder, inputs):
    generator = PretrainedGenerator.from_pretrained(folder)
    network = load_generator(conditional_run.folder).network
    assert generator.config == network.config
    assert not generator.training
    assert torch.equal(generator(*inputs), network(*inputs))


@pytest.fixture(scope="module")
def printed(folder):
    """What a process prints that may not use the network, loads the folder, and then runs the code on the card."""
    code = (
        "import socket, sys\n"
        "def refuse(*args): raise OSError('no network')\n"
        "socket.socket.connect = refuse\n"
        "from wcgan.export.hub import PretrainedGenerator\n"
        "print(PretrainedGenerator.from_pretrained(sys.argv[1]).config.normalization)\n"
    )
    card = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    code += card.replace("FOLDER OR REPOSITORY", str(folder)) + "\nprint(tuple(images.shape))"
    result = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    return result.stdout.splitlines()


def test_it_loads_in_a_process_that_may_not_use_the_network(printed):
    assert "cWC" in printed[:-1]


def test_saved_again_it_loads_again(folder, tmp_path, inputs):
    generator = PretrainedGenerator.from_pretrained(folder)
    generator.save_pretrained(tmp_path / "again")
    assert torch.equal(PretrainedGenerator.from_pretrained(tmp_path / "again")(*inputs), generator(*inputs))
    assert torch.equal(load_generator(tmp_path / "again", device="cpu").network(*inputs), generator(*inputs))


def test_a_missing_tensor_is_an_error(folder, tmp_path):
    from safetensors.torch import load_file, save_file

    PretrainedGenerator.from_pretrained(folder).save_pretrained(tmp_path / "cut")
    tensors = load_file(tmp_path / "cut" / "model.safetensors")
    tensors.pop("conv.weight")
    save_file(tensors, tmp_path / "cut" / "model.safetensors")
    with pytest.raises(RuntimeError, match=r"conv\.weight"):
        PretrainedGenerator.from_pretrained(tmp_path / "cut")


def test_the_card_has_what_a_reader_needs(folder):
    card = huggingface_hub.ModelCard.load(folder / "README.md")
    assert card.data.license == "mit"
    assert card.data.library_name == "wcgan"
    assert "cWC" in card.data.tags
    for part in (
        "![Samples](samples.png)",
        "trained for 6 iterations",
        "## Use",
        "## Scores",
        "## Config",
        "## Citation",
    ):
        assert part in card.text
    assert "| FID(classifier) | 1.25 |" in card.text
    assert "siarohin2019whitening" in card.text
    assert "## Licence\n\nMIT" in card.text
    assert "1. b" in card.text


def test_the_code_on_the_card_runs(printed):
    assert printed[-1] == "(16, 1, 8, 8)"


def test_the_samples_are_a_class_a_row(folder):
    with Image.open(folder / "samples.png") as picture:
        assert picture.width / picture.height == pytest.approx(10 / 3, rel=0.1)


def evaluated(tmp_path, *evaluations):
    from wcgan.export.hub import run_to_card
    from wcgan.nets import build_generator
    from wcgan.runs.sampler import Sampler

    config = tiny_config("WC", "plain")
    write_config(config, tmp_path / "config.yaml")
    run = Run(tmp_path)
    for scores in evaluations:
        run.record("evaluation", 6, **scores)
    return run_to_card(run, Sampler(build_generator(config.generator), iteration=6))


def test_figures_come_with_their_protocol(tmp_path):
    reference = {"images": 9, "of": 9, "dataset": "cats", "split": "train"}
    protocol = {"name": "all", "reference": reference, "generated": 8, "seed": 1}
    card = evaluated(tmp_path, {"FID": 12.5, "protocol": protocol, "seconds": 3.2})
    assert "| FID | 12.50 | 8 against 9 | 1 |" in card
    assert "protocol: all" in card


def test_figures_that_were_measured_one_by_one_all_have_their_protocol(tmp_path):
    reference = {"images": 9, "of": 9, "dataset": "cats", "split": "train"}
    sets = {"name": "paper-10k", "reference": reference, "splits": 10, "scored_by_IS": 50_000}
    fid = {"name": "paper-5k", "reference": reference, "generated": 5_000}
    figures = [{"IS": 7.0, "protocol": sets}, {"FID": 9.0, "protocol": fid}, {"FID": 8.0, "protocol": fid}]
    card = evaluated(tmp_path, *figures)
    assert card.index("| IS | 7 |") < card.index("protocol: paper-10k") < card.index("| FID | 8 |")
    assert "protocol: paper-5k" in card
    assert "| FID | 9" not in card


def test_a_generator_that_was_not_evaluated_has_no_figures(tmp_path):
    assert "This checkpoint was not evaluated." in evaluated(tmp_path)


def test_the_config_is_plain_json_with_the_names_of_the_classes(folder, tmp_path):
    values = json.loads((folder / "config.json").read_text())
    assert (values["widths"], values["class_names"]) == ([4], ["a", "b", "c"])
    generator = PretrainedGenerator.from_pretrained(folder)
    assert generator.class_names == ("a", "b", "c")
    generator.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text()) == values


def test_it_samples_as_the_run_does(conditional_run, folder):
    drawn = PretrainedGenerator.from_pretrained(folder).sample(5, classes=2, seed=3)
    assert torch.equal(drawn, load_generator(conditional_run.folder).sample(5, classes=2, seed=3))
