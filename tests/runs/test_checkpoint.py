"""Checkpoints: every bit comes back, and what is cut short or damaged is passed over."""

import json
import os
import pickle

import pytest
import torch
from tests.train.cases import CPU, different, iterate, snapshot, tiny_config, tiny_players

from wcgan.runs.checkpoint import (
    CheckpointError,
    first_nonfinite,
    keep_last,
    read_checkpoint,
    read_newest,
    write_checkpoint,
)
from wcgan.train.gan import build_players
from wcgan.train.learner import tensors_to_learner

FACTS = {"seconds": 0.1, "classes": ["a", "β"]}


def tensors(value=0.0):
    return {"generator.weight": torch.full((3,), value), "generator.count": torch.tensor(7)}


def write(folder, *iterations):
    for iteration in iterations:
        write_checkpoint(folder, f"{iteration:07d}", tensors(iteration), {"iteration": iteration, **FACTS})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def trained(config, iterations=2, players=None, start=0):
    players = players or tiny_players(config)
    for iteration in range(start, start + iterations):
        iterate(players, config, iteration)
    return players


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_every_bit_of_the_players_comes_back(ema, tmp_path):
    config = tiny_config(ema=ema)
    players = trained(config)
    before = snapshot(players)
    write_checkpoint(tmp_path, "0000002", before, {"iteration": 2})
    fresh = tiny_players(config)
    tensors_to_learner(read_newest(tmp_path), fresh)
    assert different(snapshot(fresh), before) == []
    sections = {name.partition(".")[0] for name in before}
    expected = {"generator", "discriminator", "generator_optimizer", "discriminator_optimizer"}
    assert sections == expected | ({"average"} if ema else set())


def test_moments_come_back_in_the_layout_of_their_parameters(tmp_path):
    config = tiny_config()
    write_checkpoint(tmp_path, "0000002", snapshot(trained(config)), {"iteration": 2})
    players = build_players(config, CPU, channels_last=True)
    tensors_to_learner(read_newest(tmp_path), players)
    for optimizer in players.optimizers.values():
        for parameter, state in optimizer.state.items():
            assert state["exp_avg"].stride() == state["exp_avg_sq"].stride() == parameter.stride()
    trained(config, players=players, start=2)


def test_training_goes_on_from_what_came_back_with_the_same_bits(tmp_path):
    config = tiny_config(ema=0.9, beta1=0.5)
    write_checkpoint(tmp_path, "0000002", snapshot(trained(config, 2)), {"iteration": 2})
    fresh = tiny_players(config)
    tensors_to_learner(read_newest(tmp_path), fresh)
    assert different(snapshot(trained(config, 2, fresh, start=2)), snapshot(trained(config, 4))) == []


def test_both_moments_of_both_optimisers_are_kept(tmp_path):
    players = trained(tiny_config(beta1=0.5))
    kept = snapshot(players)
    for name, network in (("generator", players.generator), ("discriminator", players.discriminator)):
        learnt = [(i, parameter) for i, parameter in enumerate(network.parameters()) if parameter.requires_grad]
        for index, parameter in learnt:
            assert kept[f"{name}_optimizer.{index}.exp_avg"].shape == parameter.shape
            assert kept[f"{name}_optimizer.{index}.exp_avg_sq"].shape == parameter.shape
            assert kept[f"{name}_optimizer.{index}.step"].item() == 2


def test_a_checkpoint_in_which_every_bias_was_trained_loads_and_goes_on(tmp_path):
    config = tiny_config()
    players = tiny_players(config)
    players.generator.requires_grad_(True)
    before = snapshot(trained(config, players=players))
    write_checkpoint(tmp_path, "0000002", before, {"iteration": 2})
    fresh = tiny_players(config)
    tensors_to_learner(read_newest(tmp_path), fresh)
    assert different(snapshot(fresh), before) == []
    bias = fresh.generator.blocks[0].conv1.bias.clone()
    assert bias.any()
    trained(config, players=fresh, start=2)
    assert torch.equal(fresh.generator.blocks[0].conv1.bias, bias)


