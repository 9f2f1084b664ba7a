"""What is no table of runs: the paper's figures of samples, the user study, and the tables of architectures."""

import json
import shutil

import pytest
from PIL import Image
from tests.train.cases import tiny_config, tiny_data, tiny_run

from wcgan.paper.listing import ARCHITECTURE_TABLES, discriminator_to_notation, generator_to_notation
from wcgan.paper.presets import PRESETS, preset
from wcgan.reproduce.measurements import MEASUREMENTS, find_measurement
from wcgan.reproduce.plan import plan_table
from wcgan.train.gan import train

RESNET = "R_128^D-R_128^D-R_128^S-R_128^S-G-D_1"
DCGAN = "C_64^S-C_128^D-C_128^S-C_256^D-C_256^S-C_512^D-C_512^S-F-D_1"
NARROW = "D_2048-P_4-R_128^U-R_128^U-R_128^U-C_3^S"
# The paper's three tables of architectures as they are printed, but for what the comments say.
PRINTED = {
    9: {
        "cifar10/WC GP + ResNet": (NARROW, RESNET),
        "cifar10/WC SN + DCGAN": ("D_8192-P_4-C_512^U-C_256^U-C_128^U-C_3^S", DCGAN),
        "cifar10/WC SN + ResNet": ("D_4096-P_4-R_256^U-R_256^U-R_256^U-C_3^S", RESNET),
        "stl10/WC SN + DCGAN": ("D_18432-P_6-C_512^U-C_256^U-C_128^U-C_3^S", DCGAN),
        "stl10/WC SN + ResNet": ("D_9216-P_6-R_256^U-R_256^U-R_256^U-C_3^S", RESNET),
    },
    10: {
        **{f"{data}/cWC GP + ACGAN": (NARROW, RESNET) for data in ("cifar10", "cifar100")},
        **{
            f"{data}/cWC SN + Proj. Discr.": (NARROW, "R_256^D-R_256^D-R_256^S-R_256^S-G-D_1")
            for data in ("cifar10", "cifar100")
        },
        "tiny-imagenet/cWC SN + Proj. Discr.": (
            "D_2048-P_4-R_128^U-R_128^U-R_128^U-R_128^U-C_3^S",
            "R_64^D-R_128^D-R_256^D-R_512^S-R_1024^S-G-D_1",
        ),
        "imagenet/cWC_sa SN + Proj. Discr.": (
            "D_2048-P_4-R_128^U-R_128^U-R_128^U-R_64^U-R_32^U-C_3^S",  # printed with one R_128^U less
            "R_64^D-R_128^D-R_256^D-R_512^D-R_1024^D-R_1024^S-G-D_1",
        ),
    },
    12: {  # printed with C_3^S
        **{f"{data}/WC": ("D_12544-P_7-R_256^U-R_256^U-C_1^S", RESNET) for data in ("mnist", "fashion-mnist")},
        **{f"{data}/cWC": ("D_6272-P_7-R_128^U-R_128^U-C_1^S", RESNET) for data in ("mnist", "fashion-mnist")},
    },
}


def run(name, out, dry_run=False, settings=()):
    """Makes a measurement -> what it said."""
    said = []
    find_measurement(name).make(out, settings, dry_run, said.append)
    return said


@pytest.mark.parametrize("number", PRINTED)
def test_the_presets_have_the_architectures_that_the_paper_prints(number):
    configs = {name: preset(name) for name in ARCHITECTURE_TABLES[number]}
    assert {
        name: (generator_to_notation(config.generator), discriminator_to_notation(config.discriminator))
        for name, config in configs.items()
    } == PRINTED[number]


@pytest.mark.parametrize("number", PRINTED)
def test_a_table_of_architectures_has_a_row_for_each_preset(number, tmp_path):
    lines = run(f"table{number}", tmp_path)
    cells = [line.strip("| ").replace("`", "").split(" | ") for line in lines if line.startswith("| `")]
    assert {name: (generator, critic) for name, generator, critic in cells} == PRINTED[number]


