"""Damaged and hostile run folders: each is refused with one sentence, or gives exactly what the whole one gives."""

import os
import random
import shutil
import sys

import pytest
import torch
from tests.attack.tally import quick_and_long, require_sentence
from tests.mutations import mutated
from tests.train.cases import different, last_tensors, tiny_config, tiny_data, tiny_run

from wcgan.report.read import read_runs
from wcgan.runs.checkpoint import CheckpointError, read_checkpoint, read_newest, write_checkpoint
from wcgan.runs.folder import Run, line_to_bytes, read_metrics
from wcgan.runs.sampler import load_generator
from wcgan.train.gan import train
from wcgan.train.start import go_on

REFUSED = (ValueError, OSError)  # what the command line turns into one sentence


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run with checkpoints at 2 and 4, stopped before its end at 6."""
    folder = tmp_path_factory.mktemp("stopped")
    config = tiny_config(ema=0.5, beta1=0.5, keep_checkpoints=3)
    run = tiny_run(folder / "run", config)
    train(config, tiny_data(), run, lambda sampler: {"FID(classifier)": 3.0}, stop_at=4)
    fixed = {"time": "2026-01-01T00:00:00+00:00", "seconds": 0.5, "iterations_per_second": 8.0}
    lines = [line | {key: value for key, value in fixed.items() if key in line} for line in run.lines()]
    run.metrics.write_bytes(b"".join(map(line_to_bytes, lines)))  # so that a seed means the same damage every time
    return run


@pytest.fixture(scope="module")
def finished(stopped, tmp_path_factory):
    """What the run becomes when nothing is wrong with it."""
    run = Run(shutil.copytree(stopped.folder, tmp_path_factory.mktemp("finished") / "run"))
    train(run.config(), tiny_data(), run)
    return run


@pytest.fixture(scope="module")
def images(stopped):
    """What its checkpoints draw."""
    return {which: load_generator(stopped.folder, which, "cpu").sample(2, seed=3) for which in ("last", "best")}


@pytest.fixture(autouse=True)
def own_data(monkeypatch):
    """`go_on` finds the images of these runs; the commit is not looked up thousands of times."""
    monkeypatch.setenv("WCGAN_COMMIT", "0123456789")
    monkeypatch.setattr(sys.modules["wcgan.train.start"], "load_data", lambda config: tiny_data())
    monkeypatch.setattr(sys.modules["wcgan.train.start"], "evaluator_for", lambda *arguments: None)


def outcome_of_loading(folder, which):
    """Images, or None where it is refused."""
    try:
        return load_generator(folder, which, "cpu").sample(2, seed=3)
    except REFUSED as error:
        require_sentence(error)
        return None


def outcome_of_resuming(folder):
    """The last tensors, or None where it is refused."""
    try:
        go_on(folder)
    except REFUSED as error:
        require_sentence(error)
        return None
    return last_tensors(Run(folder))


# Hostile checkpoints: whoever writes one can also write its hash

HOSTILE_FACTS = {
    "iteration": [None, "4", 4.0, -4, True, 10**20, [4], 5],
    "seconds": [None, "1", -1, float("inf"), float("nan"), [1], {}],
    "classes": [None, "abc", [1, 2, 3], {"a": 1}, [["a"]]],
    "config": [
        *(None, [], "config", {"train": {"seed": 7}}, {"generator": {"noise": 7}}, {"data": {"name": "\x1b[2J"}}),
        *({"generator": {"kind": "two\nlines"}}, {"generator": {"kind": "x" * 5000}}),
    ],
    "data": [None, 3, "other", ["tiny"]],
}


def rewritten(stopped, folder, change_facts=None, change_tensors=None):
    """A copy of the run whose newest checkpoint is changed and has the right hash."""
    run = Run(shutil.copytree(stopped.folder, folder))
    found = read_checkpoint(run.checkpoints / "0000004")
    facts = {key: value for key, value in found.facts.items() if key not in ("bytes", "sha256")}
    tensors = dict(found.tensors)
    if change_facts is not None:
        change_facts(facts)
    if change_tensors is not None:
        change_tensors(tensors)
    write_checkpoint(run.checkpoints, "0000004", tensors, facts)
    return run


@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_facts_of_the_wrong_type_are_refused_or_passed_over(first, stopped, finished, images, tmp_path):
    tensors, number = last_tensors(finished), 0
    for name, values in HOSTILE_FACTS.items():
        for value in [KeyError, *values][first::2]:  # every other one
            number += 1

            def change(facts, name=name, value=value):
                if value is KeyError:
                    del facts[name]
                else:
                    facts[name] = value

            run = rewritten(stopped, tmp_path / str(number), change_facts=change)
            drawn, resumed = outcome_of_loading(run.folder, "last"), outcome_of_resuming(run.folder)
            assert drawn is None or torch.equal(drawn, images["last"]), (name, value)
            assert resumed is None or not different(resumed, tensors), (name, value)
    assert number > 15


def harm(name, change):
    return lambda tensors: tensors.update({name: change(tensors[name])})


WEIGHT, MOMENT, STEP = "average.conv.weight", "generator_optimizer.0.exp_avg", "generator_optimizer.0.step"
HOSTILE_TENSORS = {
    "no tensors": lambda tensors: tensors.clear(),
    "a weight is missing": lambda tensors: tensors.pop(WEIGHT),
    "a weight of another shape": harm(WEIGHT, lambda x: x.flatten()),
    "a weight that broadcasts": harm(WEIGHT, lambda x: x[:1, :1, :1, :1]),
    "an empty weight": harm(WEIGHT, lambda x: x[:0]),
    "a weight of whole numbers": harm(WEIGHT, lambda x: x.long()),
    "a weight of truth values": harm(WEIGHT, lambda x: x > 0),
    "a complex weight": harm(WEIGHT, lambda x: x + 1j),
    "a weight that is not finite": harm(WEIGHT, lambda x: x / 0),
    "a weight too many": lambda tensors: tensors.update({"average.more": torch.zeros(3)}),
    "a generator's weight is missing": lambda tensors: tensors.pop("generator.conv.weight"),
    "a moment is missing": lambda tensors: tensors.pop(MOMENT),
    "a moment of another shape": harm(MOMENT, lambda x: x.flatten()[:1]),
    "a moment of whole numbers": harm(MOMENT, lambda x: x.long()),
    "steps of another shape": harm(STEP, lambda x: x.repeat(3)),
    "a moment of no parameter": lambda tensors: tensors.update({"generator_optimizer.999.exp_avg": torch.zeros(3)}),
    "a moment without a number": lambda tensors: tensors.update({"generator_optimizer.\u00b2.step": torch.zeros(())}),
    "a moment without a name": lambda tensors: tensors.update({"generator_optimizer.0": torch.zeros(3)}),
    "a moment of a name of two lines": lambda tensors: tensors.update({"generator_optimizer.0.a\nb": torch.zeros(())}),
    "a moment of another name": lambda tensors: tensors.update({"generator_optimizer.0.lr": torch.zeros(())}),
}


@pytest.mark.parametrize("kind", HOSTILE_TENSORS)
def test_tensors_that_do_not_fit_are_refused_by_the_name_of_their_file(kind, stopped, tmp_path):
    run = rewritten(stopped, tmp_path / "run", change_tensors=HOSTILE_TENSORS[kind])
    before = run.metrics.read_bytes()
    if "moment" not in kind and "steps" not in kind and "generator's" not in kind:
        with pytest.raises(ValueError, match=r"0000004\.safetensors does not fit|hold NaN or Inf") as failure:
            load_generator(run.folder, "last", "cpu").sample(2)
        require_sentence(failure.value)
    if "finite" not in kind:
        with pytest.raises(
            CheckpointError, match=r"0000004\.safetensors does not fit the run's config\.yaml"
        ) as failure:
            go_on(run.folder)
        require_sentence(failure.value)
        assert run.metrics.read_bytes() == before


def test_safetensors_with_a_hash_that_is_right_and_a_header_that_is_not_are_refused(stopped, tmp_path):
    chance = random.Random(0)
    good = (stopped.checkpoints / "0000004.safetensors").read_bytes()
    facts = {**read_checkpoint(stopped.checkpoints / "0000004").facts}
    with pytest.MonkeyPatch.context() as patch:
        for _ in range(100):
            content = mutated(good[:2000], chance) + good[2000:]
            patch.setattr("wcgan.runs.checkpoint.tensors_to_bytes", lambda tensors, content=content: content)
            path = write_checkpoint(tmp_path, "0000004", {}, facts)
            try:
                tensors = read_checkpoint(path).tensors
            except CheckpointError as error:
                require_sentence(error)
            else:
                assert tensors


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
@pytest.mark.parametrize("kind", ["fifo", "folder", "device", "link to itself"])
def test_a_checkpoint_that_is_no_file_is_named_and_never_waited_for(kind, suffix, stopped, tmp_path):
    run = Run(shutil.copytree(stopped.folder, tmp_path / "run"))
    path = run.checkpoints / f"0000004{suffix}"
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else path)
    with pytest.raises(CheckpointError, match=rf"0000004\{suffix} .* with --checkpoint 2 "):
        load_generator(run.folder)
    assert read_newest(run.checkpoints).facts["iteration"] == 2


# Random damage


def damage(folder, chance):
    """Harms one file of a run -> its path."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".yaml", ".jsonl", ".json", ".safetensors"))
    path = chance.choice(files)
    path.write_bytes(mutated(path.read_bytes(), chance))
    return path


