"""Names from outside on the terminal: no markup of theirs is obeyed, and no escape gets through."""

import io
import json
import os
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from tests.data.cases import random_images, save

from wcgan.core import terminal as bars
from wcgan.core import terminal as progress
from wcgan.reproduce import display
from wcgan.reproduce.plan import plan_table
from wcgan.runs.sampler import shipped

MARKUP, ESCAPE, OTHER = "[/x][bold]", "\x1b[2J\x1b]0;owned\x07", "caf\udce9"
HOSTILE = [MARKUP, ESCAPE, OTHER, "[red]", "[link=file:///etc]x[/link]", ":smile:", "\u202egnp"]


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


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_comparing_runs_of_hostile_names(command, tmp_path, name):
    runs = [write_run(tmp_path / f"{name.replace('/', '|')}{i}", name) for i in range(2)]
    code, out, err = command("compare", *runs, "--out", tmp_path / "compare.html")
    assert (code, err) == (0, "")
    assert_harmless(out)
    assert (tmp_path / "compare.html").stat().st_size > 1000
    if name in (MARKUP, "[red]", ":smile:"):
        assert name.replace("/", "|") in out.replace("\n", "")


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_sentence_about_a_hostile_path(command, tmp_path, name):
    code, out, err = command("sample", tmp_path / name)
    assert (code, out) == (2, "")
    assert_harmless(err)
    assert err.startswith("wcgan: ")


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_study_of_hostile_sides(command, tmp_path, name):
    pytest.importorskip("fastapi")
    from tests.web.study.cases import open_store

    from wcgan.web.study import read_study
    from wcgan.web.study.config import new_token, study_to_trials, token_to_id

    for i in range(2):
        for number in range(4):
            label = name.replace("/", "|")
            save(tmp_path / f"{label}{i}" / label / f"{number}.png", random_images(1, 3, 8, 4 * i + number)[0])
    sides = [tmp_path / f"{name.replace('/', '|')}{i}" for i in range(2)]
    code, out, err = command("study", "create", *sides, "--out", tmp_path / "study", "--images", 4, "--checks", 2)
    assert (code, err) == (0, "")
    study, store = read_study(tmp_path / "study"), open_store(tmp_path / "study")
    token = new_token()
    store.join(token_to_id(token), 10, consented=True)
    for trial in study_to_trials(study, token):
        store.vote(token_to_id(token), trial, "1" if trial.first == "a" else "2")
    store.database.close()
    code, more, err = command("study", "report", tmp_path / "study")
    assert (code, err) == (0, "")
    assert_harmless(out + more)


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_training_on_a_folder_of_a_hostile_name(command, tmp_path, name):
    folder = tmp_path / name.replace("/", "|")
    save(folder / "0.png", random_images(1, 1, 16)[0])
    with open(os.fsencode(folder) + b"/" + os.fsencode(name.replace("/", "|")) + b".png", "wb") as file:
        file.write(b"no image")
    code, out, err = command("train", "--data", folder, "--dry-run", "--out", tmp_path / "out")
    assert code in (0, 2)
    assert_harmless(out + err)


@pytest.fixture
def terminal(monkeypatch):
    """What bars and boards write to, which takes itself for a terminal."""
    written = io.StringIO()

    def console(**options):
        return Console(file=written, force_terminal=True, width=200, color_system=None, **{**options, "stderr": False})

    for module in (bars, display, progress):
        monkeypatch.setattr(module, "Console", console)
    return written


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_bars_and_boards_take_any_name(terminal, tmp_path, name):
    with bars.progress_bars() as report:
        report(f"packing {name}", 1, 2)
    with progress.progress_for(10, visible=True) as bar:
        bar.say(f"about {name}")
        bar.show({f"loss/{name}": 1.0})
        bar.advance(1)
    plan = plan_table("ablation-WC", (), 1, 1.0, (), tmp_path)
    with display.display_runs(plan.runs, live=True) as show:
        show(plan.runs[0], "failed", f"because of {name}")
    text = terminal.getvalue()
    assert "owned\x07" not in text
    assert "\x1b[2J" not in text
    if name in (MARKUP, "[red]", ":smile:"):
        assert [what for what in ("packing", "about", "because of") if f"{what} {name}" not in text] == []


def test_lines_in_place_of_bars_take_any_name(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(bars, "SECONDS_BETWEEN_LINES", 0)
    plan = plan_table("ablation-WC", (), 1, 1.0, (), tmp_path)
    for name in HOSTILE:
        with bars.progress_bars() as report:
            report(name, 1, 2)
        with display.display_runs(plan.runs, live=True) as show:
            show(plan.runs[0], "failed" if name == MARKUP else name, name)
        with progress.progress_for(10, visible=True) as lines:
            lines.say(name)
    assert_harmless(capsys.readouterr().err)
