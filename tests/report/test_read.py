"""Folders that are damaged, doubled or not runs at all."""

import json

import pytest
from tests.report.cases import FID, IS, config, evaluations, event, grid, training, write_run

from wcgan.report import write_report
from wcgan.report.formats import runs_to_rows
from wcgan.report.read import read_runs, score_key


def test_a_last_line_that_was_cut_short_is_counted_and_left_out(tmp_path):
    run = write_run(tmp_path / "run", records=training(100))
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "iteration": 110, "loss/disc')
    (record,) = read_runs([run])
    assert (record.iteration, record.unreadable) == (100, 1)


def test_lines_that_are_no_records_are_counted_and_left_out(tmp_path):
    run = write_run(tmp_path / "run", records=training(20))
    lines = ["[1, 2]", "7", "null", "{}", '{"kind": "train"}', '{"kind": "train", "iteration": "x"}']
    with (run / "metrics.jsonl").open("a") as file:
        file.write("\n\n".join(lines))
    (record,) = read_runs([run])
    assert (len(record.training), record.unreadable) == (2, len(lines))


def test_metrics_that_cannot_be_opened_are_named(tmp_path):
    run = write_run(tmp_path / "run", records=())
    (run / "metrics.jsonl").mkdir()
    records = read_runs([run])
    expected = (
        f"the metrics of run could not be read: {run / 'metrics.jsonl'} cannot be read: it is a folder, not a file"
    )
    assert runs_to_rows(records)[2] == [expected]
    assert expected in write_report([run], tmp_path / "page.html").read_text()


def test_of_an_iteration_written_twice_the_later_record_counts(tmp_path):
    first, second = (evaluations(400, scale=scale) for scale in (1.0, 2.0))
    (record,) = read_runs([write_run(tmp_path / "run", records=[*first, event(200, "resumed"), *second[1:]])])
    assert [r["iteration"] for r in record.evaluations] == [200, 400]
    assert [r[FID] for r in record.evaluations] == [first[0][FID], second[1][FID]]


def test_two_protocols_of_an_iteration_are_two_records_whatever_their_seeds(tmp_path):
    records = [*evaluations(200, name="a"), *evaluations(200, name="b"), *evaluations(200, scale=2.0, name="a", seed=7)]
    (record,) = read_runs([write_run(tmp_path / "run", records=records)])
    assert [(r["iteration"], r["protocol"]["name"], r["protocol"]["seed"]) for r in record.evaluations] == [
        (200, "b", 0),
        (200, "a", 7),
    ]


UNUSUAL = {"statistics": "of batches of 64"}


def test_two_records_of_an_iteration_with_other_statistics_are_both_kept(tmp_path):
    records = [*evaluations(200), *evaluations(200, scale=2.0, **UNUSUAL)]
    (record,) = read_runs([write_run(tmp_path / "run", records=records)])
    assert [(r["iteration"], r["protocol"].get("statistics")) for r in record.evaluations] == [
        (200, None),
        (200, "of batches of 64"),
    ]


@pytest.mark.parametrize("name", [FID, IS])
@pytest.mark.parametrize("other", [{"statistics": "of batches of 128"}, {"generator": "not averaged"}, {}])
def test_scores_of_a_generator_that_was_used_in_another_way_do_not_compare(name, other):
    (one,), (another,) = (evaluations(200, **facts) for facts in (UNUSUAL, other))
    assert score_key(one, name) != score_key(another, name)
    assert score_key(one, name) == score_key(*evaluations(200, seed=5, **UNUSUAL), name)


def test_machines_and_commits_are_those_of_all_its_starts(tmp_path):
    starts = [
        event(0, "started", device="CPU", processes=1, commit="aaa"),
        event(10, "resumed", device="H200", processes=4, commit=None),
        event(20, "resumed", device="H200", processes=4, commit=f"{4 * '0123456789'}+"),
        event(30, "resumed", device="H200", processes=4, commit="0123456789+"),
        event(40, "resumed", device="H200", processes=4, commit="release of spring"),
    ]
    (record,) = read_runs([write_run(tmp_path / "run", records=starts)])
    assert record.machines == ["CPU", "4 \u00d7 H200"]
    assert record.commits == ["aaa", "0123456789+", "release of spring"]