def test_facts_come_back(tmp_path):
    write(tmp_path, 3)
    facts = read_newest(tmp_path).facts
    assert {key: facts[key] for key in ("iteration", *FACTS)} == {"iteration": 3, **FACTS}


def test_the_newest_by_number_is_read(tmp_path):
    write(tmp_path, 9_999_999, 10_000_000, 5)
    assert read_newest(tmp_path).facts["iteration"] == 10_000_000


def test_there_is_none_before_one_was_written(tmp_path):
    assert read_newest(tmp_path / "checkpoints") is None


def test_the_one_called_best_is_not_taken_for_the_newest(tmp_path):
    write(tmp_path, 3)
    write_checkpoint(tmp_path, "best", tensors(), {"iteration": 4})
    assert read_newest(tmp_path).facts["iteration"] == 3
    assert read_checkpoint(tmp_path / "best").facts["iteration"] == 4


def test_nothing_in_a_checkpoint_can_be_unpickled(tmp_path):
    write(tmp_path, 3)
    for path in tmp_path.iterdir():
        with pytest.raises(Exception), path.open("rb") as file:  # noqa: B017
            pickle.load(file)


# Crashes


def crash_before_renaming(monkeypatch, suffix):
    """A process killed right before the file that ends in `suffix` gets its name."""

    class Killed(BaseException):
        pass

    original = os.replace

    def replace(source, target, **options):
        if str(target).endswith(suffix):
            raise Killed
        return original(source, target, **options)

    monkeypatch.setattr(os, "replace", replace)
    return Killed


@pytest.mark.parametrize("suffix", [".safetensors", ".json"])
def test_killed_before_either_file_has_its_name_the_one_before_is_the_newest(suffix, tmp_path, monkeypatch):
    write(tmp_path, 1)
    killed = crash_before_renaming(monkeypatch, suffix)
    with pytest.raises(killed):
        write(tmp_path, 2)
    monkeypatch.undo()
    found = read_newest(tmp_path)
    assert (found.facts["iteration"], found.damaged) == (1, ())


@pytest.mark.parametrize("suffix", [".safetensors", ".json"])
def test_what_a_killed_process_left_is_cleared_with_the_next_checkpoint(suffix, tmp_path, monkeypatch):
    write(tmp_path, 1)
    killed = crash_before_renaming(monkeypatch, suffix)
    with pytest.raises(killed):
        write(tmp_path, 2)
    monkeypatch.undo()
    write(tmp_path, 3)
    keep_last(tmp_path, 2, newest=3)
    assert names(tmp_path) == ["0000001.json", "0000001.safetensors", "0000003.json", "0000003.safetensors"]


@pytest.mark.parametrize("suffix", [".json.new", ".safetensors", ".json"])
def test_killed_while_one_is_written_over_another_one_of_the_two_is_whole(suffix, tmp_path, monkeypatch):
    write_checkpoint(tmp_path, "best", tensors(1.0), {"iteration": 1})
    killed = crash_before_renaming(monkeypatch, suffix)
    with pytest.raises(killed):
        write_checkpoint(tmp_path, "best", tensors(2.0), {"iteration": 2})
    monkeypatch.undo()
    found, expected = read_checkpoint(tmp_path / "best"), 2 if suffix == ".json" else 1
    assert (found.facts["iteration"], found.tensors["generator.weight"][0]) == (expected, expected)
    write_checkpoint(tmp_path, "best", tensors(3.0), {"iteration": 3})
    keep_last(tmp_path, 1, newest=0)
    assert read_checkpoint(tmp_path / "best").facts["iteration"] == 3
    assert names(tmp_path) == ["best.json", "best.safetensors"]


# Damage


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path, place=-1):
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(bytes(content))


