"""Which runs a table needs: names, rows, seeds, schedules, folders."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.reference.paper_tables import FIGURES_IN_ORDER, TABLES_IN_ORDER
from tests.reproduce.cases import tiny

from wcgan.norm import VARIANTS
from wcgan.paper.presets import preset
from wcgan.paper.tables import TABLES
from wcgan.reproduce.experiments import EXPERIMENTS, choose_rows, find_table
from wcgan.reproduce.measurements import find_measurement, tables_to_lines
from wcgan.reproduce.plan import folders_of, plan_table, read_options, shorten, write_options
from wcgan.runs.folder import new_run

SHARED = {
    ("state-of-the-art", "cifar10/WC SN + ResNet"): "unconditional/cifar10-WCSN+ResNet",
    ("ablation-WC", "cifar10/WC"): "unconditional/cifar10-WCSN+ResNet",
    ("conditional", "cifar10/cWC_sa SN + Proj. Discr."): "state-of-the-art/cifar10-cWC_saSN+Proj.Discr.",
    ("ablation-cWC", "cifar10/cWC"): "conditional/cifar10-cWCSN+Proj.Discr.",
    ("ablation-cWC", "cifar10/cWC_sa"): "state-of-the-art/cifar10-cWC_saSN+Proj.Discr.",
    ("ablation-cWC", "cifar100/cWC"): "conditional/cifar100-cWCSN+Proj.Discr.",
    ("ablation-cWC", "cifar100/cWC_sa"): "conditional/cifar100-cWC_saSN+Proj.Discr.",
    ("stability", "cifar10/WC"): "convergence/cifar10-WCSN+ResNet",
    ("filters", "cifar10/SN + Proj. Discr."): "conditional/cifar10-SN+Proj.Discr.",
    ("filters", "cifar10/cWC SN + Proj. Discr."): "conditional/cifar10-cWCSN+Proj.Discr.",
}


def test_every_number_is_the_place_of_its_caption_in_the_paper():
    order = {f"Table {n}": label for n, label in enumerate(TABLES_IN_ORDER, start=1)}
    order |= {f"Figure {n}": label for n, label in enumerate(FIGURES_IN_ORDER, start=1)}
    ours = ("conditioning", "filters", "digits-stability", "digits")
    printed = {key: table for key, table in EXPERIMENTS.items() if key not in ours}
    assert {key: order[table.place] for key, table in printed.items()} == {
        key: table.label[4:] for key, table in printed.items()
    }


SCHEMES = ("architecture", "abl")


def test_the_list_names_every_table_and_figure_of_the_paper_but_the_schemes():
    wanted = [f"table{number}" for number, _ in enumerate(TABLES_IN_ORDER, start=1)]
    wanted += [f"figure{number}" for number, label in enumerate(FIGURES_IN_ORDER, start=1) if label not in SCHEMES]
    assert (len(TABLES_IN_ORDER), len(wanted)) == (13, 13 + 7)
    places = [line[18:28].strip() for line in tables_to_lines()]
    assert sorted(place for place in places if place) == sorted(wanted)
    assert all(find_measurement(place) or find_table(place) for place in wanted)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *((key, key) for key in EXPERIMENTS),
        *((name, "ablation-WC") for name in ("table3", "Table 3", "TABLE3", "ablation-wc")),
        *((name, "convergence") for name in ("figure2", "Figure 2")),
        ("table13", "mnist"),
        ("table8", "classification"),
    ],
)
def test_a_table_is_found_by_its_name_and_by_its_place(name, key):
    assert find_table(name) == key


@pytest.mark.parametrize(("name", "near"), [("table9", "table"), ("figure3", "figure2"), ("ablations", "ablation-")])
def test_an_unknown_table_is_said_with_the_nearest(name, near):
    with pytest.raises(ValueError, match=rf"unknown table '{name}'; `wcgan reproduce --list` .* nearest are .*{near}"):
        find_table(name)


def test_the_list_has_every_table_once_with_its_place():
    lines = tables_to_lines()
    words = [line.split() for line in lines]
    assert [word[0] for word in words][: len(EXPERIMENTS)] == list(EXPERIMENTS)
    assert words[list(EXPERIMENTS).index("ablation-cWC")][:2] == ["ablation-cWC", "table7"]
    assert max(map(len, lines)) <= 80


def test_the_digits_have_every_variant():
    assert [row.preset for row in EXPERIMENTS["digits"].rows] == [f"digits/{name}" for name in VARIANTS]


def test_the_figures_are_evaluated_every_thousand_iterations_and_stability_has_three_seeds():
    assert {key for key, table in EXPERIMENTS.items() if table.evaluate_every == 1000} == {"convergence", "stability"}
    runs = plan_table("stability").runs
    assert [(run.row.preset, run.seed) for run in runs] == [
        (f"cifar10/{name}", seed) for seed in (0, 1, 2) for name in ("WC", "WzcaC", "WzcaC-decomposition")
    ]
    assert {run.config.train.evaluate_every for run in runs} == {1000}
    small = plan_table("digits-stability").runs
    assert [run.name for run in small] == [run.name.replace("cifar10", "digits") for run in runs]


def test_the_papers_tables_are_evaluated_on_the_way_since_its_figures_are_the_best_there():
    for key, table in TABLES.items():
        runs = plan_table(key, seeds=1).runs
        assert all(0 < run.config.train.evaluate_every < run.config.train.iterations for run in runs), key
        assert table.evaluate_every == {"imagenet": 100_000, "classification": 4000}.get(key, 2000)


def test_a_table_of_some_rows_has_no_others_and_no_quoted_ones():
    whole, some = plan_table("table2"), plan_table("table2", ["cWC_sa SN + Proj. Discr."])
    assert whole.table == EXPERIMENTS["state-of-the-art"]
    assert [row.preset for row in some.table.rows] == ["cifar10/cWC_sa SN + Proj. Discr."]
    assert some.table.quoted == ()


def test_conditioning_is_measured_of_batch_norm_and_of_every_row_of_the_ablation():
    runs = plan_table("conditioning").runs
    assert [run.config.generator.normalization for run in runs] == ["BN", *_variants("ablation-WC")]
    assert {run.config.train.conditioning_every for run in runs} == {1000}
    assert {run.config.train.conditioning_every for run in plan_table("ablation-WC").runs} == {0}


def _variants(key):
    return [preset(row.preset).generator.normalization for row in EXPERIMENTS[key].rows]


def test_a_run_of_several_tables_lies_with_the_first_and_every_other_with_its_own():
    for key, table in EXPERIMENTS.items():
        places = {run.row.preset: run.folder for run in plan_table(key, out=Path("o"), seeds=1).runs}
        for row in table.rows:
            own = f"{key}/{row.preset.replace('/', '-').replace(' ', '')}"
            assert places[row.preset] == Path("o") / SHARED.get((key, row.preset), own) / "seed-0"


def test_a_run_has_the_config_of_its_preset_with_the_seed_and_the_tables_evaluations():
    (run,) = plan_table("imagenet", rows=["cWC_sa SN + Proj. Discr."]).runs
    config = preset("imagenet/cWC_sa SN + Proj. Discr.")
    assert run.config == replace(config, train=replace(config.train, evaluate_every=100_000))
    assert [run.config.train.seed for run in plan_table("digits", rows=["WC"], seeds=3).runs] == [0, 1, 2]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["cifar10/WC"], ["cifar10/WC"]),
        (["WC"], ["cifar10/WC"]),
        (["WC, W-only"], ["cifar10/W-only", "cifar10/WC"]),
        (["WC", "std-C"], ["cifar10/std-C", "cifar10/WC"]),
        (["cifar10"], [row.preset for row in TABLES["ablation-WC"].rows]),
        ([], [row.preset for row in TABLES["ablation-WC"].rows]),
    ],
)
def test_rows_are_chosen_by_preset_last_part_or_dataset(wanted, found):
    assert [row.preset for row in choose_rows("ablation-WC", wanted)] == found


def test_a_row_is_chosen_by_either_of_its_names():
    assert [row.preset for row in choose_rows("ablation-WC", ["cifar10/WC SN + ResNet"])] == ["cifar10/WC"]
    assert [row.preset for row in choose_rows("convergence", ["cifar10/WC"])] == ["cifar10/WC SN + ResNet"]


def test_a_row_that_a_table_does_not_have_is_said_with_the_nearest():
    with pytest.raises(ValueError, match=r"ablation-WC has no row 'cWC'; the nearest are .*WC"):
        choose_rows("ablation-WC", ["WC,cWC"])


def test_the_nearest_row_is_found_whatever_its_case():
    with pytest.raises(ValueError, match=r"digits has no row 'bn'; the nearest are BN,"):
        choose_rows("digits", ["bn"])


def test_a_scale_shortens_every_length_of_the_schedule_and_nothing_else():
    config = preset("cifar10/cWC SN + Proj. Discr. drop")
    train = replace(config.train, evaluate_every=1000, conditioning_every=500)
    short = shorten(replace(config, train=train), 0.1).train
    lengths = {"iterations": 3100, "schedule_end": 5000, "drop_at": 3000, "evaluate_every": 100}
    assert short == replace(train, **lengths, conditioning_every=50, sample_every=100, checkpoint_every=100)


def test_no_length_becomes_less_than_one_and_what_is_off_stays_off():
    train = shorten(preset("digits/cWC"), 1e-6).train
    assert (train.iterations, train.sample_every, train.checkpoint_every, train.evaluate_every) == (1, 1, 1, 0)


@pytest.mark.parametrize("scale", [0, -0.1, 1.5, float("nan")])
def test_a_scale_out_of_range_is_refused(scale):
    with pytest.raises(ValueError, match="--scale must be more than 0 and at most 1, got"):
        plan_table("digits", scale=scale)


def test_a_setting_is_set_after_the_schedule_is_shortened():
    train = plan_table("digits", rows=["WC"], scale=0.1, settings=["train.iterations=7"]).runs[0].config.train
    assert (train.iterations, train.checkpoint_every) == (7, 25)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"seeds": 0}, "--seeds must be at least 1, got 0"),
        ({"settings": ["train.seed=3"]}, "train.seed is not for --set here"),
        ({"settings": ["train.lr=3"]}, "unknown field train.lr"),
    ],
)
def test_what_cannot_be_planned_is_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan_table("digits", **options)


def test_shortened_runs_lie_apart_from_full_ones():
    folders = {plan_table("digits", scale=scale).out for scale in (1.0, 0.1, 0.25)}
    assert folders == {Path("reproduce"), Path("reproduce-x0.1"), Path("reproduce-x0.25")}


def test_a_folder_begun_with_another_scale_or_setting_is_refused(tmp_path):
    settings = (*tiny(), "generator.options={eps: 0.01}")
    write_options(plan_table("digits", scale=0.1, settings=settings, out=tmp_path))
    assert read_options(tmp_path / "digits") == (0.1, settings)
    plan_table("digits", scale=0.1, settings=settings, out=tmp_path)
    begun = r"digits was begun with --scale 0\.1 --set .* --set 'generator.options={eps: 0.01}': repeat that, or name"
    for options in ({"scale": 0.2, "settings": settings}, {"scale": 0.1}):
        with pytest.raises(ValueError, match=begun):  # quoted for a shell
            plan_table("digits", **options, out=tmp_path)


def test_a_setting_that_a_folder_was_begun_without_is_named_as_the_difference(tmp_path):
    write_options(plan_table("digits", scale=0.1, out=tmp_path))
    with pytest.raises(ValueError, match=r"was begun with --scale 0\.1 and without --set: repeat that"):
        plan_table("digits", scale=0.1, settings=["train.batch=8"], out=tmp_path)


def test_a_run_of_another_config_is_refused_wherever_it_lies(tmp_path):
    (run,) = plan_table("digits", rows=["WC"], settings=tiny(), out=tmp_path).runs
    new_run(run.folder, run.config)
    plan_table("digits", settings=tiny(), out=tmp_path)
    with pytest.raises(ValueError, match=r"seed-0 was begun with another config \(train\.iterations is 12, not 13\)"):
        plan_table("digits", settings=tiny(13), out=tmp_path)
    with pytest.raises(ValueError, match=r"generator\.widths is \[4, 4\], not \[5, 5\]"):
        plan_table("digits", settings=tiny(12, "generator.widths=[5, 5]"), out=tmp_path)


def test_damaged_options_are_said(tmp_path):
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "options.json").write_text('{"scale"')
    with pytest.raises(ValueError, match=r"options\.json is damaged"):
        plan_table("digits", out=tmp_path)


def test_folders_are_found_by_row_in_the_order_of_seeds(tmp_path):
    for seed in (10, 2, 0):
        folder = tmp_path / "digits" / "digits-WC" / f"seed-{seed}"
        new_run(folder, preset("digits/WC"))
    (tmp_path / "digits" / "digits-WC" / "seed-1").mkdir()  # without a config it is no run
    (tmp_path / "digits" / "digits-WC" / "seed-²").mkdir()
    found = folders_of("digits", tmp_path)
    assert [folder.name for folder in found["digits/WC"]] == ["seed-0", "seed-2", "seed-10"]
    assert set(found) == {f"digits/{name}" for name in VARIANTS}
    assert [name for name, folders in found.items() if folders] == ["digits/WC"]