def test_a_measurement_is_found_by_its_name_and_by_its_place():
    assert find_measurement("Figure 5") is find_measurement("images-cifar10") is MEASUREMENTS["images-cifar10"]
    assert find_measurement("OVERHEAD") is MEASUREMENTS["overhead"]
    assert find_measurement("table3") is None


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder of tables with a tiny run for both panels of figure 5, and for one of figure 7."""
    out = tmp_path_factory.mktemp("out")
    for preset_name, table, variant, head in (
        ("cifar10/WC SN + ResNet", "unconditional", "WC", "plain"),
        ("cifar10/cWC SN + Proj. Discr.", "conditional", "cWC", "projection"),
    ):
        (planned,) = plan_table(table, [preset_name], out=out).runs
        config = tiny_config(variant, head, iterations=2, checkpoint_every=1)
        train(config, tiny_data(), tiny_run(planned.folder, config))
    return out


def test_a_figure_has_a_picture_for_each_panel_with_a_text_that_says_what_it_shows(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "out")
    pictures = [tmp_path / "out" / "figure5" / name for name in ("a.png", "b.png")]
    assert run("figure5", tmp_path / "out") == list(map(str, pictures))
    texts = [picture.with_name(f"{picture.name}.txt").read_text() for picture in pictures]
    assert ["class 0" in text for text in texts] == [False, True]  # WC has no classes, cWC one a row
    for picture in pictures:
        with Image.open(picture) as image:
            assert min(image.size) > 50


def test_a_panel_whose_run_is_missing_is_said_with_the_command_that_makes_it(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "out")
    command = '`wcgan reproduce conditional --rows "cifar100/cWC SN [+] Proj. Discr."`'
    with pytest.raises(ValueError, match=f"has no checkpoint for 1 of 2 panels; make them with {command}"):
        run("figure7", tmp_path / "out")
    assert (tmp_path / "out/figure7/a.png").is_file()
    assert "one noise per column" in (tmp_path / "out/figure7/a.png.txt").read_text()


@pytest.mark.parametrize("name", ["figure5", "grids"])
def test_a_dry_run_says_what_would_be_drawn_and_draws_nothing(name, trained):
    before = sorted(trained.rglob("*"))
    said = run(name, trained, dry_run=True)
    assert len(said) == 2
    assert all(line.startswith(f"would draw {trained}") for line in said)
    assert sorted(trained.rglob("*")) == before


@pytest.mark.parametrize("number", range(5, 10))
def test_the_panels_of_every_figure_are_presets_that_can_be_drawn_so(number):
    panels = find_measurement(f"figure{number}").make.args[1]
    for name, kind in panels:
        assert name in PRESETS
        assert preset(name).generator.conditional == (kind != "samples")


def test_a_study_stands_beside_the_papers(tmp_path):
    report = {"a": "cBN", "b": "cWC_sa", "images": 16, "preference": 0.6012, "alpha": 0.913, "people": [{}, {}, {}]}
    folder = tmp_path / "user-study"
    folder.mkdir()
    (folder / "report.json").write_text(json.dumps({**report, "classes": {"cat": 0.5, "dog": 0.7}}))
    said = run("table11", tmp_path, dry_run=True)
    assert [path.name for path in folder.iterdir()] == ["report.json"]
    assert said[-2:] == [
        "| paper | cBN vs cWC_sa | 67.34% | 0.87 | 21 | 50 | 16 |",
        "| ours | cBN vs cWC_sa | 60.12% | 0.91 | 3 | 2 | 16 |",
    ]
    assert run("table11", tmp_path)[:-1] == said
    assert (folder / "table.md").read_text().splitlines() == said


def test_an_agreement_that_is_not_defined_is_said(tmp_path):
    (tmp_path / "user-study").mkdir()
    report = {"a": "a", "b": "b", "images": 4, "preference": 0.5, "alpha": None, "people": [{}], "classes": {}}
    (tmp_path / "user-study" / "report.json").write_text(json.dumps(report))
    assert "| not defined |" in run("user-study", tmp_path)[-2]


@pytest.mark.parametrize("content", ["{", "[]", '{"alpha": null}'])
def test_another_file_than_a_report_of_a_study_is_refused_with_the_way_to_one(content, tmp_path):
    (tmp_path / "user-study").mkdir()
    (tmp_path / "user-study" / "report.json").write_text(content)
    with pytest.raises(ValueError, match="has no report of a study: make one with `wcgan study create`"):
        run("user-study", tmp_path)
