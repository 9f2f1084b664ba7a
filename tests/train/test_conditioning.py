"""The generator's conditioning in a run: when it is written down, of which generator, and that nothing else changes."""

from dataclasses import replace

import pytest
from tests.train.cases import different, last_tensors, tiny_config, tiny_data, tiny_run

from wcgan.evaluate.conditioning import NOISES, measure_conditioning
from wcgan.runs.sampler import load_generator
from wcgan.train.gan import train


def run_to_end(folder, noise=6, stop_at=None, **settings):
    config = tiny_config(**settings)
    config = replace(config, generator=replace(config.generator, noise=noise))
    run = tiny_run(folder, config)
    train(config, tiny_data(), run, stop_at=stop_at)
    return run


def measured(run):
    return [line for line in run.lines() if line["kind"] == "conditioning"]


@pytest.mark.parametrize(("every", "expected"), [(0, []), (2, [2, 4, 5]), (9, [5])])
def test_it_is_measured_every_so_often_and_at_the_end_where_it_is_asked_for(every, expected, tmp_path):
    run = run_to_end(tmp_path / "run", iterations=5, conditioning_every=every)
    assert [line["iteration"] for line in measured(run)] == expected


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_it_is_that_of_the_generator_which_samples_are_drawn_from(ema, tmp_path):
    run = run_to_end(tmp_path / "run", conditioning_every=100, ema=ema, seed=3)
    (line,) = measured(run)
    figures = measure_conditioning(load_generator(run.folder).network, seed=3)
    assert {name: line[name] for name in figures} == pytest.approx(figures, rel=1e-6)


def test_it_is_that_of_statistics_recomputed_at_its_moment(tmp_path):
    often, rarely = (
        run_to_end(
            tmp_path / str(every),
            iterations=5,
            conditioning_every=2,
            checkpoint_every=every,
            ema=0.5,
            ema_statistics="recomputed",
        )
        for every in (1, 100)
    )
    assert measured(often) == measured(rarely)


@pytest.mark.parametrize(("normalization", "head", "ema"), [("cWC", "projection", 0.0), ("WC", "plain", 0.9)])
def test_a_run_has_the_same_bits_with_and_without_it(normalization, head, ema, tmp_path):
    with_it, without = (
        run_to_end(
            tmp_path / str(every),
            normalization=normalization,
            head=head,
            ema=ema,
            conditioning_every=every,
            iterations=3,
        )
        for every in (1, 0)
    )
    assert len(measured(with_it)) == 3
    assert different(last_tensors(with_it), last_tensors(without)) == []
    losses = [
        [{k: v for k, v in line.items() if k.startswith("loss/")} for line in run.lines() if line["kind"] == "train"]
        for run in (with_it, without)
    ]
    assert losses[0] == losses[1]


def test_a_resumed_run_measures_what_one_that_never_stopped_does(tmp_path):
    whole = run_to_end(tmp_path / "whole", conditioning_every=2, iterations=3)
    resumed = run_to_end(tmp_path / "resumed", conditioning_every=2, iterations=3, stop_at=2)
    train(resumed.config(), tiny_data(), resumed)
    assert measured(resumed) == measured(whole)


def test_tensorboard_has_it(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = run_to_end(tmp_path / "run", conditioning_every=1, iterations=2)
    events = EventAccumulator(str(run.folder)).Reload()
    found = [(event.step, event.value) for event in events.Scalars("condition/log10_mean")]
    assert found == [(line["iteration"], pytest.approx(line["condition/log10_mean"])) for line in measured(run)]


def test_a_lack_of_rank_is_said(tmp_path, capsys):
    run = run_to_end(tmp_path / "run", noise=70, iterations=1, conditioning_every=1)  # images have 64 pixels
    (line,) = measured(run)
    assert (line["rank_deficient"], line["condition/log10_mean"]) == (NOISES, pytest.approx(12))
    assert (
        f"the generator's Jacobian lacks rank, or is not finite, at {NOISES} of {NOISES} z" in capsys.readouterr().err
    )


def test_a_healthy_jacobian_needs_no_words(tmp_path, capsys):
    run_to_end(tmp_path / "run", conditioning_every=3)
    assert "Jacobian" not in capsys.readouterr().err
