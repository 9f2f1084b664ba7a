"""Names from outside on the terminal: no markup of theirs is obeyed, and no escape gets through."""

import io
import json
import os
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from tests.data.cases import random_images, save

from wcgan.core import terminal
from wcgan.reproduce import command
from wcgan.reproduce.plan import plan_table
from wcgan.runs.pretrained import shipped

MARKUP, ESCAPE, OTHER = "[/x][bold]", "\x1b[2J\x1b]0;owned\x07", "caf\udce9"
HOSTILE = [MARKUP, ESCAPE, OTHER, "[red]", "[link=file:///etc]x[/link]", ":smile:", "\u202egnp"]
SHOWN = (MARKUP, "[red]", ":smile:")
"""Harmless on a terminal that takes them for text: printed as they are."""


def assert_harmless(text: str) -> None:
    assert [
        char for char in text if (char < " " and char not in "\n\t") or "\x7f" <= char <= "\x9f" or char == "\u202e"
    ] == []
    assert "Traceback" not in text


def write_run(folder: Path, score: str) -> Path:
    """A run of another's making, with a score of a hostile name."""
    folder.mkdir(parents=True)
    shutil.copy(shipped("digits-cWC_sa") / "config.yaml", folder)
    record = {"kind": "evaluation", "iteration": 1, f"FID {score}": 1.5, "protocol": {"name": score, "seed": 0}}
    (folder / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    return folder


@pytest.fixture
def hostile(tmp_path):
    """A hostile name at a time: as a text, as a name of a file, and with a new folder."""

    def each():
        for number, name in enumerate(HOSTILE):
            (tmp_path / str(number)).mkdir()
            yield name, name.replace("/", "|"), tmp_path / str(number)

    return each()


def test_comparing_runs_of_hostile_names(command, hostile):
    for name, file, folder in hostile:
        runs = [write_run(folder / f"{file}{i}", name) for i in range(2)]
        code, out, err = command("compare", *runs, "--out", folder / "compare.html")
        assert (code, err) == (0, ""), ascii(name)
        assert_harmless(out)
        assert (folder / "compare.html").stat().st_size > 1000
        if name in SHOWN:
            assert file in out.replace("\n", "")


def test_a_sentence_about_a_hostile_path(command, hostile):
    for name, _, folder in hostile:
        code, out, err = command("sample", folder / name)
        assert (code, out) == (2, ""), ascii(name)
        assert_harmless(err)
        assert err.startswith("wcgan: ")


def test_a_study_of_hostile_sides(command, hostile):
    pytest.importorskip("fastapi")
    from tests.web.study.cases import open_store

    from wcgan.web.study import read_study
    from wcgan.web.study.config import new_token, study_to_trials, token_to_id

    for name, file, folder in hostile:
        sides = [folder / f"{file}{i}" for i in range(2)]
        for i, side in enumerate(sides):
            for number in range(4):
                save(side / file / f"{number}.png", random_images(1, 3, 8, 4 * i + number)[0])
        code, out, err = command("study", "create", *sides, "--out", folder / "study", "--images", 4, "--checks", 2)
        assert (code, err) == (0, ""), ascii(name)
        study, store = read_study(folder / "study"), open_store(folder / "study")
        token = new_token()
        store.join(token_to_id(token), 10, consented=True)
        for trial in study_to_trials(study, token):
            store.vote(token_to_id(token), trial, "1" if trial.first == "a" else "2")
        store.database.close()
        code, more, err = command("study", "report", folder / "study")
        assert (code, err) == (0, ""), ascii(name)
        assert_harmless(out + more)


def test_training_on_a_folder_of_a_hostile_name(command, hostile):
    for name, file, folder in hostile:
        images = folder / file
        save(images / "0.png", random_images(1, 1, 16)[0])
        with open(os.fsencode(images) + b"/" + os.fsencode(file) + b".png", "wb") as broken:
            broken.write(b"no image")
        code, out, err = command("train", "--data", images, "--dry-run", "--out", folder / "out")
        assert code in (0, 2), ascii(name)
        assert_harmless(out + err)


@pytest.fixture
def written(monkeypatch):
    """What bars and boards write to, which takes itself for a terminal."""
    text = io.StringIO()

    def console(**options):
        return Console(file=text, force_terminal=True, width=200, color_system=None, **{**options, "stderr": False})

    for module in (terminal, command):
        monkeypatch.setattr(module, "Console", console)
    return text


def test_bars_and_boards_take_any_name(written, tmp_path):
    plan = plan_table("ablation-WC", (), 1, 1.0, (), tmp_path)
    for name in HOSTILE:
        written.seek(0)
        written.truncate()
        with terminal.progress_bars() as report:
            report(f"packing {name}", 1, 2)
        with terminal.progress_for(10, visible=True) as bar:
            bar.say(f"about {name}")
            bar.show({f"loss/{name}": 1.0})
            bar.advance(1)
        with command.display_runs(plan.runs, live=True) as show:
            show(plan.runs[0], "failed", f"because of {name}")
        text = written.getvalue()
        assert "owned\x07" not in text
        assert "\x1b[2J" not in text
        if name in SHOWN:
            assert [what for what in ("packing", "about", "because of") if f"{what} {name}" not in text] == []


def test_lines_in_place_of_bars_take_any_name(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(terminal, "SECONDS_BETWEEN_LINES", 0)
    plan = plan_table("ablation-WC", (), 1, 1.0, (), tmp_path)
    for name in HOSTILE:
        with terminal.progress_bars() as report:
            report(name, 1, 2)
        with command.display_runs(plan.runs, live=True) as show:
            show(plan.runs[0], "failed" if name == MARKUP else name, name)
        with terminal.progress_for(10, visible=True) as lines:
            lines.say(name)
    assert_harmless(capsys.readouterr().err)
