"""The benchmark of a ResNet-50's layers, in miniature."""

from tests.benchmarks.scripts import load_script

resnet50 = load_script("resnet50")


def test_the_layers_are_those_of_the_network():
    assert sum(resnet50.LAYERS.values()) == 53
    assert sum(channels * count for (channels, _), count in resnet50.LAYERS.items()) == 26_560


def test_every_kind_of_layer_has_a_row(tmp_path, capsys):
    out = tmp_path / "layers.md"
    resnet50.main(["--device", "cpu", "--images", "2", "--layers-only", "--out", str(out)], layers={(64, 3): 7})
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.read_text().splitlines()[2:]]
    assert [row[:2] for row in rows] == [["64, 3 (7)", kind] for kind in resnet50.KINDS]
    assert all(float(row[3]) > 0 for row in rows)
    assert capsys.readouterr().out == out.read_text()
