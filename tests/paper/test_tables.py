"""The figures beside the presets against a second transcription of the paper's tables."""

from tests.reference.paper_tables import TABLES as PRINTED

from wcgan.evaluate.protocol import METRICS, PROTOCOLS
from wcgan.paper.classifier_presets import CLASSIFIERS
from wcgan.paper.presets import PRESETS, preset
from wcgan.paper.tables import MEASURES, TABLES, Row, canonical_name, figures_of
from wcgan.reproduce.plan import find_preset

DATASETS = {
    "CIFAR-100": "cifar100",
    "CIFAR-10": "cifar10",
    "STL-10": "stl10",
    "Tiny ImageNet": "tiny-imagenet",
    "ImageNet": "imagenet",
    "Fashion-MNIST": "fashion-mnist",
    "MNIST": "mnist",
}
OTHERS = ("user",)  # the judgement of people
DISC = "disc"  # classifiers: their networks are columns
SOTA = "cifar-cond-and-uncond-SOTA"
DASHES = {
    *("stl10/GP + ResNet", "stl10/WC GP + ResNet"),
    *("cifar100/GP + ACGAN", "cifar100/cWC GP + ACGAN", "cifar100/cWC_sa GP + ACGAN"),
}


def column_to_parts(column):
    """ "CIFAR-10 FID 5k" -> ("cifar10", "FID 5k")."""
    printed = next(name for name in DATASETS if column.startswith(f"{name} "))
    return DATASETS[printed], column.removeprefix(f"{printed} ")


def printed_rows():
    """(Label, name of the row as in presets, columns) of every row of the paper's own tables."""
    for label, rows in PRINTED.items():
        for row, columns in rows.items():
            table, name = label.split()[0], row.removesuffix(" (ours)").replace("W_zcaC", "WzcaC")
            if table == DISC:
                yield from classifier_rows(name, columns)
                continue
            if table in OTHERS or (table == SOTA and name == row):  # the state of the art of others
                continue
            yield table, name + " drop" * ((table, name) == (SOTA, "cWC SN + Proj. Discr.")), columns


def classifier_rows(normalization, columns):
    """ "CIFAR-10 error ResNet-32" of BN -> the row "ResNet-32 BN" with the column "CIFAR-10 error"."""
    for column, figure in columns.items():
        short, _, network = column.rpartition(" ")
        yield DISC, f"{network} {normalization}", {short: figure}


def printed_figures():
    return {
        (table, f"{dataset}/{name}", measure): figure
        for table, name, columns in printed_rows()
        for column, figure in columns.items()
        for dataset, measure in [column_to_parts(column)]
    }


def own_figures():
    """The same of `TABLES`; ImageNet's table names the iteration of its last figure, too."""
    found = {}
    for table in TABLES.values():
        label = table.label.removeprefix("tab.")
        for row in table.rows:
            last = f" {preset(row.preset).train.iterations // 1000}k" if row.earlier else ""
            found |= {(label, row.preset, measure + last): figure for measure, figure in row.figures.items()}
            found |= {(label, row.preset, f"IS {i // 1000}k"): figure for i, figure in row.earlier.items()}
    return found


def test_every_figure_is_the_one_that_is_printed():
    assert own_figures() == printed_figures()


def test_there_is_one_row_for_every_row_and_dataset_of_every_table():
    datasets, expected = {}, set()
    for table, _, columns in printed_rows():
        datasets[table] = datasets.get(table, set()) | {column_to_parts(column)[0] for column in columns}
    for table, name, columns in printed_rows():
        own = {column_to_parts(column)[0] for column in columns} if table == DISC else datasets[table]
        expected |= {(table, f"{dataset}/{name}") for dataset in own}  # of classifiers, dashes are no rows
    rows = [(table.label.removeprefix("tab."), row.preset) for table in TABLES.values() for row in table.rows]
    assert sorted(rows) == sorted(expected)


def test_the_rows_of_other_articles_are_quoted_as_they_are_printed():
    misprints = {"SNGAN-PROJECITVE": "SNGAN-PROJECTIVE"}
    again = {("right", "CT-GAN"): "CT-GAN with labels"}  # in both halves
    printed = {}
    for side, before in (("left", "WC SN + ResNet"), ("right", "cWC SN + Proj. Discr. drop")):
        for row, columns in PRINTED[f"{SOTA} {side}"].items():
            if not row.endswith(" (ours)"):
                name = again.get((side, row), misprints.get(row, row))
                printed[name] = (columns["CIFAR-10 IS"], f"cifar10/{before}")
    quoted = {quote.name: (quote.figures["IS"], quote.before) for quote in TABLES["state-of-the-art"].quoted}
    averages = {f"{name}, average of 10 runs" for name in ("PROGRESSIVE", "WC SN + ResNet")}  # in the text
    assert {name: quoted.pop(name)[0] for name in averages} == dict.fromkeys(averages, (8.56, None))
    assert quoted == printed
    assert [key for key, table in TABLES.items() if table.quoted] == ["state-of-the-art"]


def test_every_row_is_a_preset_on_its_dataset():
    rows = [row for table in TABLES.values() for row in table.rows]
    assert {canonical_name(row.preset) for row in rows} <= set(PRESETS) | set(CLASSIFIERS)
    assert [row.preset for row in rows if find_preset(row.preset).data.name != row.dataset] == []


def test_only_rows_that_the_paper_dashes_have_no_figure():
    assert {row.preset for table in TABLES.values() for row in table.rows if not row.figures} == DASHES


def test_a_preset_has_the_same_figure_in_every_table_under_any_of_its_names():
    seen = {}
    for table in TABLES.values():
        for row in table.rows:
            for measure, figure in row.figures.items():
                assert seen.setdefault((canonical_name(row.preset), measure), figure) == figure
    assert seen["cifar10/WC SN + ResNet", "FID 10k"] == (17.2, None)


def test_an_alias_has_all_figures_of_its_preset():
    assert figures_of("cifar10/cWC") == figures_of("cifar10/cWC SN + Proj. Discr.")
    assert figures_of("cifar10/cWC") == {"IS": (8.97, 0.11), "FID 5k": (16.0, None), "FID 10k": (13.5, None)}


def test_every_measure_is_a_metric_by_a_protocol_with_as_many_images_as_its_name_says():
    assert {score.lower() for score, _ in MEASURES.values()} <= {*METRICS, "error"}
    assert PROTOCOLS[MEASURES["FID 5k"][1]].generated == 5_000
    assert PROTOCOLS[MEASURES["FID 10k"][1]].generated == 10_000
    assert (PROTOCOLS[MEASURES["IS"][1]].sets, PROTOCOLS[MEASURES["IS"][1]].set_size) == (10, 5_000)


def test_a_row_is_measured_as_its_figures_were():
    rows = {row.preset: row for row in TABLES["conditional"].rows}
    assert rows["cifar10/cWC SN + Proj. Discr."].protocols == {"paper-10k": ("is", "fid"), "paper-5k": ("fid",)}
    assert rows["cifar10/SN + Proj. Discr."].protocols == {"paper-10k": ("is",), "paper-5k": ("fid",)}
    assert TABLES["mnist"].rows[0].protocols == {"paper-10k": ("fid",)}


def test_a_row_without_figures_is_measured_by_the_larger_protocol():
    assert Row("stl10/WC GP + ResNet").protocols == {"paper-10k": ("is", "fid")}


def test_a_preset_of_no_table_has_no_figure():
    assert figures_of("digits/cWC") == {}