def load_and_resume(stopped, finished, images, folder, seed):
    """Loads, reports and at times resumes a damaged copy: nothing but a sentence, or what the whole one gives."""
    chance = random.Random(seed)
    run = Run(folder)
    shutil.copytree(stopped.folder, folder, ignore=shutil.ignore_patterns("events.*"))
    path = damage(folder, chance)
    drawn = outcome_of_loading(folder, which := "best" if path.stem == "best" else "last")
    assert drawn is None or torch.equal(drawn, images[which]), (seed, path)
    (record,) = read_runs([folder])
    assert record.status in ("stopped", "unfinished", "finished", "not started")
    lines = stopped.lines()
    found, damaged = read_metrics(run.metrics)
    assert all(line in lines for line in found), (seed, path)
    if chance.random() < (0.5 if path == run.metrics else 0.05):
        resumed = outcome_of_resuming(folder)
        assert resumed is None or not different(resumed, last_tensors(finished)), (seed, path)
        if path == run.metrics:
            assert resumed is not None  # metrics never keep a run from going on
            assert not damaged or run.metrics.with_name("metrics.damaged.jsonl").exists()
    shutil.rmtree(folder)


@quick_and_long(50, 1_000)
def test_damaged_run_folders(stopped, finished, images, tmp_path, attack, cases):
    attack.limit = 60  # seconds: some of them train to the end
    for seed in range(cases):
        with attack.case():
            load_and_resume(stopped, finished, images, tmp_path / f"copy{seed}", seed)


@pytest.mark.slow
def test_many_more_damaged_run_folders(stopped, finished, images, tmp_path, attack):
    attack.limit = 60
    for seed in range(1_000, 20_000):
        with attack.case():
            load_and_resume(stopped, finished, images, tmp_path / f"copy{seed}", seed)
