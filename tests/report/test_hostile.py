"""Runs from somebody who means no good, and damaged ones: a page comes of each, or a sentence."""

import json
import os
import random

from tests.attack.tally import quick_and_long
from tests.mutations import mutated, with_other_values
from tests.report.cases import classifier_config, classifier_records, config, evaluations, published, write_run

from wcgan.report import read_runs, runs_to_rows, scores_to_rows, write_report
from wcgan.report.page import runs_to_page


def with_other_lines(lines, chance):
    return "\n".join(map(json.dumps, with_other_values([*map(json.loads, lines)], chance))).encode()


@quick_and_long(100, 1_500)
def test_damaged_runs_give_a_page_or_a_sentence(tmp_path, attack, cases):
    run, chance = write_run(tmp_path / "run"), random.Random(0)
    config, metrics = run / "config.yaml", run / "metrics.jsonl"
    written, records = config.read_bytes(), metrics.read_bytes()
    for case in range(cases):
        config.write_bytes(mutated(written, chance) if case % 2 else written)
        metrics.write_bytes(
            mutated(records, chance) if case % 2 else with_other_lines(records.decode().splitlines(), chance)
        )
        with attack.case():  # any error is a bug
            runs_to_rows(read_runs([run]))
            assert write_report([run], tmp_path / "report.html").stat().st_size > 1000


def fields(value, path=()):
    """The path to every field of a record, at any depth."""
    for key, inner in value.items():
        yield *path, key
        if isinstance(inner, dict):
            yield from fields(inner, (*path, key))


def with_field(record, path, value):
    """A copy with one field changed."""
    key, *rest = path
    return record | {key: with_field(record[key], rest, value) if rest else value}


def test_any_field_of_any_line_may_be_anything(tmp_path):
    scored = published(20, "paper-10k, 2,000 generated against 10,000, 10 sets of 200", FID=2.0, IS=3.0, KID=1.0)
    scored["protocol"] |= {"kid_subset_size": 100, "kid_subsets": 10, "neighbours": 3}
    trained = classifier_records(until=150)
    for settings, records in ((config(), [evaluations()[0], scored]), (classifier_config(), trained)):
        run = write_run(tmp_path / settings["preset"].replace("/", " "), settings, records, samples=())
        for record in records:
            for path in fields(record):
                for value in (None, 0, "x", []):
                    changed = with_field(record, path, value)
                    lines = [line for line in records if line["kind"] == "train"] + [changed]  # the last evaluation
                    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
                    runs = read_runs([run])
                    runs_to_rows(runs)  # any error is a bug
                    assert all(seconds > 0 for seconds in runs[0].epochs)  # which tables of the paper show
                    for measured in runs[0].evaluations:
                        scores_to_rows(measured)  # which model cards show
                    assert len(runs_to_page(runs)) > 1000, (path, value)


def test_hostile_lines_are_counted_as_unreadable(tmp_path):
    run = write_run(tmp_path / "run")
    (before,) = read_runs([run])
    lines = ("[" * 100_000, '{"kind":' * 100_000, '{"kind": "train", "iteration": 1' + "0" * 400 + "}")
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(line + "\n" for line in lines)
    (record,) = read_runs([run])
    assert (record.unreadable, record.training) == (before.unreadable + len(lines), before.training)


def test_a_hostile_config_is_shown_and_not_obeyed(tmp_path):
    run = write_run(tmp_path / "run")
    for text in ("a: &a [x]\nb: &b [*a, *a]\n", "[" * 100_000, "!!python/object:os.x {}"):
        (run / "config.yaml").write_text(text)
        (record,) = read_runs([run])
        assert (record.config, record.config_text) == ({}, text)


def test_pipes_and_devices_in_a_run_are_not_read(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "config.yaml").unlink()
    (run / "config.yaml").symlink_to("/dev/zero")
    samples = run / "samples"
    samples.mkdir(exist_ok=True)
    os.mkfifo(samples / "9999998.png")
    (samples / "9999999.png").symlink_to("/dev/zero")
    (record,) = read_runs([run])
    assert (record.config_text, record.config) == ("", {})


def test_a_picture_elsewhere_does_not_get_into_the_page(tmp_path):
    run, other = write_run(tmp_path / "run"), tmp_path / "private.png"
    samples = run / "samples"
    samples.mkdir(exist_ok=True)
    other.write_bytes(
        b"\x89PNG\r\n\x1a\n" + bytes(4) + b"IHDR" + bytes(3) + b"\x01" + bytes(3) + b"\x01private" + b"IEND" + bytes(4)
    )
    (samples / "9999999.png").write_bytes(other.read_bytes())
    assert read_runs([run])[0].picture.iteration == 9999999  # as a file it would
    (samples / "9999999.png").unlink()
    (samples / "9999999.png").symlink_to(other)
    (record,) = read_runs([run])
    assert record.picture is None or record.picture.iteration != 9999999
