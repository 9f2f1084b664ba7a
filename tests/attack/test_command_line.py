"""Hostile values on the command line: what was asked for, or one sentence and exit code 2; never a traceback."""

import random
from pathlib import Path

from tests.attack.tally import quick_and_long

from wcgan.core.config import config_to_dict
from wcgan.paper.presets import PRESETS, configure

VALUES = ["", "0", "-1", "1", "²", "1e400", "nan", "-inf", "10" * 12, "1" + "0" * 400, "null", "true", "[]", "[0]"]
VALUES += ["[[[[", "{}", "{eps: abc}", "[4, -4]", "[1000000000, 1]", "x" * 3_000, "../../etc", "/dev/zero", "a\x1b[2J"]
VALUES += ["!!python/object/apply:os.system [x]", "&a [*a]", "auto", "cuda:99", "digits", "\udcff", "a=b", "'", "--"]


def fields(config, path=""):
    """The names that `--set` takes."""
    for name, value in config_to_dict(config).items() if not isinstance(config, dict) else config.items():
        yield from fields(value, f"{path}{name}.") if isinstance(value, dict) and value else [f"{path}{name}"]


def draw(chance, names, folder):
    """Arguments of a command that writes nothing outside the folder and trains nothing."""
    value, other = chance.choice(VALUES), chance.choice(VALUES)
    preset = chance.choice([*PRESETS, value]) if chance.random() < 0.2 else "digits/cWC"
    setting = f"{chance.choice(names)}={value}"
    train = ["train", "--dry-run", "--out", folder / "out", "--set", setting]
    return chance.choice(
        [
            [*train, "--", preset],
            [*train, "--set", f"{chance.choice(names)}={other}", "--", preset],
            [*train, "--data", value, "--", preset],
            [*train, "--stop-at", value, "--", preset],
            ["sample", "digits-cWC_sa", "-n", "2", "--out", folder / "a.png", f"--seed={value}"],
            ["sample", "digits-cWC_sa", "-n", "2", "--out", folder / "a.png", f"--classes={value}"],
            ["sample", "digits-cWC_sa", "-n", "2", "--out", folder / "a.png", f"--checkpoint={value}"],
            ["sample", "digits-cWC_sa", "-n", "2", "--out", folder / "a.png", f"--truncation={value}"],
            ["sample", "digits-cWC_sa", "--out", folder / "a.png", f"--grid={value}"],
            ["compare", "--out", folder / "page.html", "--", folder / other[:50].replace("\0", "")],
            ["presets", "--", value],
            ["evaluate", "--images", "2", f"--metrics={value}", "--", other],
            ["reproduce", "--dry-run", "--", f"table {value}"],
        ]
    )


@quick_and_long(25, 300)
def test_command_lines(command, tmp_path, monkeypatch, attack, cases):
    monkeypatch.chdir(tmp_path)
    names, chance, codes = [*fields(configure("digits/cWC"))], random.Random(0), set()
    for _ in range(cases):
        arguments = draw(chance, names, Path(tmp_path))
        with attack.case():
            code, out, err = command(*arguments)
            codes.add(code)
            missing = "rows cannot be trained here" in out  # a table by its name, without its data
            assert code in (0, 2) or (code == 1 and missing), (arguments, code, err)
            assert "Traceback" not in out + err, arguments
            assert "\x1b" not in out + err, arguments
            assert code < 2 or err, arguments
    assert {0, 2} <= codes