def test_the_last_grid_is_the_one_with_the_highest_number(tmp_path):
    run = write_run(tmp_path / "run", samples=(99, 1000, 200))
    grid().save(run / "samples" / "zzz.png")
    (record,) = read_runs([run])
    assert record.picture is not None
    assert (record.picture.iteration, record.picture.width, record.picture.height) == (1000, 182, 182)


def test_a_damaged_grid_is_passed_over_for_the_one_before(tmp_path):
    run = write_run(tmp_path / "run", samples=(500, 1000))
    last = run / "samples" / "0001000.png"
    for content in (last.read_bytes()[:-20], b"", b"GIF89a", b"\x89PNG\r\n\x1a\n"):
        last.write_bytes(content)
        (record,) = read_runs([run])
        assert record.picture is not None
        assert record.picture.iteration == 500


def test_a_config_that_makes_no_sense_still_gives_a_page(tmp_path):
    run = write_run(tmp_path / "run")
    for content in ("a: [", "- 1\n- 2\n", "", "train: 3\ngenerator:\n"):
        (run / "config.yaml").write_text(content)
        page = write_report([run], tmp_path / "report.html").read_text()
        (record,) = read_runs([run])
        assert (record.variant, record.dataset, record.planned) == (None, None, None)
        assert "8.690" in page


def test_a_config_builds_no_objects(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "config.yaml").write_text("data: !!python/object/apply:os.mkdir ['made']\n")
    (record,) = read_runs([run])
    assert record.config == {}


def test_a_folder_of_images_is_named_without_its_path(tmp_path):
    (record,) = read_runs([write_run(tmp_path / "run", config(dataset="/home/someone/pictures/cats"))])
    assert record.dataset == "cats"


def test_bytes_that_are_not_text_still_give_a_page(tmp_path):
    run = write_run(tmp_path / "run")
    for name in ("config.yaml", "metrics.jsonl"):
        (run / name).write_bytes((run / name).read_bytes() + b"\xff\xfe\n")
    (record,) = read_runs([run])
    assert record.unreadable == 1
    write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_run_is_finished_when_it_has_done_what_its_config_says(tmp_path):
    records = [*training(100), event(100, "finished")]
    (record,) = read_runs([write_run(tmp_path / "run", config(iterations=100), records)])
    assert record.status == "finished"


def test_no_run_at_all_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one run"):
        write_report([], tmp_path / "report.html")


def test_a_folder_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="missing is not a folder"):
        write_report([tmp_path / "missing"], tmp_path / "report.html")


def test_a_folder_that_is_not_a_runs_is_refused_by_name(tmp_path):
    (tmp_path / "pictures").mkdir()
    with pytest.raises(ValueError, match=r"pictures is not the folder of a run: it has neither config\.yaml nor"):
        write_report([tmp_path / "pictures"], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_page_that_is_a_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is a folder: name the page to write"):
        write_report([write_run(tmp_path / "run")], tmp_path)


def test_a_page_that_exists_is_replaced_and_nothing_is_left_beside_it(tmp_path):
    run, out = write_run(tmp_path / "run"), tmp_path / "pages" / "report.html"
    write_report([run], out)
    (run / "metrics.jsonl").write_text(json.dumps(training(10)[0]) + "\n")
    assert "of 1,000, unfinished" in write_report([run], out).read_text()
    assert [file.name for file in out.parent.iterdir()] == ["report.html"]


def test_the_same_runs_give_the_same_page(tmp_path):
    run = write_run(tmp_path / "run")
    first, second = (write_report([run], tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second


@pytest.mark.parametrize(
    ("fact", "scores"),
    [
        ({"reference": {"split": "train"}}, {"FID", "FID(classifier)", "KID", "KID(classifier)", "precision"}),
        ({"generated": 5}, {"FID", "FID(classifier)", "KID", "KID(classifier)", "precision"}),
        ({"kid_subset_size": 5}, {"KID", "KID(classifier)"}),
        ({"splits": 5}, {"IS", "IS(classifier)"}),
        ({"scored_by_IS": 5}, {"IS", "IS(classifier)"}),
        ({"neighbours": 5, "seed": 5}, set()),
    ],
)
def test_a_score_compares_unless_a_fact_that_it_depends_on_differs(fact, scores):
    names = ("FID", "FID(classifier)", "KID", "KID(classifier)", "IS", "IS(classifier)", "precision")
    one, another = {"protocol": {"generated": 10}}, {"protocol": {"generated": 10, **fact}}
    assert {name for name in names if score_key(one, name) != score_key(another, name)} == scores