DAMAGE = {
    "tensors cut short": (".safetensors", truncate),
    "tensors empty": (".safetensors", lambda path: path.write_bytes(b"")),
    "a bit of the last tensor": (".safetensors", flip),
    "a bit of the header": (".safetensors", lambda path: flip(path, 3)),
    "tensors gone": (".safetensors", lambda path: path.unlink()),
    "facts cut short": (".json", truncate),
    "facts empty": (".json", lambda path: path.write_bytes(b"")),
    "facts of another kind": (".json", lambda path: path.write_text("[1]")),
    "facts without a hash": (".json", lambda path: path.write_text('{"iteration": 2}')),
    "facts that are no text": (".json", lambda path: path.write_bytes(b"\xff\xfe\x00")),
    "another iteration": (".json", lambda path: path.write_text(path.read_text().replace(": 2,", ": 3,"))),
}


def test_an_iteration_that_floats_cannot_tell_from_the_next_is_refused(tmp_path):
    write_checkpoint(tmp_path, "best", tensors(), {"iteration": 2**53 - 1})
    assert read_checkpoint(tmp_path / "best").facts["iteration"] == 2**53 - 1
    write_checkpoint(tmp_path, "best", tensors(), {"iteration": 2**53})
    with pytest.raises(CheckpointError, match="iteration must be a whole number"):
        read_checkpoint(tmp_path / "best")


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_and_named(damage, tmp_path):
    write(tmp_path, 1, 2)
    suffix, harm = DAMAGE[damage]
    harm(tmp_path / f"0000002{suffix}")
    found = read_newest(tmp_path)
    assert found.facts["iteration"] == 1
    assert len(found.damaged) == 1
    assert "0000002" in found.damaged[0]


def test_no_bit_of_the_facts_can_flip_unnoticed(tmp_path):
    write(tmp_path, 1, 2)
    path = tmp_path / "0000002.json"
    whole = path.read_bytes()
    meaning = json.loads(whole)
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        found = read_newest(tmp_path)
        assert found.facts["iteration"] == 1 or found.facts == meaning, place
        path.write_bytes(whole)


def test_two_damaged_ones_are_both_passed_over(tmp_path):
    write(tmp_path, 1, 2, 3)
    truncate(tmp_path / "0000003.safetensors")
    truncate(tmp_path / "0000002.json")
    found = read_newest(tmp_path)
    assert found.facts["iteration"] == 1
    assert [name for name in ("0000003", "0000002") if name in "".join(found.damaged)] == ["0000003", "0000002"]


def test_where_none_can_be_read_each_is_named(tmp_path):
    write(tmp_path, 1, 2)
    truncate(tmp_path / "0000001.safetensors")
    truncate(tmp_path / "0000002.json")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be read: .*0000002.*; .*0000001"):
        read_newest(tmp_path)


# Keeping


def test_the_last_few_are_kept_and_the_best(tmp_path):
    write(tmp_path, 1, 2, 3, 4)
    write_checkpoint(tmp_path, "best", tensors(), {"iteration": 1})
    keep_last(tmp_path, 2, newest=4)
    stems = {path.stem for path in tmp_path.iterdir()}
    assert stems == {"0000003", "0000004", "best"}
    assert len(names(tmp_path)) == 6


def test_a_damaged_one_from_before_a_fall_back_does_not_take_the_place_of_a_good_one(tmp_path):
    write(tmp_path, 10, 20)
    truncate(tmp_path / "0000020.safetensors")
    write(tmp_path, 15)
    keep_last(tmp_path, 1, newest=15)
    assert read_newest(tmp_path).facts["iteration"] == 15


def test_a_tensor_that_is_not_finite_is_found_by_name():
    values = {"a": torch.ones(2), "steps": torch.tensor(3), "b": torch.tensor([1.0, float("inf")])}
    assert first_nonfinite(values) == "b"
    values["b"][1] = 0
    assert first_nonfinite(values) is None
